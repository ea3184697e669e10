/* Entries that are to be written: their heads and digests, and their records in the journal. Twin:
 * ../pure/writing.py.
 *
 * What always holds: nothing is copied before all of it is known to have room, and objects that are
 * used while other threads or finalizers may run are held.
 */
#include "big_endian.h"
#include "bodies.h"
#include "checksums.h"
#include "entry_heads.h"
#include "extension.h"
#include "payload_heads.h"

enum {
    STRETCH_BYTES = 12 * 1024, /* is still in the nearest cache when it is summed */
    LARGE_BYTES = 64 * 1024,   /* takes long enough to let other threads run */
};

/* The digest of a payload derived from its own checksum, which was found to fit. Runs mostly have
 * payloads of one size, so the factor of the last size is kept. */
typedef struct {
    Py_ssize_t size; /* -1: none yet */
    uint32_t factor;
} Derivation;

static inline uint32_t derived_digest(Derivation *last, uint32_t digest, const uint8_t *payload,
                                      Py_ssize_t size) {
    if (size != last->size) {
        last->size = size;
        last->factor = crc32c_factor((uint64_t)size - CHECKED_FROM);
    }
    digest = crc32c_of(digest, payload, CHECKED_FROM);
    return crc32c_joined(digest, read_u32(payload + PAYLOAD_CHECKSUM_AT), last->factor);
}

/* What the head of an entry says. */
typedef struct {
    uint64_t ledger_id, entry_id, last_confirmed, length;
} Numbers;

static inline void put_numbers(uint8_t *head, const Numbers *numbers) {
    put_u64(head + LEDGER_ID_AT, numbers->ledger_id);
    put_u64(head + ENTRY_ID_AT, numbers->entry_id);
    put_u64(head + LAST_CONFIRMED_AT, numbers->last_confirmed);
    put_u64(head + LENGTH_AT, numbers->length);
}

/* Appends (head, payload) and returns the head, which is to be filled. NULL with an exception. */
static inline uint8_t *append_body(PyObject *bodies, PyObject *payload) {
    OWNED *head = PyBytes_FromStringAndSize(NULL, ENTRY_HEAD_BYTES);
    if (!head) return NULL;
    OWNED *body = PyTuple_Pack(2, head, payload);
    if (!body || PyList_Append(bodies, body) < 0) return NULL;
    /* A pair of bytes leads to nothing, and the collector need not look at it. */
    if (PyBytes_CheckExact(payload)) PyObject_GC_UnTrack(body);
    return bytes_of(head);
}

PyObject *crc32c_bodies(PyObject *module, PyObject *arguments) {
    PyObject *payloads;
    long long ledger_id, first_entry_id, last_confirmed, length;
    int are_intact;
    if (!PyArg_ParseTuple(arguments, "LLLLO!p", &ledger_id, &first_entry_id, &last_confirmed,
                          &length, &PyList_Type, &payloads, &are_intact))
        return NULL;
    OWNED *bodies = PyList_New(0);
    if (!bodies) return NULL;

    Derivation last = {.size = -1};
    Numbers numbers = {(uint64_t)ledger_id, (uint64_t)first_entry_id, (uint64_t)last_confirmed,
                       (uint64_t)length};
    /* The size of the list is asked for each time: a finalizer may run, and change the list. */
    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(payloads); at++, numbers.entry_id++) {
        OWNED *payload = Py_NewRef(PyList_GET_ITEM(payloads, at));
        Py_ssize_t size = PyBytes_Size(payload);
        if (size < 0) return NULL; /* not bytes: TypeError */
        uint8_t *head = append_body(bodies, payload);
        if (!head) return NULL;

        numbers.length += (uint64_t)size;
        put_numbers(head, &numbers);
        const uint8_t *data = bytes_of(payload);
        uint32_t digest = digest_of_numbers(head);
        if (are_intact && has_checksum(data, (size_t)size))
            digest = derived_digest(&last, digest, data, size);
        else
            digest = crc32c_of(digest, data, (size_t)size);
        put_u32(head + DIGEST_AT, digest);
    }
    return Py_NewRef(bodies);
}

/* Records on their way into the journal. */
typedef struct {
    uint8_t *to;
    const uint8_t *summed_to; /* what comes before this is in the checksum */
    uint32_t checksum;
} Copy;

static inline void sum(Copy *copy) {
    size_t size = (size_t)(copy->to - copy->summed_to);
    copy->checksum = crc32c_of(copy->checksum, copy->summed_to, size);
    copy->summed_to = copy->to;
}

/* Copies in stretches, and sums each of them when it is full. */
static inline void copy_bytes(Copy *copy, PyObject *bytes) {
    const uint8_t *from = bytes_of(bytes);
    Py_ssize_t left = PyBytes_GET_SIZE(bytes);
    while (left > 0) {
        Py_ssize_t size = left < STRETCH_BYTES ? left : STRETCH_BYTES;
        copy->to = put_bytes(copy->to, from, (size_t)size);
        from += size;
        left -= size;
        if (copy->to - copy->summed_to >= STRETCH_BYTES) sum(copy);
    }
}

/* Copies the records of the bodies that are not empty, for which there is room. May run without the
 * interpreter: it touches no count of references. */
static void copy_records(Copy *copy, PyObject *bodies) {
    for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(bodies); at++) {
        PyObject *body = PyTuple_GET_ITEM(bodies, at);
        Py_ssize_t size = body_size(body);
        if (size == 0) continue; /* the journal has no empty records */
        copy->to = put_u32(copy->to, (uint32_t)size);
        copy_bytes(copy, head_of(body));
        copy_bytes(copy, payload_of(body));
    }
    sum(copy);
}

PyObject *put_records(PyObject *module, PyObject *arguments) {
    PyObject *given;
    BUFFER into = {0};
    Py_ssize_t at;
    unsigned int checksum;
    if (!PyArg_ParseTuple(arguments, "O!w*nI", &PyList_Type, &given, &into, &at, &checksum))
        return NULL;
    OWNED *bodies = PyList_AsTuple(given); /* another thread may change the list meanwhile */
    if (!bodies) return NULL;
    Py_ssize_t end = records_end(bodies, at, into.len, true);
    if (end < 0)
        return PyErr_Format(PyExc_ValueError,
                            "records need room, and are made of pairs of bytes");

    uint8_t *begin = (uint8_t *)into.buf + at;
    Copy copy = {begin, begin, checksum};
    PyThreadState *others = end - at < LARGE_BYTES ? NULL : PyEval_SaveThread();
    copy_records(&copy, bodies);
    if (others) PyEval_RestoreThread(others);
    return Py_BuildValue("nI", end, copy.checksum);
}
