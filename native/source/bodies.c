/* See bodies.h. */
#include "bodies.h"

static inline bool is_pair_of_bytes(PyObject *body) {
    if (!PyTuple_Check(body)) return false;
    if (PyTuple_GET_SIZE(body) != 2) return false;
    return PyBytes_Check(head_of(body)) && PyBytes_Check(payload_of(body));
}

Py_ssize_t records_end(PyObject *bodies, Py_ssize_t at, Py_ssize_t room, bool are_empty_left_out) {
    if (at < 0 || at > room) return NO_ROOM;
    Py_ssize_t end = at;
    for (Py_ssize_t number = 0; number < PyTuple_GET_SIZE(bodies); number++) {
        PyObject *body = PyTuple_GET_ITEM(bodies, number);
        if (!is_pair_of_bytes(body)) return NOT_A_PAIR;
        Py_ssize_t size = body_size(body);
        if (size == 0 && are_empty_left_out) continue;
        if (size > INT32_MAX) return NO_ROOM; /* its size has no place in the record */
        end += RECORD_SIZE_BYTES + size;
        if (end > room) return NO_ROOM;
    }
    return end;
}
