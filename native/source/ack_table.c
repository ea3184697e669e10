/* The numbers of the consumers of a connection by their ids, and a run of ACKs that looks into
 * them. Twin: AckTable of ../pure/broadcast.py.
 *
 * A table with open addressing: each id is at its place or at the next free one. Ids are chosen by
 * strangers, so places depend on a secret. What always holds: the size is a power of two, at most
 * half of the places are taken (so that every search ends), and the memory follows the number of
 * consumers, whatever their ids are. Nothing outside of the given data is read.
 */
#include <sys/random.h>

#include "command_frames.h"
#include "extension.h"
#include "varints.h"

typedef struct {
    uint64_t id;
    int32_t number;
    int32_t is_taken;
} Place;

typedef struct {
    PyObject_HEAD
    Place *places;
    size_t size, count;
} AckTable;

/* A table grows when more than 1/2 of it would be taken, and shrinks when less than 1/8 is. */
enum { PLACES_MIN = 8, GROWN_FROM = 2, SHRUNK_FROM = 8 };

/* The content of an ACK: a tag, the id of the consumer, and the tail. */
enum { CONSUMER_ID_TAG = 0x08, ID_AT = CONTENT_AT + 1, TAIL_BYTES_MAX = 100 };
_Static_assert(1 + VARINT_BYTES_MAX + TAIL_BYTES_MAX <= CONTENT_BYTES_MAX,
               "the size of a content takes one byte");

/* Of a varint: its tenth byte has one bit of the number left. */
enum { LAST_SHIFT = (VARINT_BYTES_MAX - 1) * VARINT_PART_BITS };

/* Numbers that are found are kept as bytes, with room for more than there are. */
enum { NUMBER_BYTES = sizeof(int32_t), FOUND_FIRST = 64 * NUMBER_BYTES, FOUND_GROWTH = 4 };

/* Of the process: the first is added to an id without a carry, the second is an odd factor. */
static uint64_t secret_mask, secret_factor;

static inline size_t first_place(const AckTable *table, uint64_t id) {
    uint64_t mixed = (id ^ secret_mask) * secret_factor;
    mixed = (mixed ^ mixed >> 32) * secret_factor;
    return mixed >> 32 & (table->size - 1);
}

static inline size_t place_after(const AckTable *table, size_t at) {
    return (at + 1) & (table->size - 1);
}

/* The place of the id, or the free one where it belongs. */
static inline Place *place_of(const AckTable *table, uint64_t id) {
    size_t at = first_place(table, id);
    while (table->places[at].is_taken && table->places[at].id != id) at = place_after(table, at);
    return &table->places[at];
}

/* Moves everything to other places. Returns -1 with an exception, and the table is as before. */
static int resize(AckTable *table, size_t size) {
    Place *places = PyMem_Calloc(size, sizeof *places);
    if (!places) {
        PyErr_NoMemory();
        return -1;
    }
    Place *before = table->places;
    size_t size_before = table->size;
    table->places = places;
    table->size = size;
    for (size_t at = 0; at < size_before; at++)
        if (before[at].is_taken) *place_of(table, before[at].id) = before[at];
    PyMem_Free(before);
    return 0;
}

static PyObject *table_put(AckTable *table, PyObject *arguments) {
    unsigned long long id;
    int number;
    if (!PyArg_ParseTuple(arguments, "Ki", &id, &number)) return NULL;
    if (number < 0)
        return PyErr_Format(PyExc_OverflowError, "a number of a consumer has 31 bits");
    bool is_full = GROWN_FROM * (table->count + 1) > table->size;
    if (is_full && resize(table, 2 * table->size) < 0) return NULL;

    Place *place = place_of(table, id);
    if (!place->is_taken) table->count++;
    *place = (Place){.id = id, .number = number, .is_taken = 1};
    Py_RETURN_NONE;
}

/* Frees a place. Those after it, up to the next free one, may have been put there because theirs
 * was taken, and are put again. */
static void free_place(AckTable *table, Place *place) {
    place->is_taken = 0;
    table->count--;
    size_t at = place_after(table, (size_t)(place - table->places));
    for (; table->places[at].is_taken; at = place_after(table, at)) {
        Place moved = table->places[at];
        table->places[at].is_taken = 0;
        *place_of(table, moved.id) = moved;
    }
}

static PyObject *table_remove(AckTable *table, PyObject *arguments) {
    unsigned long long id;
    if (!PyArg_ParseTuple(arguments, "K", &id)) return NULL;
    Place *place = place_of(table, id);
    if (!place->is_taken) Py_RETURN_NONE;
    free_place(table, place);
    bool is_empty = table->size > PLACES_MIN && SHRUNK_FROM * table->count < table->size;
    if (is_empty && resize(table, table->size / 2) < 0) return NULL;
    Py_RETURN_NONE;
}

/* The varint at `from`, which may end at `last`. Returns where the next byte is. It may have more
 * bytes than it needs, or none that ends it: the caller finds that out by writing it again. */
