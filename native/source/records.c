/* Records of entry logs and their rows in the index. Twin: ../pure/records.py.
 *
 * What always holds: the records are exactly as long as was said, before the first row is set; and
 * no number in a row has overflowed.
 */
#include "big_endian.h"
#include "bodies.h"
#include "extension.h"

/* The key of a row: ledger and entry. Its value: where the entry is in the log. */
enum { KEY_BYTES = 16, KEY_ENTRY_AT = 8, VALUE_BYTES = 8 };

/* Copies the records of all bodies, for which there is room. */
static void copy_records(uint8_t *to, PyObject *bodies) {
    for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(bodies); at++) {
        PyObject *body = PyTuple_GET_ITEM(bodies, at);
        PyObject *head = head_of(body), *payload = payload_of(body);
        to = put_u32(to, (uint32_t)body_size(body));
        to = put_bytes(to, bytes_of(head), (size_t)PyBytes_GET_SIZE(head));
        to = put_bytes(to, bytes_of(payload), (size_t)PyBytes_GET_SIZE(payload));
    }
}

/* An object with `size` bytes that may be written. The one before is written to again if nobody
 * kept it: rows are mostly copied. False, with an exception: there is no memory. */
static inline bool renew(PyObject **object, Py_ssize_t size) {
    if (!*object || Py_REFCNT(*object) != 1)
        Py_XSETREF(*object, PyBytes_FromStringAndSize(NULL, size));
    if (!*object) return false;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations" /* ob_shash will not be removed soon */
    ((PyBytesObject *)*object)->ob_shash = -1; /* the hash of the new content is not yet known */
#pragma GCC diagnostic pop
    return true;
}

/* Sets the row of each record. The objects of the last row are left to the caller. Returns -1 with
 * an exception. */
static int set_rows(PyObject *rows, PyObject *bodies, uint64_t ledger_id, uint64_t entry_id,
                    uint64_t location, PyObject **key, PyObject **value) {
    for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(bodies); at++, entry_id++) {
        if (!renew(key, KEY_BYTES) || !renew(value, VALUE_BYTES)) return -1;
        put_u64(bytes_of(*key), ledger_id);
        put_u64(bytes_of(*key) + KEY_ENTRY_AT, entry_id);
        put_u64(bytes_of(*value), location);
        if (PyObject_SetItem(rows, *key, *value) < 0) return -1;
        location += (uint64_t)(RECORD_SIZE_BYTES + body_size(PyTuple_GET_ITEM(bodies, at)));
    }
    return 0;
}

/* Whether the last entry id, or the end of the records, has more than 63 bits. */
static bool are_too_large(Py_ssize_t count, long long first_entry_id, long long location,
                          int size) {
    if (size < 0) return true;
    if (location < 0) return true;
    if (location > LLONG_MAX - size) return true;
    return count > 0 && first_entry_id > LLONG_MAX - (count - 1);
}

PyObject *log_records(PyObject *module, PyObject *arguments) {
    PyObject *rows, *given;
    long long ledger_id, first_entry_id, location;
    int size;
    if (!PyArg_ParseTuple(arguments, "OLLLO!i", &rows, &ledger_id, &first_entry_id, &location,
                          &PyList_Type, &given, &size))
        return NULL;
    OWNED *bodies = PyList_AsTuple(given); /* setting a row may change the list */
    if (!bodies) return NULL;
    if (are_too_large(PyTuple_GET_SIZE(bodies), first_entry_id, location, size))
        return PyErr_Format(PyExc_OverflowError, "a number is too large for its field");
    Py_ssize_t end = records_end(bodies, 0, size, false);
    if (end == NOT_A_PAIR) return PyErr_Format(PyExc_TypeError, "a body is no pair of bytes");
    if (end != size)
        return PyErr_Format(PyExc_ValueError,
                            "the records do not have the %d bytes that were said", size);

    OWNED *records = PyBytes_FromStringAndSize(NULL, size), *key = NULL, *value = NULL;
    if (!records) return NULL;
    copy_records(bytes_of(records), bodies);
    if (set_rows(rows, bodies, (uint64_t)ledger_id, (uint64_t)first_entry_id, (uint64_t)location,
                 &key, &value) < 0)
        return NULL;
    return Py_NewRef(records);
}
