/* Entries that are to be written: heads with their digests, and records of the journal. */
#include "parts.h"

enum { STRETCH = 12288, LARGE = 65536 };

VELA(crc32c_bodies) {
    PyObject *payloads;
    long long ledger_id, entry_id, confirmed, length;
    int are_intact;
    if (!PyArg_ParseTuple(arguments, "LLLLO!p", &ledger_id, &entry_id, &confirmed, &length, &PyList_Type, &payloads,
                          &are_intact)) return NULL;
    OWNED *bodies = PyList_New(0);
    Py_ssize_t size_before = -1;
    uint64_t total = (uint64_t)length;
    uint32_t over = 0;
    for (Py_ssize_t at = 0; bodies && at < PyList_GET_SIZE(payloads); at++) {
        PyObject *payload = PyList_GET_ITEM(payloads, at);
        Py_ssize_t size = PyBytes_Size(payload); /* -1: TypeError */
        OWNED *body = size < 0 ? NULL : PyTuple_New(2);
        if (!body) return NULL;
        const uint8_t *data = (const uint8_t *)PyBytes_AS_STRING(payload);
        uint64_t numbers[] = {(uint64_t)ledger_id, (uint64_t)entry_id + (uint64_t)at, (uint64_t)confirmed, total += (uint64_t)size};
        uint8_t head[HEAD_BYTES];
        for (int number = 0; number < 4; number++) numbers[number] = __builtin_bswap64(numbers[number]);
        memcpy(head, numbers, METADATA_BYTES);
        uint32_t digest = vela_crc32c_of(0, head, METADATA_BYTES);
        if (are_intact && size >= UNCHECKED && vela_number(data, 2) == MAGIC) {
            if (size != size_before) over = vela_crc32c_over((uint64_t)(size_before = size) - UNCHECKED);
            digest = vela_crc32c_product(over, vela_crc32c_of(digest, data, UNCHECKED)) ^ (uint32_t)vela_number(data + 2, 4);
        } else
            digest = vela_crc32c_of(digest, data, (size_t)size);
        vela_put(head + METADATA_BYTES, digest, 4);
        PyTuple_SET_ITEM(body, 0, PyBytes_FromStringAndSize((char *)head, HEAD_BYTES));
        PyTuple_SET_ITEM(body, 1, Py_NewRef(payload));
        if (PyBytes_CheckExact(payload)) PyObject_GC_UnTrack(body); /* they lead to nothing */
        if (!PyTuple_GET_ITEM(body, 0) || PyList_Append(bodies, body) < 0) return NULL;
    }
    return Py_XNewRef(bodies);
}

/* The size of an entry that is to be written; -1: it is no pair of bytes. */
static Py_ssize_t entry_size(PyObject *body) {
    if (!PyTuple_Check(body) || PyTuple_GET_SIZE(body) != 2 || !PyBytes_Check(PyTuple_GET_ITEM(body, 0))
        || !PyBytes_Check(PyTuple_GET_ITEM(body, 1))) return -1;
    return Py_SIZE(PyTuple_GET_ITEM(body, 0)) + Py_SIZE(PyTuple_GET_ITEM(body, 1));
}

VELA(put_records) {
    PyObject *given;
    BUFFER into = {0};
    Py_ssize_t at, end, size, number = 0;
    unsigned int checksum;
    if (!PyArg_ParseTuple(arguments, "O!w*nI", &PyList_Type, &given, &into, &at, &checksum)) return NULL;
    OWNED *bodies = PyList_AsTuple(given); /* another thread may change the list */
    for (end = at; bodies && end >= 0 && end <= into.len && number < PyTuple_GET_SIZE(bodies); number++) {
        if ((size = entry_size(PyTuple_GET_ITEM(bodies, number))) < 0) break;
        end += size ? 4 + size : 0;
    }
    if (!bodies || end < 0 || end > into.len || number < PyTuple_GET_SIZE(bodies))
        return bodies ? PyErr_Format(PyExc_ValueError, "records need room, and are made of pairs of bytes") : NULL;
    uint8_t *to = (uint8_t *)into.buf + at, *summed = to;
    PyThreadState *others = end - at < LARGE ? NULL : PyEval_SaveThread();
    for (Py_ssize_t part = 0; part < 2 * number; part++) {
        PyObject *body = PyTuple_GET_ITEM(bodies, part / 2), *bytes = PyTuple_GET_ITEM(body, part % 2);
        if (part % 2 == 0 && (size = entry_size(body))) to = vela_put(to, (uint64_t)size, 4);
        for (Py_ssize_t from = 0; from < Py_SIZE(bytes); from += size) { /* stretches are summed in the cache */
            size = Py_SIZE(bytes) - from < STRETCH ? Py_SIZE(bytes) - from : STRETCH;
            to = (uint8_t *)memcpy(to, PyBytes_AS_STRING(bytes) + from, (size_t)size) + size;
            if (to - summed >= STRETCH) checksum = vela_crc32c_of(checksum, summed, (size_t)(to - summed)), summed = to;
        }
    }
    checksum = vela_crc32c_of(checksum, summed, (size_t)(to - summed));
    if (others) PyEval_RestoreThread(others);
    return Py_BuildValue("nI", end, checksum);
}