static inline const uint8_t *read_id(const uint8_t *from, const uint8_t *last, uint64_t *id) {
    int shift = 0;
    *id = 0;
    for (; shift < LAST_SHIFT && from < last && *from & VARINT_MORE; shift += VARINT_PART_BITS)
        *id |= (uint64_t)(*from++ & VARINT_PART) << shift;
    *id |= (uint64_t)*from++ << shift;
    return from;
}

/* The number of bytes of the ACK at `frame`, and its consumer; 0: it is of another form. The head
 * is written again for the id that was found, and compared, so that each of its bytes is checked.
 * There are at least ID_AT + 1 bytes and the tail before `end`. */
static inline Py_ssize_t read_ack(const uint8_t *frame, const uint8_t *end, const Py_buffer *tail,
                                  uint64_t *id) {
    const uint8_t *last = end - tail->len - 1; /* of the id, so that the tail is before the end */
    const uint8_t *id_end = read_id(frame + ID_AT, last, id);

    uint8_t head[ID_AT + VARINT_BYTES_MAX];
    head[CONTENT_AT] = CONSUMER_ID_TAG;
    Py_ssize_t size = put_varint(head + ID_AT, *id) - head;
    if (size != id_end - frame) return 0; /* the id has more bytes than it needs, or does not end */
    put_command_start(head, ACK, (size_t)(size - CONTENT_AT + tail->len), 0);
    if (memcmp(frame, head, (size_t)size)) return 0; /* another command, or another size */
    if (memcmp(id_end, tail->buf, (size_t)tail->len)) return 0; /* another entry or other fields */
    return size + tail->len;
}

/* Returns -1 with an exception, and `*found` is NULL then. */
static inline int append_number(PyObject **found, Py_ssize_t used, int32_t number) {
    if (used == PyBytes_GET_SIZE(*found) && _PyBytes_Resize(found, FOUND_GROWTH * used) < 0)
        return -1;
    memcpy(bytes_of(*found) + used, &number, NUMBER_BYTES);
    return 0;
}

static PyObject *table_take(AckTable *table, PyObject *arguments) {
    BUFFER data = {0}, tail = {0};
    Py_ssize_t start;
    if (!PyArg_ParseTuple(arguments, "y*ny*", &data, &start, &tail)) return NULL;
    OWNED *found = PyBytes_FromStringAndSize(NULL, FOUND_FIRST);
    if (!found) return NULL;

    Py_ssize_t used = 0;
    bool is_possible = start >= 0 && tail.len <= TAIL_BYTES_MAX;
    const uint8_t *bytes = data.buf;
    while (is_possible && data.len - start > ID_AT + tail.len) {
        uint64_t id;
        Py_ssize_t size = read_ack(bytes + start, bytes + data.len, &tail, &id);
        if (!size) break;
        const Place *place = place_of(table, id);
        if (!place->is_taken) break; /* not a consumer of the broadcast */
        if (append_number(&found, used, place->number) < 0) return NULL;
        used += NUMBER_BYTES;
        start += size;
    }
    if (_PyBytes_Resize(&found, used) < 0) return NULL;
    return Py_BuildValue("On", found, start);
}

static PyObject *table_sizeof(AckTable *table, PyObject *arguments) {
    return PyLong_FromSize_t(sizeof *table + table->size * sizeof *table->places);
}

static Py_ssize_t table_len(AckTable *table) { return (Py_ssize_t)table->count; }

static void table_free(AckTable *table) {
    PyTypeObject *type = Py_TYPE(table);
    PyMem_Free(table->places);
    PyObject_Free(table);
    Py_DECREF(type);
}

static PyMethodDef table_methods[] = {
    {"put", (PyCFunction)table_put, METH_VARARGS, NULL},
    {"remove", (PyCFunction)table_remove, METH_VARARGS, NULL},
    {"take", (PyCFunction)table_take, METH_VARARGS, NULL},
    {"__sizeof__", (PyCFunction)table_sizeof, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot table_slots[] = {
    {Py_tp_methods, table_methods},
    {Py_sq_length, table_len},
    {Py_tp_dealloc, table_free},
    {0, NULL},
};

static PyType_Spec table_spec = {
    .name = "native._extension.AckTable",
    .basicsize = sizeof(AckTable),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, /* it comes from ack_table() */
    .slots = table_slots,
};

static PyTypeObject *table_type;

PyObject *ack_table(PyObject *module, PyObject *arguments) {
    if (!PyArg_ParseTuple(arguments, "")) return NULL;
    AckTable *table = PyObject_New(AckTable, table_type);
    if (!table) return NULL;
    table->places = NULL;
    table->size = 0;
    table->count = 0;
    if (resize(table, PLACES_MIN) == 0) return (PyObject *)table;
    Py_DECREF(table);
    return NULL;
}

int prepare_ack_tables(void) {
    uint64_t secret[2];
    if (getrandom(secret, sizeof secret, 0) != sizeof secret) {
        PyErr_SetFromErrno(PyExc_OSError);
        return -1;
    }
    secret_mask = secret[0];
    secret_factor = secret[1] | 1;
    table_type = (PyTypeObject *)PyType_FromSpec(&table_spec);
    return table_type ? 0 : -1;
}
