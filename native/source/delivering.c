/* Frames of messages that are delivered to one consumer. Twin: ../pure/delivering.py.
 *
 * What always holds: all frames have room before the first one is written, about 2 GB at most, and
 * every size in a frame fits into its field. No Python code runs while the lists are used, so
 * nobody changes them.
 */
#include "command_frames.h"
#include "extension.h"
#include "varints.h"

/* CommandMessage.message_id: a tag, a size of one byte, and the id. */
enum { MESSAGE_ID_TAG = 0x12, MESSAGE_ID_START_BYTES = 2 };

enum {
    FIXED_BYTES_MAX = 90, /* of what the contents have in common */
    /* What a frame has besides that and its payload. */
    OWN_BYTES_MAX = CONTENT_AT + MESSAGE_ID_START_BYTES + VARINT_BYTES_MAX,
};
_Static_assert(FIXED_BYTES_MAX + MESSAGE_ID_START_BYTES + VARINT_BYTES_MAX <= CONTENT_BYTES_MAX,
               "the size of a content takes one byte, and so does that of a message id");

enum { NOT_BYTES = -1, TOO_LARGE = -2 };

typedef struct {
    const char *bytes;
    Py_ssize_t size;
} Piece;

/* Encoded fields of the content. The message id is `ledger`, the entry id, `partition`. */
typedef struct {
    Piece consumer, ledger, partition, options;
} Fixed;

static inline uint8_t *put_piece(uint8_t *to, Piece piece) {
    return put_bytes(to, piece.bytes, (size_t)piece.size);
}

/* Bytes that are enough for all frames; TOO_LARGE, without an exception; or NOT_BYTES with one. */
static Py_ssize_t room_for(const Fixed *fixed, PyObject *payloads) {
    Py_ssize_t fixed_size = fixed->consumer.size + fixed->ledger.size + fixed->partition.size
        + fixed->options.size;
    if (fixed_size > FIXED_BYTES_MAX) return TOO_LARGE;
    Py_ssize_t total = 0;
    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(payloads); at++) {
        Py_ssize_t size = PyBytes_Size(PyList_GET_ITEM(payloads, at));
        if (size < 0) return NOT_BYTES;
        if (size > INT32_MAX - total) return TOO_LARGE;
        total += OWN_BYTES_MAX + fixed_size + size;
    }
    return total;
}

/* Writes a frame, and returns where the next one goes. */
static inline uint8_t *put_frame(uint8_t *frame, const Fixed *fixed, uint64_t entry_id,
                                 PyObject *payload) {
    uint8_t *content = frame + CONTENT_AT;
    uint8_t *id_start = put_piece(content, fixed->consumer);
    uint8_t *id = id_start + MESSAGE_ID_START_BYTES;
    uint8_t *to = put_varint(put_piece(id, fixed->ledger), entry_id);
    to = put_piece(to, fixed->partition);
    put_u16(id_start, (uint16_t)(MESSAGE_ID_TAG << 8 | (to - id)));
    to = put_piece(to, fixed->options);

    size_t payload_size = (size_t)PyBytes_GET_SIZE(payload);
    put_command_start(frame, MESSAGE, (size_t)(to - content), payload_size);
    return put_bytes(to, bytes_of(payload), payload_size);
}

PyObject *message_run(PyObject *module, PyObject *arguments) {
    Fixed fixed;
    PyObject *ids, *payloads;
    if (!PyArg_ParseTuple(arguments, "y#y#y#y#O!O!", &fixed.consumer.bytes, &fixed.consumer.size,
                          &fixed.ledger.bytes, &fixed.ledger.size, &fixed.partition.bytes,
                          &fixed.partition.size, &fixed.options.bytes, &fixed.options.size,
                          &PyList_Type, &ids, &PyList_Type, &payloads))
        return NULL;
    bool are_as_many = PyList_GET_SIZE(ids) == PyList_GET_SIZE(payloads);
    Py_ssize_t room = are_as_many ? room_for(&fixed, payloads) : TOO_LARGE;
    if (room == NOT_BYTES) return NULL;
    if (room == TOO_LARGE)
        return PyErr_Format(PyExc_ValueError,
                            "heads or payloads too large, or not as many as entry ids");

    OWNED *frames = PyBytes_FromStringAndSize(NULL, room);
    if (!frames) return NULL;
    uint8_t *to = bytes_of(frames);
    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(payloads); at++) {
        uint64_t entry_id = PyLong_AsUnsignedLongLong(PyList_GET_ITEM(ids, at));
        if (entry_id == UINT64_MAX && PyErr_Occurred()) return NULL; /* no int, or no 64 bits */
        to = put_frame(to, &fixed, entry_id, PyList_GET_ITEM(payloads, at));
    }
    if (_PyBytes_Resize(&frames, to - bytes_of(frames)) < 0) return NULL;
    return Py_NewRef(frames);
}
