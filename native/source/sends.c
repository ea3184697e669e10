/* A run of SENDs as columns. Twin: ../pure/sends.py.
 *
 * The bytes come from a connection, and nothing has checked them before. What always holds: nothing
 * of a frame but its two sizes is used before all of the frame is known to be there; a command has
 * at most COMMAND_BYTES_MAX and a payload PAYLOAD_BYTES_MAX; a run is bounded in messages and
 * bytes, and so is the time of a call. A frame that is not taken ends the run and is no error.
 * Another reader decides what it is.
 */
#include "checksums.h"
#include "command_frames.h"
#include "extension.h"
#include "payload_heads.h"
#include "protobuf_fields.h"

enum {
    RUN_MESSAGES_MAX = 512,
    RUN_BYTES_MAX = 256 * 1024, /* of payloads; the message that reaches it is the last one */
    FRAME_BYTES_MIN = 16,       /* both sizes and the least that a SEND has */
    COMMAND_BYTES_MAX = 64,
    METADATA_SIZE_BYTES = 4,
    METADATA_BYTES_MIN = 6, /* three fields that are required: a tag and a byte each */
    PAYLOAD_BYTES_MIN = METADATA_SIZE_BYTES + METADATA_BYTES_MIN,
    PAYLOAD_BYTES_MAX = 64 * 1024,
};
enum { ARE_SINGLE = 1, ARE_CONSECUTIVE = 2 };

/* CommandSend of PulsarApi.proto. The number of messages is not believed. */
enum { PRODUCER_ID = 1, SEQUENCE_ID = 2, NUM_MESSAGES = 3 };
static const FieldSet SEND_NUMBERS = FIELD(PRODUCER_ID) | FIELD(SEQUENCE_ID) | FIELD(NUM_MESSAGES);
static const FieldSet SEND_REQUIRED = FIELD(PRODUCER_ID) | FIELD(SEQUENCE_ID);

/* The fields of MessageMetadata in a usual message by itself. It has none of a batch, a chunk,
 * encryption, compression, replication, a transaction or a marker, and no properties, because these
 * are messages of their own that would have to be read, too. */
enum {
    METADATA_PRODUCER_NAME = 1,
    METADATA_SEQUENCE_ID = 2,
    METADATA_PUBLISH_TIME = 3,
    METADATA_KEY = 6,
    METADATA_UNCOMPRESSED_SIZE = 9,
    METADATA_EVENT_TIME = 12,
    METADATA_SCHEMA_VERSION = 16,
    METADATA_KEY_IS_BASE64 = 17,
    METADATA_ORDERING_KEY = 18,
    METADATA_DELIVER_AT_TIME = 19,
};
static const FieldSet METADATA_NUMBERS = FIELD(METADATA_SEQUENCE_ID) | FIELD(METADATA_PUBLISH_TIME)
    | FIELD(METADATA_UNCOMPRESSED_SIZE) | FIELD(METADATA_EVENT_TIME) | FIELD(METADATA_KEY_IS_BASE64)
    | FIELD(METADATA_DELIVER_AT_TIME);
static const FieldSet METADATA_TEXTS = FIELD(METADATA_PRODUCER_NAME) | FIELD(METADATA_KEY)
    | FIELD(METADATA_SCHEMA_VERSION) | FIELD(METADATA_ORDERING_KEY);
static const FieldSet METADATA_REQUIRED = FIELD(METADATA_PRODUCER_NAME)
    | FIELD(METADATA_SEQUENCE_ID) | FIELD(METADATA_PUBLISH_TIME);

/* A SEND: places in the buffer, and what its command says. */
typedef struct {
    int64_t payload, metadata_size; /* the checksum, if there is one, is between them */
    int64_t end;                    /* of the frame and of the payload */
    int64_t producer_id, sequence_id;
} Send;

/* The frame at `at`, where `length` - `at` is at least FRAME_BYTES_MIN. False: it is not all there,
 * not a SEND in its usual form, or too large. */
static inline bool read_frame(const uint8_t *data, int64_t at, int64_t length, int64_t frame_max,
                              Send *send) {
    int64_t frame = COMMAND_SIZE_AT + (int64_t)read_u32(data + at + FRAME_SIZE_AT);
    int64_t command = (int64_t)read_u32(data + at + COMMAND_SIZE_AT);
    if (frame > length - at) return false; /* the rest has not arrived yet */
    if (frame > frame_max) return false;   /* the other reader refuses it */
    send->end = at + frame;

    if (command < COMMAND_START_BYTES) return false; /* no place for its start */
    if (command > COMMAND_BYTES_MAX) return false;   /* it has more than its usual fields */
    send->payload = at + COMMAND_AT + command;
    int64_t payload_size = send->end - send->payload;
    if (payload_size < PAYLOAD_BYTES_MIN) return false; /* also: the command passes the frame */
    if (payload_size > PAYLOAD_BYTES_MAX) return false; /* it is handled by itself */

    uint32_t start = command_start(SEND, (uint32_t)command - COMMAND_START_BYTES);
    if (read_u32(data + at + COMMAND_AT) != start) return false; /* another command */
    Fields fields;
    if (!read_fields(data, at + CONTENT_AT, send->payload, SEND_NUMBERS, 0, &fields)) return false;
    if ((fields.seen & SEND_REQUIRED) != SEND_REQUIRED) return false; /* protobuf refuses it */
    send->producer_id = fields.value[PRODUCER_ID];
    send->sequence_id = fields.value[SEQUENCE_ID];
    return true;
}

