/* Frames of messages that are delivered to one consumer. */
#include "parts.h"
enum { FIXED_BYTES_MAX = 90, HEAD_AND_VARINT_BYTES = 24 };

static uint8_t *message_frame(uint8_t *out, const char *const fixed[4], const Py_ssize_t sizes[4], uint64_t id, PyObject *payload)
{
    uint8_t entry[10], digits = 0;
    for (; id > 0x7F; id >>= 7)
        entry[digits++] = (uint8_t)(id | 0x80);
    entry[digits++] = (uint8_t)id;
    size_t payload_size = (size_t)PyBytes_GET_SIZE(payload), id_size = (size_t)(sizes[1] + sizes[2]) + digits;
    size_t content = (size_t)(sizes[0] + sizes[3]) + 2 + id_size;
    uint64_t frame = (content + 8 + payload_size) << 32 | (content + 4);
    for (int shift = 56; shift >= 0; shift -= 8)
        *out++ = (uint8_t)(frame >> shift);
    *out++ = 0x08, *out++ = 0x09, *out++ = 0x4A, *out++ = (uint8_t)content;
    out = mempcpy(out, fixed[0], (size_t)sizes[0]);
    *out++ = 0x12, *out++ = (uint8_t)id_size;
    out = mempcpy(mempcpy(out, fixed[1], (size_t)sizes[1]), entry, digits);
    out = mempcpy(mempcpy(out, fixed[2], (size_t)sizes[2]), fixed[3], (size_t)sizes[3]);
    return mempcpy(out, PyBytes_AS_STRING(payload), payload_size);
}

VELA(message_run) {
    const char *fixed[4]; /* of a head without sizes, tags and the entry id: consumer, ledger, partition, options */
    Py_ssize_t sizes[4], total = 0, fixed_size = 0;
    PyObject *ids, *payloads, *frames;
    if (!PyArg_ParseTuple(arguments, "y#y#y#y#O!O!", &fixed[0], &sizes[0], &fixed[1], &sizes[1], &fixed[2], &sizes[2],
                          &fixed[3], &sizes[3], &PyList_Type, &ids, &PyList_Type, &payloads))
        return NULL;
    for (int part = 0; part < 4 && fixed_size <= FIXED_BYTES_MAX; part++)
        fixed_size += sizes[part];
    int is_refused = fixed_size > FIXED_BYTES_MAX || PyList_GET_SIZE(ids) != PyList_GET_SIZE(payloads);
    for (Py_ssize_t at = 0, size; !is_refused && at < PyList_GET_SIZE(payloads); at++) {
        if ((size = PyBytes_Size(PyList_GET_ITEM(payloads, at))) < 0) /* TypeError */
            return NULL;
        is_refused = size > INT32_MAX - total;
        total += is_refused ? 0 : HEAD_AND_VARINT_BYTES + fixed_size + size;
    }
    if (is_refused)
        return PyErr_Format(PyExc_ValueError, "heads or payloads too large, or not as many as entry ids");
    uint8_t *out = (frames = PyBytes_FromStringAndSize(NULL, total)) ? (uint8_t *)PyBytes_AS_STRING(frames) : NULL;
    for (Py_ssize_t at = 0; frames && at < PyList_GET_SIZE(payloads); at++) {
        uint64_t id = PyLong_AsUnsignedLongLong(PyList_GET_ITEM(ids, at));
        if (id == UINT64_MAX && PyErr_Occurred())
            Py_CLEAR(frames);
        else
            out = message_frame(out, fixed, sizes, id, PyList_GET_ITEM(payloads, at));
    }
    if (frames)
        _PyBytes_Resize(&frames, (char *)out - PyBytes_AS_STRING(frames));
    return frames;
}
