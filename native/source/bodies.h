/* Entries that are to be written: each is a body, which is a pair (head, payload) of bytes. A
 * record is the size of a body (4 bytes), its head and its payload.
 *
 * Bodies are checked once, by records_end. They are in a tuple that only the caller has, so that
 * they stay what they were, and the inline functions check nothing again.
 */
#ifndef VELA_BODIES_H
#define VELA_BODIES_H

#include "extension.h"

enum { RECORD_SIZE_BYTES = 4, NOT_A_PAIR = -1, NO_ROOM = -2 };

/* Where the records end that begin at `at`, at most `room`; or NOT_A_PAIR or NO_ROOM, without an
 * exception. A body of 2 GB has no room, either: BookKeeper reads its size as an int32. */
Py_ssize_t records_end(PyObject *bodies, Py_ssize_t at, Py_ssize_t room, bool are_empty_left_out);

static inline PyObject *head_of(PyObject *body) { return PyTuple_GET_ITEM(body, 0); }

static inline PyObject *payload_of(PyObject *body) { return PyTuple_GET_ITEM(body, 1); }

static inline Py_ssize_t body_size(PyObject *body) {
    return PyBytes_GET_SIZE(head_of(body)) + PyBytes_GET_SIZE(payload_of(body));
}

#endif
