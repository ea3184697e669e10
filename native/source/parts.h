/* What the parts of the extension share. Limits and rules: ../DESIGN.md. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

uint32_t vela_crc32c(uint32_t value, const uint8_t *data, size_t size);
uint32_t vela_crc32c_combined(uint32_t first, uint32_t second, uint64_t second_bytes);
void vela_crc32c_prepare(void);

extern PyMethodDef vela_broadcast_functions[], vela_checksum_functions[], vela_reading_functions[];
