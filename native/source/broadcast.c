/* One message to a strip of consumers, and a run of its acknowledgements. Slots are int32, columns int64. */
#include "parts.h"

enum { HEAD = 13, REST_MAX = 100, TAIL_MAX = 100 };

static int32_t slot_at(const Py_buffer *slots, Py_ssize_t at) { return ((int32_t *)slots->buf)[at]; }

static void put_head(uint8_t *to, uint8_t command, uint8_t field, size_t content, size_t payload) {
    const uint8_t start[] = {8, command, field, (uint8_t)content, 8};
    memcpy(vela_put(vela_put(to, 8 + content + payload, 4), 4 + content, 4), start, sizeof start);
}

VELA(message_frames) {
    BUFFER slots = {0}, consumers = {0}, rest = {0};
    PyObject *data;
    if (!PyArg_ParseTuple(arguments, "y*y*y*S", &slots, &consumers, &rest, &data)) return NULL;
    if (rest.len > REST_MAX) return PyErr_Format(PyExc_ValueError, "too much follows the id of the consumer");
    OWNED *frames = PyList_New(slots.len / 4 * 2);
    for (Py_ssize_t at = 0; frames && at < slots.len / 4; at++) {
        uint8_t head[HEAD + 10 + REST_MAX], *to = head + HEAD;
        if (slot_at(&slots, at) < 0 || slot_at(&slots, at) >= consumers.len / 8)
            return PyErr_Format(PyExc_IndexError, "a slot is outside of the column");
        uint64_t id = ((uint64_t *)consumers.buf)[slot_at(&slots, at)];
        for (; id > 127; id >>= 7) *to++ = (uint8_t)(id | 128);
        *to++ = (uint8_t)id;
        memcpy(to, rest.buf, (size_t)rest.len);
        to += rest.len;
        put_head(head, 9, 0x4A, (size_t)(to - head - 12), (size_t)PyBytes_GET_SIZE(data));
        PyList_SET_ITEM(frames, 2 * at, PyBytes_FromStringAndSize((char *)head, to - head));
        PyList_SET_ITEM(frames, 2 * at + 1, Py_NewRef(data));
        if (!PyList_GET_ITEM(frames, 2 * at)) return NULL;
    }
    return Py_XNewRef(frames);
}

VELA(update_slots) {
    BUFFER slots = {0}, column = {0};
    long long keep, value, step, least = INT64_MAX, most = INT64_MIN;
    if (!PyArg_ParseTuple(arguments, "y*w*LLL", &slots, &column, &keep, &value, &step)) return NULL;
    for (Py_ssize_t at = 0; at < slots.len / 4; at++) {
        if (slot_at(&slots, at) < 0 || slot_at(&slots, at) >= column.len / 8)
            return PyErr_Format(PyExc_IndexError, "a slot is outside of the column");
        int64_t *number = (int64_t *)column.buf + slot_at(&slots, at);
        *number = (int64_t)((uint64_t)(keep ? *number : 0) + (uint64_t)value + (uint64_t)step * (uint64_t)at);
        least = *number < least ? *number : least;
        most = *number > most ? *number : most;
    }
    return Py_BuildValue("LL", least, most);
}

VELA(take_acks) {
    BUFFER data = {0}, tail = {0}, numbers = {0};
    Py_ssize_t start, used = 0;
    unsigned long long first;
    if (!PyArg_ParseTuple(arguments, "y*ny*Ky*", &data, &start, &tail, &first, &numbers)) return NULL;
    PyObject *found = PyBytes_FromStringAndSize(NULL, 256);
    while (found && start >= 0 && tail.len <= TAIL_MAX && data.len - start > HEAD + tail.len) {
        const uint8_t *frame = (uint8_t *)data.buf + start, *to = frame + HEAD;
        uint8_t head[HEAD];
        uint64_t id = 0;
        int shift = 0;
        for (; shift < 63 && to < frame + (data.len - start) - tail.len - 1 && *to & 128; to++, shift += 7)
            id |= (uint64_t)(*to & 127) << shift;
        id = (id | (uint64_t)*to++ << shift) - first;
        put_head(head, 10, 0x52, (size_t)(to - frame - 12 + tail.len), 0);
        if (to[-1] & 128 || memcmp(frame, head, HEAD) || memcmp(to, tail.buf, (size_t)tail.len)
            || id >= (uint64_t)numbers.len / 4 || slot_at(&numbers, (Py_ssize_t)id) < 0)
            break;
        if (used == PyBytes_GET_SIZE(found) && _PyBytes_Resize(&found, 4 * used) < 0) break;
        memcpy(PyBytes_AS_STRING(found) + used, (int32_t *)numbers.buf + id, 4);
        used += 4, start += to - frame + tail.len;
    }
    if (found) _PyBytes_Resize(&found, used);
    return found ? Py_BuildValue("Nn", found, start) : NULL;
}
