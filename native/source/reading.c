/* Digests of entries that were read. Twin: ../pure/reading.py.
 *
 * The entries may be damaged: they come from a disk or from another bookie. What always holds: only
 * an entry that is at least a head is looked into, and its payload has room for all that follows.
 */
#include "big_endian.h"
#include "checksums.h"
#include "entry_heads.h"
#include "extension.h"

/* Appends room for the payload of each body, up to the first that is shorter than a head. Returns
 * how many there are, or -1 with an exception. */
static Py_ssize_t add_room(PyObject *bodies, PyObject *payloads) {
    Py_ssize_t count = PyTuple_GET_SIZE(bodies);
    for (Py_ssize_t at = 0; at < count; at++) {
        Py_ssize_t size = PyBytes_Size(PyTuple_GET_ITEM(bodies, at));
        if (size < 0) return -1; /* not bytes: TypeError */
        if (size < ENTRY_HEAD_BYTES) return at;
        OWNED *payload = PyBytes_FromStringAndSize(NULL, size - ENTRY_HEAD_BYTES);
        if (!payload || PyList_Append(payloads, payload) < 0) return -1;
    }
    return count;
}

/* Whether it is the entry that belongs there, and what its writer stored. */
static inline bool is_intact(const uint8_t *body, size_t payload_size, uint64_t ledger_id,
                             uint64_t entry_id) {
    if (read_u64(body + LEDGER_ID_AT) != ledger_id) return false;
    if (read_u64(body + ENTRY_ID_AT) != entry_id) return false;
    uint32_t digest = crc32c_of(digest_of_numbers(body), body + ENTRY_HEAD_BYTES, payload_size);
    return read_u32(body + DIGEST_AT) == digest;
}

/* Fills the payloads up to the first that is not intact, and returns how many these are. Runs
 * without the interpreter: it touches no count of references, and nobody else has the payloads. */
static Py_ssize_t copy_intact(PyObject *bodies, PyObject *payloads, Py_ssize_t count,
                              uint64_t ledger_id, uint64_t first_entry_id) {
    for (Py_ssize_t at = 0; at < count; at++) {
        const uint8_t *body = bytes_of(PyTuple_GET_ITEM(bodies, at));
        PyObject *payload = PyList_GET_ITEM(payloads, at);
        size_t size = (size_t)PyBytes_GET_SIZE(payload);
        if (!is_intact(body, size, ledger_id, first_entry_id + (uint64_t)at)) return at;
        memcpy(bytes_of(payload), body + ENTRY_HEAD_BYTES, size);
    }
    return count;
}

PyObject *crc32c_payloads(PyObject *module, PyObject *arguments) {
    PyObject *given;
    long long ledger_id, first_entry_id;
    if (!PyArg_ParseTuple(arguments, "O!LL", &PyList_Type, &given, &ledger_id, &first_entry_id))
        return NULL;
    OWNED *bodies = PyList_AsTuple(given); /* another thread may change the list meanwhile */
    OWNED *payloads = PyList_New(0);
    if (!bodies || !payloads) return NULL;
    Py_ssize_t count = add_room(bodies, payloads), intact;
    if (count < 0) return NULL;

    Py_BEGIN_ALLOW_THREADS
    intact = copy_intact(bodies, payloads, count, (uint64_t)ledger_id, (uint64_t)first_entry_id);
    Py_END_ALLOW_THREADS
    if (PyList_SetSlice(payloads, intact, count, NULL) < 0) return NULL;
    return Py_NewRef(payloads);
}
