/* What the parts of the extension share. Limits and rules: ../DESIGN.md. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

enum { METADATA_BYTES = 32, HEAD_BYTES = 36 }; /* Of an entry before its digest, and before its payload. */
enum { MAGIC = 0x0E01, UNCHECKED = 6 };        /* A payload with a checksum: its start, and what that does not cover. */

#define VELA(name) PyObject *vela_##name(PyObject *module, PyObject *arguments)
#define VELA_FUNCTIONS(each) each(batch_rows) each(crc32c) each(crc32c_bodies) each(crc32c_payloads) each(log_records) \
    each(message_frames) each(message_run) each(put_records) each(read_sends) each(take_acks) each(update_slots)
#define DECLARED(name) VELA(name);
VELA_FUNCTIONS(DECLARED)

#define BUFFER __attribute__((cleanup(PyBuffer_Release))) Py_buffer /* Both are released when their block ends. */
#define OWNED __attribute__((cleanup(vela_release))) PyObject
static inline void vela_release(PyObject **object) { Py_XDECREF(*object); }

static inline uint64_t vela_number(const uint8_t *data, int bytes) {
    uint64_t value = 0;
    while (bytes--) value = value << 8 | *data++;
    return value;
}

static inline uint8_t *vela_put(uint8_t *to, uint64_t value, int bytes) {
    while (bytes--) *to++ = (uint8_t)(value >> 8 * bytes);
    return to;
}

/* The fields of a message by their numbers, which are below 20: a number or a size, and where they end. */
typedef struct { int64_t value[20], end[20]; uint32_t seen; } Fields;
int vela_read_fields(const uint8_t *data, int64_t at, int64_t end, uint32_t numbers, uint32_t texts, Fields *fields);
uint32_t vela_crc32c_of(uint32_t value, const uint8_t *data, size_t size);
uint32_t vela_crc32c_over(uint64_t bytes); /* The factor for a checksum of what has so many bytes after it. */
uint32_t vela_crc32c_product(uint32_t left, uint32_t right);
