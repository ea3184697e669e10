/* One message to a strip of consumers. Twin: ../pure/broadcast.py. The table of the consumers of a
 * connection, which is part of that twin, is in ack_table.c.
 *
 * What always holds: a slot is used only if its cell is inside of the column, and every size in a
 * frame fits into its field. Buffers are not resized by others while they are held.
 */
#include "command_frames.h"
#include "extension.h"
#include "varints.h"

/* Slots are an array of type "i", columns of type "q" or "Q". */
enum { SLOT_BYTES = sizeof(int32_t), CELL_BYTES = sizeof(int64_t) };

/* The content of a MESSAGE: a tag, the id of the consumer, and the rest. */
enum { CONSUMER_ID_TAG = 0x08, ID_TAG_BYTES = 1, REST_BYTES_MAX = 100 };
enum { CONTENT_BYTES_NEEDED = ID_TAG_BYTES + VARINT_BYTES_MAX + REST_BYTES_MAX };
enum { HEAD_BYTES_MAX = CONTENT_AT + CONTENT_BYTES_NEEDED };
_Static_assert((int)CONTENT_BYTES_NEEDED <= (int)CONTENT_BYTES_MAX,
               "the size of a content takes one byte");

/* Clients in Java read the size of a frame as an int32. */
enum { PAYLOAD_BYTES_MAX = INT32_MAX - CONTENT_AT - CONTENT_BYTES_MAX };

static inline Py_ssize_t count_of(const Py_buffer *slots) { return slots->len / SLOT_BYTES; }

/* The index of the cell of a slot, or -1 with an exception. */
static inline Py_ssize_t cell_of(const Py_buffer *slots, Py_ssize_t at, const Py_buffer *column) {
    Py_ssize_t slot = ((const int32_t *)slots->buf)[at];
    if (slot >= 0 && slot < column->len / CELL_BYTES) return slot;
    PyErr_Format(PyExc_IndexError, "a slot is outside of the column");
    return -1;
}

/* Whether the sizes have a place in a frame. If not, there is an exception. */
static inline bool fit_a_frame(const Py_buffer *rest, Py_ssize_t payload_size) {
    if (rest->len > REST_BYTES_MAX) {
        PyErr_Format(PyExc_ValueError, "too much follows the id of the consumer");
        return false;
    }
    if (payload_size < 0 || payload_size > PAYLOAD_BYTES_MAX) {
        PyErr_Format(PyExc_ValueError,
                     "a frame with so large a payload has a size of more than 31 bits");
        return false;
    }
    return true;
}

/* Writes the head of a frame, up to its payload: at most HEAD_BYTES_MAX. Returns its end. */
static inline uint8_t *put_head(uint8_t *head, uint64_t consumer_id, const Py_buffer *rest,
                                size_t payload_size) {
    uint8_t *content = head + CONTENT_AT, *to = content;
    *to++ = CONSUMER_ID_TAG;
    to = put_varint(to, consumer_id);
    to = put_bytes(to, rest->buf, (size_t)rest->len);
    put_command_start(head, MESSAGE, (size_t)(to - content), payload_size);
    return to;
}

/* The same as an object. NULL with an exception. */
static inline PyObject *message_head(uint64_t consumer_id, const Py_buffer *rest,
                                     size_t payload_size) {
    uint8_t head[HEAD_BYTES_MAX];
    uint8_t *end = put_head(head, consumer_id, rest, payload_size);
    return PyBytes_FromStringAndSize((const char *)head, end - head);
}

PyObject *message_frames(PyObject *module, PyObject *arguments) {
    BUFFER slots = {0}, consumers = {0}, rest = {0};
    PyObject *payload;
    if (!PyArg_ParseTuple(arguments, "y*y*y*S", &slots, &consumers, &rest, &payload)) return NULL;
    if (!fit_a_frame(&rest, PyBytes_GET_SIZE(payload))) return NULL;
    Py_ssize_t count = count_of(&slots);
    OWNED *frames = PyList_New(2 * count);
    if (!frames) return NULL;

    const uint64_t *consumer_ids = consumers.buf;
    size_t payload_size = (size_t)PyBytes_GET_SIZE(payload);
    for (Py_ssize_t at = 0; at < count; at++) {
        Py_ssize_t cell = cell_of(&slots, at, &consumers);
        if (cell < 0) return NULL;
        PyObject *head = message_head(consumer_ids[cell], &rest, payload_size);
        if (!head) return NULL;
        PyList_SET_ITEM(frames, 2 * at, head);
        PyList_SET_ITEM(frames, 2 * at + 1, Py_NewRef(payload));
    }
    return Py_NewRef(frames);
}

PyObject *message_heads(PyObject *module, PyObject *arguments) {
    BUFFER slots = {0}, consumers = {0}, rest = {0};
    Py_ssize_t payload_size;
    if (!PyArg_ParseTuple(arguments, "y*y*y*n", &slots, &consumers, &rest, &payload_size))
        return NULL;
    if (!fit_a_frame(&rest, payload_size)) return NULL;
    Py_ssize_t count = count_of(&slots);
    if (count > PY_SSIZE_T_MAX / HEAD_BYTES_MAX) return PyErr_NoMemory();
    PyObject *heads = PyBytes_FromStringAndSize(NULL, count * HEAD_BYTES_MAX);
    if (!heads) return NULL;

    const uint64_t *consumer_ids = consumers.buf;
    uint8_t *to = bytes_of(heads);
    for (Py_ssize_t at = 0; at < count; at++) {
        Py_ssize_t cell = cell_of(&slots, at, &consumers);
        if (cell < 0) {
            Py_DECREF(heads);
            return NULL;
        }
        to = put_head(to, consumer_ids[cell], &rest, (size_t)payload_size);
    }
    _PyBytes_Resize(&heads, to - bytes_of(heads)); /* NULL with an exception if it fails */
    return heads;
}

PyObject *update_slots(PyObject *module, PyObject *arguments) {
    BUFFER slots = {0}, column = {0};
    long long keep, value, step;
    if (!PyArg_ParseTuple(arguments, "y*w*LLL", &slots, &column, &keep, &value, &step)) return NULL;
    int64_t *cells = column.buf, least = INT64_MAX, most = INT64_MIN;
    for (Py_ssize_t at = 0; at < count_of(&slots); at++) {
        Py_ssize_t cell = cell_of(&slots, at, &column);
        if (cell < 0) return NULL;
        /* Without a sign, so that an overflow has a result. */
        uint64_t sum = keep ? (uint64_t)cells[cell] : 0;
        sum += (uint64_t)value + (uint64_t)step * (uint64_t)at;
        cells[cell] = (int64_t)sum;
        if (cells[cell] < least) least = cells[cell];
        if (cells[cell] > most) most = cells[cell];
    }
    return Py_BuildValue("LL", (long long)least, (long long)most);
}
