/* Heads of entries that are to be written, with their digests. */
#include "parts.h"

static PyObject *crc32c_bodies(PyObject *module, PyObject *arguments)
{
    PyObject *payloads, *bodies;
    long long ledger_id, entry_id, confirmed, length;
    if (!PyArg_ParseTuple(arguments, "LLLLO!", &ledger_id, &entry_id, &confirmed, &length,
                          &PyList_Type, &payloads))
        return NULL;
    bodies = PyList_New(0);
    for (Py_ssize_t at = 0; bodies && at < PyList_GET_SIZE(payloads); at++) {
        PyObject *payload = PyList_GET_ITEM(payloads, at), *body = NULL;
        Py_ssize_t size = PyBytes_Size(payload); /* -1: TypeError */
        uint64_t fields[4] = {(uint64_t)ledger_id, (uint64_t)entry_id + (uint64_t)at,
                              (uint64_t)confirmed, (uint64_t)(length += size)};
        uint8_t head[HEAD_BYTES];
        for (int byte = 0; byte < METADATA_BYTES; byte++)
            head[byte] = (uint8_t)(fields[byte / 8] >> (56 - byte % 8 * 8));
        if (size >= 0) {
            const uint8_t *data = (const uint8_t *)PyBytes_AS_STRING(payload);
            uint32_t digest = vela_crc32c(vela_crc32c(0, head, METADATA_BYTES), data, (size_t)size);
            for (int byte = METADATA_BYTES; byte < HEAD_BYTES; byte++)
                head[byte] = (uint8_t)(digest >> (HEAD_BYTES - 1 - byte) * 8);
            body = Py_BuildValue("(y#N)", head, (Py_ssize_t)HEAD_BYTES, Py_NewRef(payload));
        }
        if (!body || PyList_Append(bodies, body) < 0)
            Py_CLEAR(bodies);
        Py_XDECREF(body);
    }
    return bodies;
}

PyMethodDef vela_writing_functions[] = {
    {"crc32c_bodies", crc32c_bodies, METH_VARARGS, NULL}, {NULL, NULL, 0, NULL}};
