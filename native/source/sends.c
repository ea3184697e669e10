/* A run of SENDs as columns. Reference and description: ../pure/sends.py. */
#include "parts.h"

enum { FRAME_MIN = 16, COMMAND_MAX = 64, PAYLOAD_MIN = 10, PAYLOAD_MAX = 65536 };
enum { SEND_NUMBERS = 0xE, NUMBERS = 0xA120C, TEXTS = 0x50042, REQUIRED = 0xE }; /* Fields, a bit for each. */
enum { ARE_SINGLE = 1, ARE_CONSECUTIVE = 2 };

/* Whether data[at:end] surely is a message by itself that clients can read. */
static int is_single(const uint8_t *data, int64_t at, int64_t end) {
    Fields has;
    int64_t metadata_end = at + 4 + (int64_t)vela_number(data + at, 4);
    return metadata_end <= end && vela_read_fields(data, at + 4, metadata_end, NUMBERS, TEXTS, &has)
        && (has.seen & REQUIRED) == REQUIRED;
}

VELA(read_sends) {
    PyObject *given;
    Py_ssize_t at;
    long long frame_max, count = 0, producer_id = -1, size_bytes = 0, size_each = 0, last_id = 0;
    int flags = ARE_SINGLE | ARE_CONSECUTIVE;
    if (!PyArg_ParseTuple(arguments, "SnL", &given, &at, &frame_max)) return NULL;
    const uint8_t *data = (const uint8_t *)PyBytes_AS_STRING(given);
    OWNED *payloads = PyList_New(0);
    PyObject *ids = payloads ? PyBytes_FromStringAndSize(NULL, 1024) : NULL;
    while (ids && at >= 0 && PyBytes_GET_SIZE(given) - at >= FRAME_MIN) {
        int64_t total = (int64_t)vela_number(data + at, 4), size = (int64_t)vela_number(data + at + 4, 4);
        int64_t begin = at + 8 + size, end = at + 4 + total, payload_size = end - begin;
        Fields send;
        if (end > PyBytes_GET_SIZE(given) || total + 4 > frame_max || size > COMMAND_MAX || payload_size < PAYLOAD_MIN
            || payload_size > PAYLOAD_MAX || vela_number(data + at + 8, 3) != 0x080632 || data[at + 11] != size - 4
            || !vela_read_fields(data, at + 12, begin, SEND_NUMBERS, 0, &send) || (send.seen & 6) != 6
            || (count && send.value[1] != producer_id)) break;
        uint64_t magic = vela_number(data + begin, 2);
        int64_t covered = begin + (magic == MAGIC ? UNCHECKED : 0);
        if (magic == MAGIC + 1 || (magic == MAGIC && vela_number(data + begin + 2, 4)
                                   != vela_crc32c_of(0, data + covered, (size_t)(end - covered)))) break;
        OWNED *payload = PyBytes_FromStringAndSize((const char *)data + begin, payload_size);
        if (!payload || PyList_Append(payloads, payload) < 0) return Py_DECREF(ids), NULL;
        if (8 * count == PyBytes_GET_SIZE(ids) && _PyBytes_Resize(&ids, 32 * count) < 0) break;
        memcpy(PyBytes_AS_STRING(ids) + 8 * count, &send.value[2], 8);
        size_each = count && payload_size != size_each ? 0 : payload_size;
        size_bytes += payload_size, producer_id = send.value[1], at = end, count++;
        flags &= (is_single(data, covered, end) ? ~0 : ~ARE_SINGLE)
            & (count == 1 || (uint64_t)send.value[2] - (uint64_t)last_id == 1 ? ~0 : ~ARE_CONSECUTIVE);
        last_id = send.value[2];
    }
    if (!ids || _PyBytes_Resize(&ids, 8 * count) < 0) return NULL;
    return Py_BuildValue("LNOLLin", producer_id, ids, payloads, size_bytes, size_each, flags, at);
}
