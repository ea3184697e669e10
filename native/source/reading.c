/* Digests of entries that were read, checked without holding the interpreter. */
#include "parts.h"
#include <string.h>

static uint64_t big_endian(const uint8_t *data, int bytes)
{
    uint64_t value = 0;
    for (int at = 0; at < bytes; at++)
        value = value << 8 | data[at];
    return value;
}

static int is_entry(const uint8_t *body, size_t size, uint64_t ledger_id, uint64_t entry_id)
{
    uint32_t digest = vela_crc32c(vela_crc32c(0, body, METADATA_BYTES), body + HEAD_BYTES, size - HEAD_BYTES);
    return big_endian(body, 8) == ledger_id && big_endian(body + 8, 8) == entry_id
        && big_endian(body + METADATA_BYTES, 4) == digest;
}

/* Bytes objects for the payloads of those that are long enough, up to the first that is not. */
static PyObject *room_for_payloads(PyObject *bodies)
{
    PyObject *payloads = PyList_New(0), *payload;
    for (Py_ssize_t at = 0; payloads && at < PyTuple_GET_SIZE(bodies); at++) {
        Py_ssize_t size = PyBytes_Size(PyTuple_GET_ITEM(bodies, at)); /* -1: TypeError */
        if (size >= 0 && size < HEAD_BYTES)
            break;
        payload = size < 0 ? NULL : PyBytes_FromStringAndSize(NULL, size - HEAD_BYTES);
        if (!payload || PyList_Append(payloads, payload) < 0)
            Py_CLEAR(payloads);
        Py_XDECREF(payload);
    }
    return payloads;
}

static PyObject *crc32c_payloads(PyObject *module, PyObject *arguments)
{
    PyObject *given;
    long long ledger_id, entry_id;
    if (!PyArg_ParseTuple(arguments, "O!LL", &PyList_Type, &given, &ledger_id, &entry_id))
        return NULL;
    PyObject *bodies = PyList_AsTuple(given); /* another thread may change the list */
    PyObject *payloads = bodies ? room_for_payloads(bodies) : NULL;
    if (payloads) {
        Py_ssize_t at = 0, count = PyList_GET_SIZE(payloads);
        Py_BEGIN_ALLOW_THREADS
        for (; at < count; at++) {
            PyObject *body = PyTuple_GET_ITEM(bodies, at);
            const uint8_t *data = (const uint8_t *)PyBytes_AS_STRING(body);
            size_t size = (size_t)PyBytes_GET_SIZE(body);
            if (!is_entry(data, size, (uint64_t)ledger_id, (uint64_t)entry_id + (uint64_t)at))
                break;
            memcpy(PyBytes_AS_STRING(PyList_GET_ITEM(payloads, at)), data + HEAD_BYTES, size - HEAD_BYTES);
        }
        Py_END_ALLOW_THREADS
        if (PyList_SetSlice(payloads, at, count, NULL) < 0)
            Py_CLEAR(payloads);
    }
    Py_XDECREF(bodies);
    return payloads;
}

PyMethodDef vela_reading_functions[] = {
    {"crc32c_payloads", crc32c_payloads, METH_VARARGS, NULL}, {NULL, NULL, 0, NULL}};
