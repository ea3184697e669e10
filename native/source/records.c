/* Records of entry logs, and their rows in the index. Reference: ../pure/records.py. */
#include "parts.h"

/* A key or a value. The object is written to again if nobody has kept it. */
static inline __attribute__((always_inline)) int fill(PyObject **object, const uint64_t *numbers, Py_ssize_t size)
{
    if (!*object || Py_REFCNT(*object) != 1) {
        Py_XSETREF(*object, PyBytes_FromStringAndSize((const char *)numbers, size));
        return *object != NULL;
    }
    memcpy(PyBytes_AS_STRING(*object), numbers, (size_t)size);
    _Py_COMP_DIAG_PUSH _Py_COMP_DIAG_IGNORE_DEPR_DECLS
    ((PyBytesObject *)*object)->ob_shash = -1;
    _Py_COMP_DIAG_POP
    return 1;
}

VELA(log_records) {
    PyObject *rows, *bodies, *key = NULL, *value = NULL;
    long long ledger_id, first, location;
    int left;
    if (!PyArg_ParseTuple(arguments, "OLLLO!i", &rows, &ledger_id, &first, &location, &PyList_Type, &bodies, &left))
        return NULL;
    Py_ssize_t count = PyList_GET_SIZE(bodies);
    if (left < 0 || first > LLONG_MAX - count + !!count || location < 0 || location > LLONG_MAX - left)
        return PyErr_Format(PyExc_OverflowError, "a number is too large for its field");
    PyObject *records = PyBytes_FromStringAndSize(NULL, left);
    uint8_t *to = records ? (uint8_t *)PyBytes_AS_STRING(records) : NULL, *record = to;
    for (Py_ssize_t at = 0; records && at < count; at++) {
        PyObject *body = PyList_GET_ITEM(bodies, at), *parts[] = {Py_None, Py_None};
        if (PyTuple_Check(body) && PyTuple_GET_SIZE(body) == 2)
            parts[0] = PyTuple_GET_ITEM(body, 0), parts[1] = PyTuple_GET_ITEM(body, 1);
        Py_ssize_t head = PyBytes_Size(parts[0]), payload = head < 0 ? -1 : PyBytes_Size(parts[1]); /* -1: TypeError */
        if (payload < 0 || left < 4 || head > left - 4 || payload > left - 4 - head) {
            Py_CLEAR(records);
            return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_ValueError, "the bodies have more bytes than said");
        }
        uint32_t length = __builtin_bswap32((uint32_t)(head + payload));
        memcpy(to, &length, 4);
        memcpy(to + 4, PyBytes_AS_STRING(parts[0]), (size_t)head);
        memcpy(to + 4 + head, PyBytes_AS_STRING(parts[1]), (size_t)payload);
        to += 4 + head + payload, left -= (int)(4 + head + payload);
    }
    if (records && left)
        return Py_DECREF(records), PyErr_Format(PyExc_ValueError, "the bodies have fewer bytes than said");
    for (uint64_t entry_id = (uint64_t)first; records && record < to; record += 4 + (long long)vela_number(record, 4), entry_id++) {
        uint64_t row[] = {__builtin_bswap64((uint64_t)ledger_id), __builtin_bswap64(entry_id),
                          __builtin_bswap64((uint64_t)location)};
        location += 4 + (long long)vela_number(record, 4);
        if (!fill(&key, row, 16) || !fill(&value, row + 2, 8) || PyObject_SetItem(rows, key, value) < 0) {
            Py_CLEAR(records);
            break;
        }
    }
    Py_XDECREF(key), Py_XDECREF(value);
    return records;
}
