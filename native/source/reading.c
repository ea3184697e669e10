/* Digests of entries that were read, checked without holding the interpreter. */
#include "parts.h"

static int is_entry(PyObject *body, uint64_t ledger_id, uint64_t entry_id) {
    const uint8_t *data = (const uint8_t *)PyBytes_AS_STRING(body);
    uint32_t digest = vela_crc32c_of(0, data, METADATA_BYTES);
    digest = vela_crc32c_of(digest, data + HEAD_BYTES, (size_t)PyBytes_GET_SIZE(body) - HEAD_BYTES);
    return vela_number(data, 8) == ledger_id && vela_number(data + 8, 8) == entry_id
        && vela_number(data + METADATA_BYTES, 4) == digest;
}

VELA(crc32c_payloads) {
    PyObject *given;
    long long ledger_id, entry_id;
    if (!PyArg_ParseTuple(arguments, "O!LL", &PyList_Type, &given, &ledger_id, &entry_id)) return NULL;
    OWNED *bodies = PyList_AsTuple(given), *payloads = PyList_New(0); /* another thread may change the list */
    Py_ssize_t at = 0, count = bodies && payloads ? PyTuple_GET_SIZE(bodies) : -1;
    for (; at < count; at++) { /* up to the first that is too short */
        Py_ssize_t size = PyBytes_Size(PyTuple_GET_ITEM(bodies, at)); /* -1: TypeError */
        OWNED *payload = size < HEAD_BYTES ? NULL : PyBytes_FromStringAndSize(NULL, size - HEAD_BYTES);
        if (size >= 0 && size < HEAD_BYTES) break;
        if (!payload || PyList_Append(payloads, payload) < 0) return NULL;
    }
    count = at, at = 0;
    Py_BEGIN_ALLOW_THREADS
    for (; at < count; at++) {
        PyObject *body = PyTuple_GET_ITEM(bodies, at), *payload = PyList_GET_ITEM(payloads, at);
        if (!is_entry(body, (uint64_t)ledger_id, (uint64_t)entry_id + (uint64_t)at)) break;
        memcpy(PyBytes_AS_STRING(payload), PyBytes_AS_STRING(body) + HEAD_BYTES, (size_t)PyBytes_GET_SIZE(payload));
    }
    Py_END_ALLOW_THREADS
    return count < 0 || PyList_SetSlice(payloads, at, count, NULL) < 0 ? NULL : Py_NewRef(payloads);
}
