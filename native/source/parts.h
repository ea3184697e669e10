/* What the parts of the extension share. Limits and rules: ../DESIGN.md. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
enum { METADATA_BYTES = 32, HEAD_BYTES = 36 }; /* Bytes of an entry before its digest, and before its payload. */

static inline uint32_t vela_u32(const uint8_t *data)
{
    return (uint32_t)data[0] << 24 | data[1] << 16 | data[2] << 8 | data[3];
}

uint32_t vela_crc32c(uint32_t value, const uint8_t *data, size_t size);
void vela_crc32c_prepare(void);

extern PyMethodDef vela_batch_functions[], vela_broadcast_functions[], vela_checksum_functions[], vela_delivering_functions[],
    vela_reading_functions[], vela_writing_functions[];
