/* What the parts of the extension share. Limits and rules: ../DESIGN.md. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

static inline uint32_t vela_u32(const uint8_t *data)
{
    return (uint32_t)data[0] << 24 | data[1] << 16 | data[2] << 8 | data[3];
}

uint32_t vela_crc32c(uint32_t value, const uint8_t *data, size_t size);
uint32_t vela_crc32c_combined(uint32_t first, uint32_t second, uint64_t second_bytes);
void vela_crc32c_prepare(void);

extern PyMethodDef vela_batch_functions[], vela_broadcast_functions[], vela_checksum_functions[],
    vela_reading_functions[];
