/* One message to a strip of consumers, and a run of its acknowledgements. Slots are int32, columns int64. */
#include "parts.h"
#include <string.h>

enum { HEAD = 13, REST_MAX = 100, TAIL_MAX = 100 };

static int32_t slot_at(const Py_buffer *slots, Py_ssize_t at) { return ((int32_t *)slots->buf)[at]; }

static void put_head(uint8_t *to, uint8_t command, uint8_t field, size_t content, size_t payload)
{
    size_t sizes[2] = {8 + content + payload, 4 + content};
    for (int at = 0; at < 8; at++)
        to[at] = (uint8_t)(sizes[at / 4] >> 8 * (3 - at % 4));
    to[8] = to[12] = 8, to[9] = command, to[10] = field, to[11] = (uint8_t)content;
}

static PyObject *message_frames(PyObject *module, PyObject *arguments)
{
    Py_buffer slots, consumers, rest;
    PyObject *data, *made, *frames = NULL;
    if (!PyArg_ParseTuple(arguments, "y*y*y*S", &slots, &consumers, &rest, &data))
        return NULL;
    if (rest.len > REST_MAX)
        PyErr_SetString(PyExc_ValueError, "too much follows the id of the consumer");
    else
        frames = PyList_New(slots.len / 4 * 2);
    for (Py_ssize_t at = 0; frames && at < slots.len / 4; at++) {
        uint8_t head[HEAD + 10 + REST_MAX], *to = head + HEAD;
        if (slot_at(&slots, at) < 0 || slot_at(&slots, at) >= consumers.len / 8) {
            PyErr_SetString(PyExc_IndexError, "a slot is outside of the column");
            Py_CLEAR(frames);
            break;
        }
        uint64_t id = ((uint64_t *)consumers.buf)[slot_at(&slots, at)];
        for (; id > 127; id >>= 7)
            *to++ = (uint8_t)(id | 128);
        *to++ = (uint8_t)id;
        memcpy(to, rest.buf, (size_t)rest.len);
        to += rest.len;
        put_head(head, 9, 0x4A, (size_t)(to - head - 12), (size_t)PyBytes_GET_SIZE(data));
        if (!(made = PyBytes_FromStringAndSize((char *)head, to - head))) {
            Py_CLEAR(frames);
            break;
        }
        PyList_SET_ITEM(frames, 2 * at, made);
        PyList_SET_ITEM(frames, 2 * at + 1, Py_NewRef(data));
    }
    PyBuffer_Release(&slots), PyBuffer_Release(&consumers), PyBuffer_Release(&rest);
    return frames;
}

static PyObject *update_slots(PyObject *module, PyObject *arguments)
{
    Py_buffer slots, column;
    long long keep, value, step, least = INT64_MAX, most = INT64_MIN;
    if (!PyArg_ParseTuple(arguments, "y*w*LLL", &slots, &column, &keep, &value, &step))
        return NULL;
    Py_ssize_t at = 0, count = slots.len / 4;
    for (; at < count && slot_at(&slots, at) >= 0 && slot_at(&slots, at) < column.len / 8; at++) {
        int64_t *number = (int64_t *)column.buf + slot_at(&slots, at);
        *number = (int64_t)((uint64_t)(keep ? *number : 0) + (uint64_t)value + (uint64_t)step * (uint64_t)at);
        least = *number < least ? *number : least;
        most = *number > most ? *number : most;
    }
    PyBuffer_Release(&slots), PyBuffer_Release(&column);
    if (at < count)
        return PyErr_Format(PyExc_IndexError, "a slot is outside of the column");
    return Py_BuildValue("LL", least, most);
}

static PyObject *take_acks(PyObject *module, PyObject *arguments)
{
    Py_buffer data, tail, numbers;
    Py_ssize_t start, used = 0;
    unsigned long long first;
    if (!PyArg_ParseTuple(arguments, "y*ny*Ky*", &data, &start, &tail, &first, &numbers))
        return NULL;
    PyObject *found = PyBytes_FromStringAndSize(NULL, 256);
    while (found && start >= 0 && tail.len <= TAIL_MAX && data.len - start > HEAD + tail.len) {
        const uint8_t *frame = (uint8_t *)data.buf + start, *to = frame + HEAD;
        uint64_t id = 0;
        int shift = 0;
        for (; shift < 63 && to < frame + (data.len - start) - tail.len - 1 && *to & 128; to++, shift += 7)
            id |= (uint64_t)(*to & 127) << shift;
        id = (id | (uint64_t)*to++ << shift) - first;
        uint8_t head[HEAD];
        put_head(head, 10, 0x52, (size_t)(to - frame - 12 + tail.len), 0);
        if (to[-1] & 128 || memcmp(frame, head, HEAD) || memcmp(to, tail.buf, (size_t)tail.len)
            || id >= (uint64_t)numbers.len / 4 || slot_at(&numbers, (Py_ssize_t)id) < 0)
            break;
        if (used == PyBytes_GET_SIZE(found) && _PyBytes_Resize(&found, 4 * used) < 0)
            break;
        memcpy(PyBytes_AS_STRING(found) + used, (int32_t *)numbers.buf + id, 4);
        used += 4, start += to - frame + tail.len;
    }
    if (found)
        _PyBytes_Resize(&found, used);
    PyBuffer_Release(&data), PyBuffer_Release(&tail), PyBuffer_Release(&numbers);
    return found ? Py_BuildValue("Nn", found, start) : NULL;
}

PyMethodDef vela_broadcast_functions[] = {
    {"message_frames", message_frames, METH_VARARGS, NULL},
    {"update_slots", update_slots, METH_VARARGS, NULL},
    {"take_acks", take_acks, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL}};
