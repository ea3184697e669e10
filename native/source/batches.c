/* The messages of a batch as columns. Twin: ../pure/batches.py.
 *
 * The content of a batch was written by strangers. What always holds: no more rows are allocated
 * than the content has room for, and every place in a row is inside of the content.
 */
#include "big_endian.h"
#include "extension.h"
#include "protobuf_fields.h"

/* A message is the size of its metadata, the metadata, and the payload. The metadata is at least
 * the size of the payload: a tag and a number. */
enum { METADATA_SIZE_BYTES = 4, MESSAGE_BYTES_MIN = METADATA_SIZE_BYTES + 2 };

/* SingleMessageMetadata of PulsarApi.proto. */
enum {
    PROPERTIES = 1,
    KEY = 2,
    PAYLOAD_SIZE = 3,
    COMPACTED_OUT = 4,
    EVENT_TIME = 5,
    KEY_IS_BASE64 = 6,
    ORDERING_KEY = 7,
    SEQUENCE_ID = 8,
    NULL_VALUE = 9,
    NULL_KEY = 10,
};
static const FieldSet NUMBERS = FIELD(PAYLOAD_SIZE) | FIELD(COMPACTED_OUT) | FIELD(EVENT_TIME)
    | FIELD(KEY_IS_BASE64) | FIELD(SEQUENCE_ID) | FIELD(NULL_VALUE) | FIELD(NULL_KEY);
static const FieldSet TEXTS = FIELD(PROPERTIES) | FIELD(KEY) | FIELD(ORDERING_KEY);

/* A row: numbers of 64 bits in the byte order of the machine (FIELDS of the twin). */
typedef struct {
    int64_t metadata, payload, payload_end, key, key_end, event_time_ms, index, flags;
} Row;
enum { HAS_KEY = 1, IS_NULL = 2, IS_REMOVED = 4, HAS_PROPERTIES = 8 };

static inline int64_t flags_of(const Fields *fields) {
    int64_t flags = 0;
    if (has_field(fields->seen, KEY)) flags |= HAS_KEY;
    if (has_field(fields->seen, PROPERTIES)) flags |= HAS_PROPERTIES;
    if (value_of(fields, NULL_VALUE)) flags |= IS_NULL;
    if (value_of(fields, COMPACTED_OUT)) flags |= IS_REMOVED;
    return flags;
}

/* The row of the message at `at`, but for its index. False: it is not in the usual form. */
static inline bool read_message(const uint8_t *data, int64_t at, int64_t length, Row *row) {
    if (length - at < METADATA_SIZE_BYTES) return false; /* the size is cut */
    int64_t metadata = at + METADATA_SIZE_BYTES;
    int64_t metadata_end = metadata + (int64_t)read_u32(data + at);
    if (metadata_end > length) return false; /* the metadata is cut */

    Fields fields;
    if (!read_fields(data, metadata, metadata_end, NUMBERS, TEXTS, &fields)) return false;
    if (!has_field(fields.seen, PAYLOAD_SIZE)) return false; /* protobuf requires it */
    int64_t size = fields.value[PAYLOAD_SIZE];
    if (size > INT32_MAX) return false;             /* it is an int32, and negative then */
    if (size > length - metadata_end) return false; /* the payload is cut */
    if (value_of(&fields, KEY_IS_BASE64)) return false; /* the key would have to be decoded */

    row->metadata = metadata;
    row->payload = metadata_end;
    row->payload_end = metadata_end + size;
    row->key_end = has_field(fields.seen, KEY) ? fields.end[KEY] : metadata;
    row->key = row->key_end - value_of(&fields, KEY);
    row->event_time_ms = value_of(&fields, EVENT_TIME);
    row->flags = flags_of(&fields);
    return true;
}

PyObject *batch_rows(PyObject *module, PyObject *arguments) {
    const char *content;
    Py_ssize_t length;
    long long count, flags = 0;
    if (!PyArg_ParseTuple(arguments, "y#L", &content, &length, &count)) return NULL;
    if (count < 0) Py_RETURN_NONE;
    if (count > length / MESSAGE_BYTES_MIN) Py_RETURN_NONE; /* there cannot be so many */
    OWNED *table = PyBytes_FromStringAndSize(NULL, count * (Py_ssize_t)sizeof(Row));
    if (!table) return NULL;

    Row *rows = (Row *)PyBytes_AS_STRING(table);
    int64_t at = 0;
    for (int64_t index = 0; index < count; index++) {
        Row *row = &rows[index];
        if (!read_message((const uint8_t *)content, at, length, row)) Py_RETURN_NONE;
        row->index = index;
        flags |= row->flags;
        at = row->payload_end;
    }
    return Py_BuildValue("OL", table, flags);
}