/* Finds where the metadata begins. False: the checksum of the payload does not fit, or the payload
 * begins with what only a broker writes. */
static inline bool check_payload(const uint8_t *data, Send *send) {
    const uint8_t *payload = data + send->payload;
    size_t size = (size_t)(send->end - send->payload);
    send->metadata_size = send->payload;
    if (read_u16(payload) == BROKER_METADATA_MAGIC) return false;
    if (!has_checksum(payload, size)) return true;
    send->metadata_size += CHECKED_FROM;
    uint32_t said = read_u32(payload + PAYLOAD_CHECKSUM_AT);
    return said == crc32c_of(0, payload + CHECKED_FROM, size - CHECKED_FROM);
}

/* Whether the payload surely is one message that clients can read. Else its messages are counted.
 * Its size makes sure that there are METADATA_SIZE_BYTES. */
static inline bool is_single(const uint8_t *data, const Send *send) {
    int64_t metadata = send->metadata_size + METADATA_SIZE_BYTES;
    int64_t metadata_end = metadata + (int64_t)read_u32(data + send->metadata_size);
    if (metadata_end > send->end) return false; /* the metadata passes the payload */
    Fields fields;
    if (!read_fields(data, metadata, metadata_end, METADATA_NUMBERS, METADATA_TEXTS, &fields))
        return false;
    return (fields.seen & METADATA_REQUIRED) == METADATA_REQUIRED;
}

/* What was taken. */
typedef struct {
    Py_ssize_t count;
    int64_t producer_id, last_sequence_id; /* of the message before, if there is one */
    int64_t size_bytes, size_each_bytes;   /* 0: they differ */
    int flags;
} Run;

/* Whether the run goes on with this message. */
static inline bool belongs_to(const Run *run, const Send *send) {
    if (run->count == 0) return true;
    if (send->producer_id != run->producer_id) return false;
    return run->size_bytes < RUN_BYTES_MAX;
}

static inline void count_message(Run *run, const Send *send, bool is_single) {
    int64_t size = send->end - send->payload;
    bool is_first = run->count == 0;
    if (is_first) run->size_each_bytes = size;
    if (size != run->size_each_bytes) run->size_each_bytes = 0;
    if (!is_single) run->flags &= ~ARE_SINGLE;
    /* No overflow: neither is negative. */
    if (!is_first && send->sequence_id - run->last_sequence_id != 1) run->flags &= ~ARE_CONSECUTIVE;
    run->producer_id = send->producer_id;
    run->last_sequence_id = send->sequence_id;
    run->size_bytes += size;
    run->count++;
}

/* Sequence ids, with room for more than there are. */
enum { ID_BYTES = sizeof(int64_t), IDS_FIRST = 128, IDS_GROWTH = 4 };

/* Returns -1 with an exception, and `*ids` is NULL then. */
static inline int append_id(PyObject **ids, Py_ssize_t count, int64_t id) {
    Py_ssize_t size = count * ID_BYTES;
    if (size == PyBytes_GET_SIZE(*ids) && _PyBytes_Resize(ids, IDS_GROWTH * size) < 0) return -1;
    memcpy(bytes_of(*ids) + size, &id, ID_BYTES);
    return 0;
}

PyObject *read_sends(PyObject *module, PyObject *arguments) {
    PyObject *given;
    Py_ssize_t at;
    long long frame_max;
    if (!PyArg_ParseTuple(arguments, "SnL", &given, &at, &frame_max)) return NULL;
    OWNED *payloads = PyList_New(0);
    OWNED *ids = PyBytes_FromStringAndSize(NULL, IDS_FIRST * ID_BYTES);
    if (!payloads || !ids) return NULL;

    const uint8_t *data = bytes_of(given);
    Py_ssize_t length = PyBytes_GET_SIZE(given);
    Run run = {.producer_id = -1, .flags = ARE_SINGLE | ARE_CONSECUTIVE};
    while (run.count < RUN_MESSAGES_MAX && at >= 0 && length - at >= FRAME_BYTES_MIN) {
        Send send;
        if (!read_frame(data, at, length, frame_max, &send)) break;
        if (!belongs_to(&run, &send)) break;
        if (!check_payload(data, &send)) break;

        const char *payload_bytes = (const char *)data + send.payload;
        OWNED *payload = PyBytes_FromStringAndSize(payload_bytes, send.end - send.payload);
        if (!payload || PyList_Append(payloads, payload) < 0) return NULL;
        if (append_id(&ids, run.count, send.sequence_id) < 0) return NULL;
        count_message(&run, &send, is_single(data, &send));
        at = send.end;
    }
    if (_PyBytes_Resize(&ids, run.count * ID_BYTES) < 0) return NULL;
    return Py_BuildValue("LOOLLin", (long long)run.producer_id, ids, payloads,
                         (long long)run.size_bytes, (long long)run.size_each_bytes, run.flags, at);
}
