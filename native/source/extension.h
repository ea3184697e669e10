/* What each part of native._extension begins with: Python's interface, objects that are released
 * by the end of a block, and the list of the functions that Python calls.
 *
 * native/pure describes each function and is the reference for its results and errors. The rules of
 * this room, and which part owns what: ../DESIGN.md.
 */
#ifndef VELA_EXTENSION_H
#define VELA_EXTENSION_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* A view of a buffer, which is released when its block ends, also by a return in the middle.
 * It must begin as {0}: to release that does nothing. */
#define BUFFER __attribute__((cleanup(PyBuffer_Release))) Py_buffer

/* A reference that is given up when its block ends. It must have a value from its declaration on;
 * that may be NULL. A function that answers with such an object returns a new reference to it. */
#define OWNED __attribute__((cleanup(release))) PyObject

static inline void release(PyObject **object) { Py_XDECREF(*object); }

static inline uint8_t *bytes_of(PyObject *bytes) { return (uint8_t *)PyBytes_AS_STRING(bytes); }

/* Copies bytes, and returns where the next ones go. The caller has made sure of the room. */
static inline uint8_t *put_bytes(uint8_t *to, const void *from, size_t size) {
    memcpy(to, from, size);
    return to + size;
}

/* Each is in the file of its part. */
PyObject *batch_rows(PyObject *module, PyObject *arguments);      /* batches.c */
PyObject *message_frames(PyObject *module, PyObject *arguments);  /* broadcast.c */
PyObject *message_heads(PyObject *module, PyObject *arguments);   /* broadcast.c */
PyObject *update_slots(PyObject *module, PyObject *arguments);    /* broadcast.c */
PyObject *ack_table(PyObject *module, PyObject *arguments);       /* ack_table.c */
PyObject *crc32c(PyObject *module, PyObject *arguments);          /* checksums.c */
PyObject *message_run(PyObject *module, PyObject *arguments);     /* delivering.c */
PyObject *crc32c_payloads(PyObject *module, PyObject *arguments); /* reading.c */
PyObject *log_records(PyObject *module, PyObject *arguments);     /* records.c */
PyObject *read_sends(PyObject *module, PyObject *arguments);      /* sends.c */
PyObject *send_strip(PyObject *module, PyObject *arguments);      /* strips.c */
PyObject *strip_place(PyObject *module, PyObject *arguments);     /* strips.c */
PyObject *crc32c_bodies(PyObject *module, PyObject *arguments);   /* writing.c */
PyObject *put_records(PyObject *module, PyObject *arguments);     /* writing.c */

/* Makes the type of the tables and chooses their secret. Once, before the first ack_table().
 * Returns 0, or -1 with an exception. */
int prepare_ack_tables(void);

#endif
