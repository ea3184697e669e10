/* The frames of one message for a strip of consumers, sent from the block of their heads and the
 * payload that they share. Twin: ../pure/strips.py.
 *
 * What always holds: a head is used only if all of it is inside of the block, and no more parts are
 * given to the kernel than it takes at once. Both buffers are bytes, which nobody changes while the
 * interpreter is given up.
 */
#include <sys/socket.h>
#include <sys/uio.h>

#include "command_frames.h"
#include "extension.h"

/* The buffers that the kernel takes in one call (IOV_MAX of Linux), and those of one frame. */
enum { PARTS_MAX = 1024, FRAME_PARTS = 2 };

typedef struct {
    const uint8_t *heads;
    Py_ssize_t heads_size;
    const uint8_t *payload;
    Py_ssize_t payload_size;
    Py_ssize_t at;     /* where the head of the first frame begins */
    Py_ssize_t offset; /* bytes of that frame that have been sent */
} Strip;

static inline bool is_place(const Strip *strip) {
    if (strip->at >= 0 && strip->at <= strip->heads_size) {
        if (strip->offset >= 0 && strip->payload_size >= 0) return true;
    }
    PyErr_Format(PyExc_ValueError, "no place in a strip");
    return false;
}

/* The size of the head of the first frame, or -1 with an exception. */
static inline Py_ssize_t head_size(const Strip *strip) {
    Py_ssize_t room = strip->heads_size - strip->at;
    if (room >= COMMAND_AT) {
        const uint8_t *command_size = strip->heads + strip->at + COMMAND_SIZE_AT;
        Py_ssize_t size = COMMAND_AT + (Py_ssize_t)read_u32(command_size);
        if (size <= room) return size;
    }
    PyErr_Format(PyExc_ValueError, "a strip has no whole head there");
    return -1;
}

/* One more part, unless it is empty: at most `left` bytes of it. Returns what is left then. */
static inline Py_ssize_t add_part(struct iovec *parts, size_t *count, const uint8_t *from,
                                  Py_ssize_t size, Py_ssize_t left) {
    if (size > left) size = left;
    if (size <= 0) return left;
    parts[*count].iov_base = (void *)(uintptr_t)from; /* the kernel only reads it */
    parts[*count].iov_len = (size_t)size;
    *count += 1;
    return left - size;
}

/* The parts of the next frames, at most `left` bytes. Returns 0, or -1 with an exception. */
static int next_parts(Strip *strip, Py_ssize_t left, struct iovec *parts, size_t *count) {
    while (strip->at < strip->heads_size && left > 0 && *count + FRAME_PARTS <= PARTS_MAX) {
        Py_ssize_t size = head_size(strip), offset = strip->offset;
        if (size < 0) return -1;
        if (offset < size)
            left = add_part(parts, count, strip->heads + strip->at + offset, size - offset, left);
        Py_ssize_t sent = offset > size ? offset - size : 0;
        if (sent < strip->payload_size)
            left = add_part(parts, count, strip->payload + sent, strip->payload_size - sent, left);
        strip->at += size;
        strip->offset = 0;
    }
    return 0;
}

PyObject *send_strip(PyObject *module, PyObject *arguments) {
    int descriptor;
    PyObject *heads, *payload;
    Py_ssize_t bytes_max;
    Strip strip;
    if (!PyArg_ParseTuple(arguments, "iSnnSn", &descriptor, &heads, &strip.at, &strip.offset,
                          &payload, &bytes_max))
        return NULL;
    strip.heads = bytes_of(heads);
    strip.heads_size = PyBytes_GET_SIZE(heads);
    strip.payload = bytes_of(payload);
    strip.payload_size = PyBytes_GET_SIZE(payload);
    if (!is_place(&strip)) return NULL;

    struct iovec parts[PARTS_MAX];
    size_t count = 0;
    if (next_parts(&strip, bytes_max, parts, &count) < 0) return NULL;
    if (!count) return PyLong_FromLong(0);
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = count};
    ssize_t taken;
    Py_BEGIN_ALLOW_THREADS
    taken = sendmsg(descriptor, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    Py_END_ALLOW_THREADS
    if (taken < 0) return PyErr_SetFromErrno(PyExc_OSError);
    return PyLong_FromSsize_t(taken);
}

PyObject *strip_place(PyObject *module, PyObject *arguments) {
    PyObject *heads;
    Py_ssize_t count;
    Strip strip = {0};
    if (!PyArg_ParseTuple(arguments, "Snnnn", &heads, &strip.at, &strip.offset, &strip.payload_size,
                          &count))
        return NULL;
    strip.heads = bytes_of(heads);
    strip.heads_size = PyBytes_GET_SIZE(heads);
    if (!is_place(&strip)) return NULL;
    if (count < 0 || count > PY_SSIZE_T_MAX - strip.offset)
        return PyErr_Format(PyExc_ValueError, "no number of bytes");
    strip.offset += count;
    while (strip.at < strip.heads_size) {
        Py_ssize_t size = head_size(&strip);
        if (size < 0) return NULL;
        if (strip.offset < size || strip.offset - size < strip.payload_size) break;
        strip.offset -= size + strip.payload_size;
        strip.at += size;
    }
    if (strip.at == strip.heads_size && strip.offset)
        return PyErr_Format(PyExc_ValueError, "a strip has not so many bytes");
    return Py_BuildValue("nn", strip.at, strip.offset);
}
