/* native._extension. Limits and rules: ../DESIGN.md. Reference and description of each function: ../pure. */
#pragma GCC target("sse4.2,pclmul")
#pragma GCC diagnostic ignored "-Wdeprecated-declarations" /* said of ob_shash, which is not to be removed soon */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <nmmintrin.h>
#include <sys/random.h>
#include <wmmintrin.h>

#define VELA(name) static PyObject *name(PyObject *module, PyObject *arguments)
#define BUFFER __attribute__((cleanup(PyBuffer_Release))) Py_buffer /* Both are released when their block ends. */
#define OWNED __attribute__((cleanup(release))) PyObject
static inline void release(PyObject **object) { Py_XDECREF(*object); }

/* Numbers in the byte order of the network, of 1 to 8 bytes. */
static inline uint64_t number(const uint8_t *data, int bytes) {
    uint64_t value = 0;
    memcpy(&value, data, (size_t)bytes);
    return __builtin_bswap64(value) >> (64 - 8 * bytes);
}

static inline uint8_t *put(uint8_t *to, uint64_t value, int bytes) {
    value = __builtin_bswap64(value << (64 - 8 * bytes));
    return mempcpy(to, &value, (size_t)bytes);
}

enum { METADATA_BYTES = 32, HEAD_BYTES = 36 }; /* Of an entry before its digest, and before its payload. */
enum { MAGIC = 0x0E01, UNCHECKED = 6 }; /* A payload with a checksum: its start, and what that does not cover. */

/* CRC-32C with the processor's instruction: three streams at once, joined by products of polynomials.
 * Factors are divided by x**33, because a product of two bit-reversed polynomials has that factor too much. */
enum { LONG = 2048, SHORT = 256, STRETCH = 12288, LARGE = 65536, NO_PAIR = -1, NO_ROOM = -2 };
static const uint32_t ONE = 0xA9CDDA0D, ONE_BYTE = 0xBF818109, OVER_LONG = 0xA51B6135, OVER_SHORT = 0xB9E02B86;

static uint32_t product(uint32_t left, uint32_t right) {
    __m128i wide = _mm_clmulepi64_si128(_mm_cvtsi32_si128((int)left), _mm_cvtsi32_si128((int)right), 0);
    return (uint32_t)_mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(wide));
}

/* The factor for a checksum of what has so many bytes after it. */
static uint32_t factor_over(uint64_t bytes) {
    uint32_t factor = ONE, power = ONE_BYTE;
    for (; bytes; bytes >>= 1, power = product(power, power)) factor = bytes & 1 ? product(power, factor) : factor;
    return factor;
}

static uint64_t next(uint64_t value, const uint8_t *data) {
    return _mm_crc32_u64(value, (uint64_t)_mm_cvtsi128_si64(_mm_loadl_epi64((const __m128i *)data)));
}

static uint32_t three_streams(uint64_t first, const uint8_t *data, size_t size, uint32_t over) {
    uint64_t second = 0, third = 0;
    for (const uint8_t *end = data + size; data < end; data += 8) {
        first = next(first, data);
        second = next(second, data + size);
        third = next(third, data + 2 * size);
    }
    second ^= product(over, (uint32_t)first);
    return product(over, (uint32_t)second) ^ (uint32_t)third;
}

static uint32_t crc32c_of(uint32_t value, const uint8_t *data, size_t size) {
    uint32_t now = ~value;
    for (; size >= 3 * LONG; data += 3 * LONG, size -= 3 * LONG) now = three_streams(now, data, LONG, OVER_LONG);
    for (; size >= 3 * SHORT; data += 3 * SHORT, size -= 3 * SHORT) now = three_streams(now, data, SHORT, OVER_SHORT);
    for (; size >= 8; data += 8, size -= 8) now = (uint32_t)next(now, data);
    for (; size; data++, size--) now = _mm_crc32_u8(now, *data);
    return ~now;
}

VELA(crc32c) {
    BUFFER data = {0};
    unsigned int value = 0;
    Py_ssize_t start = 0;
    if (!PyArg_ParseTuple(arguments, "y*|In", &data, &value, &start)) return NULL;
    start = start < 0 || start > data.len ? data.len : start;
    return PyLong_FromUnsignedLong(crc32c_of(value, (const uint8_t *)data.buf + start, (size_t)(data.len - start)));
}

VELA(crc32c_payloads) { /* checked without holding the interpreter */
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
        const uint8_t *body = (const uint8_t *)PyBytes_AS_STRING(PyTuple_GET_ITEM(bodies, at));
        PyObject *payload = PyList_GET_ITEM(payloads, at);
        uint32_t digest = crc32c_of(crc32c_of(0, body, METADATA_BYTES), body + HEAD_BYTES, (size_t)Py_SIZE(payload));
        if (number(body, 8) != (uint64_t)ledger_id || number(body + METADATA_BYTES, 4) != digest
            || number(body + 8, 8) != (uint64_t)entry_id + (uint64_t)at) break;
        memcpy(PyBytes_AS_STRING(payload), body + HEAD_BYTES, (size_t)PyBytes_GET_SIZE(payload));
    }
    Py_END_ALLOW_THREADS
    return count < 0 || PyList_SetSlice(payloads, at, count, NULL) < 0 ? NULL : Py_NewRef(payloads);
}

VELA(crc32c_bodies) {
    PyObject *payloads;
    long long ledger_id, entry_id, confirmed, length;
    int are_intact;
    if (!PyArg_ParseTuple(arguments, "LLLLO!p", &ledger_id, &entry_id, &confirmed, &length, &PyList_Type, &payloads,
                          &are_intact)) return NULL;
    OWNED *bodies = PyList_New(0);
    uint64_t total = (uint64_t)length;
    uint32_t over = 0;
    for (Py_ssize_t at = 0, size, size_before = -1; bodies && at < PyList_GET_SIZE(payloads); at++) {
        PyObject *payload = PyList_GET_ITEM(payloads, at);
        if ((size = PyBytes_Size(payload)) < 0) return NULL; /* TypeError */
        OWNED *kept = PyBytes_FromStringAndSize(NULL, HEAD_BYTES), *body = kept ? PyTuple_Pack(2, kept, payload) : NULL;
        if (!body || PyList_Append(bodies, body) < 0) return NULL;
        if (PyBytes_CheckExact(payload)) PyObject_GC_UnTrack(body); /* they lead to nothing */
        const uint8_t *data = (const uint8_t *)PyBytes_AS_STRING(payload);
        uint8_t *head = (uint8_t *)PyBytes_AS_STRING(kept), *to = put(head, (uint64_t)ledger_id, 8);
        to = put(put(put(to, (uint64_t)entry_id + (uint64_t)at, 8), (uint64_t)confirmed, 8), total += (size_t)size, 8);
        int is_derived = are_intact && size >= UNCHECKED && number(data, 2) == MAGIC;
        uint32_t digest = crc32c_of(crc32c_of(0, head, METADATA_BYTES), data, is_derived ? UNCHECKED : (size_t)size);
        if (is_derived && size != size_before) over = factor_over((uint64_t)(size_before = size) - UNCHECKED);
        put(to, is_derived ? product(over, digest) ^ (uint32_t)number(data + 2, 4) : digest, 4);
    }
    return Py_XNewRef(bodies);
}

/* The size of an entry that is to be written; -1: it is no pair of bytes. */
static inline Py_ssize_t entry_size(PyObject *body) {
    if (!PyTuple_Check(body) || PyTuple_GET_SIZE(body) != 2 || !PyBytes_Check(PyTuple_GET_ITEM(body, 0))
        || !PyBytes_Check(PyTuple_GET_ITEM(body, 1))) return -1;
    return Py_SIZE(PyTuple_GET_ITEM(body, 0)) + Py_SIZE(PyTuple_GET_ITEM(body, 1));
}

/* Copies records to into[at:room], and returns their end or an error. The journal sums them, and has no empty ones. */
static Py_ssize_t copy_records(PyObject *bodies, uint8_t *into, Py_ssize_t at, Py_ssize_t room, uint32_t *checksum) {
    Py_ssize_t end = at, size, number = 0;
    for (; end >= 0 && end <= room && number < PyTuple_GET_SIZE(bodies); number++) {
        if ((size = entry_size(PyTuple_GET_ITEM(bodies, number))) < 0) return NO_PAIR;
        end += size || !checksum ? 4 + size : 0;
    }
    if (end < 0 || end > room) return NO_ROOM;
    uint8_t *to = into + at, *summed = to;
    PyThreadState *others = !checksum || end - at < LARGE ? NULL : PyEval_SaveThread();
    for (size_t part = 0; part < 2 * (size_t)number; part++) {
        PyObject *body = PyTuple_GET_ITEM(bodies, part / 2), *bytes = PyTuple_GET_ITEM(body, part % 2);
        if (part % 2 == 0 && ((size = entry_size(body)) || !checksum)) to = put(to, (uint64_t)size, 4);
        for (Py_ssize_t from = 0; from < Py_SIZE(bytes); from += size) { /* stretches are summed in the cache */
            size = Py_SIZE(bytes) - from < STRETCH ? Py_SIZE(bytes) - from : STRETCH;
            to = mempcpy(to, PyBytes_AS_STRING(bytes) + from, (size_t)size);
            if (to - summed < STRETCH || !checksum) continue;
            *checksum = crc32c_of(*checksum, summed, (size_t)(to - summed)), summed = to;
        }
    }
    if (checksum) *checksum = crc32c_of(*checksum, summed, (size_t)(to - summed));
    if (others) PyEval_RestoreThread(others);
    return end;
}

VELA(put_records) {
    PyObject *given;
    BUFFER into = {0};
    Py_ssize_t at;
    unsigned int checksum;
    if (!PyArg_ParseTuple(arguments, "O!w*nI", &PyList_Type, &given, &into, &at, &checksum)) return NULL;
    OWNED *bodies = PyList_AsTuple(given); /* another thread may change the list */
    Py_ssize_t end = bodies ? copy_records(bodies, into.buf, at, into.len, &checksum) : 0;
    if (end < 0) return PyErr_Format(PyExc_ValueError, "records need room, and are made of pairs of bytes");
    return bodies ? Py_BuildValue("nI", end, checksum) : NULL;
}

/* Makes a key or a value. The object is written to again if nobody has kept it. */
static inline __attribute__((always_inline)) int fill(PyObject **object, const uint64_t *numbers, Py_ssize_t size) {
    if (!*object || Py_REFCNT(*object) != 1) Py_XSETREF(*object, PyBytes_FromStringAndSize(NULL, size));
    if (!*object) return 0;
    for (int at = 0; at < size / 8; at++) put((uint8_t *)PyBytes_AS_STRING(*object) + 8 * at, numbers[at], 8);
    ((PyBytesObject *)*object)->ob_shash = -1; /* not yet computed */
    return 1;
}

VELA(log_records) {
    PyObject *rows, *list;
    long long ledger, from, place;
    int size;
    if (!PyArg_ParseTuple(arguments, "OLLLO!i", &rows, &ledger, &from, &place, &PyList_Type, &list, &size)) return NULL;
    Py_ssize_t count = PyList_GET_SIZE(list);
    if (size < 0 || from > LLONG_MAX - count + !!count || place < 0 || place > LLONG_MAX - size)
        return PyErr_Format(PyExc_OverflowError, "a number is too large for its field");
    OWNED *bodies = PyList_AsTuple(list), *records = PyBytes_FromStringAndSize(NULL, size), *key = NULL, *value = NULL;
    if (!bodies || !records) return NULL;
    uint8_t *record = (uint8_t *)PyBytes_AS_STRING(records);
    Py_ssize_t end = copy_records(bodies, record, 0, size, NULL);
    if (end == NO_PAIR) return PyErr_Format(PyExc_TypeError, "a body is no pair of bytes");
    if (end != size) return PyErr_Format(PyExc_ValueError, "the records do not have the %d bytes that were said", size);
    for (Py_ssize_t at = 0, entry = 0; at < end; at += 4 + (Py_ssize_t)number(record + at, 4), entry++) {
        uint64_t row[] = {(uint64_t)ledger, (uint64_t)from + (uint64_t)entry, (uint64_t)place + (uint64_t)at};
        if (!fill(&key, row, 16) || !fill(&value, row + 2, 8) || PyObject_SetItem(rows, key, value) < 0) return NULL;
    }
    return Py_NewRef(records);
}

enum { METADATA, PAYLOAD, PAYLOAD_END, KEY, KEY_END, EVENT_TIME, INDEX, FLAGS, COLUMNS };
enum { HAS_KEY = 1, IS_NULL = 2, IS_REMOVED = 4, HAS_PROPERTIES = 8, ARE_SINGLE = 1, ARE_CONSECUTIVE = 2 };
enum { FRAME_MIN = 16, COMMAND_MAX = 64, PAYLOAD_MIN = 10, PAYLOAD_MAX = 65536, RUN_MAX = 512, RUN_BYTES = 262144 };
/* Fields, a bit for each: of a message in a batch, of a SEND, and of a message that clients surely can read. */
enum { IN_BATCH = 0x778, TEXTS_IN_BATCH = 0x86, IN_SEND = 0xE, NUMBERS = 0xA120C, TEXTS = 0x50042, REQUIRED = 0xE };
/* The fields of a message by their numbers, which are below 20: a number or a size, and where they end. */
typedef struct { int64_t value[20], end[20]; uint32_t seen; } Fields;

static int read_fields(const uint8_t *data, int64_t at, int64_t end, uint32_t numbers, uint32_t texts, Fields *fields) {
    memset(fields->value, 0, sizeof fields->value);
    for (fields->seen = 0; at < end;) {
        uint32_t tag = data[at++];
        if (tag > 127) tag = at < end && data[at] < 128 ? (tag & 127) | (uint32_t)data[at++] << 7 : 7;
        uint32_t field = tag >> 3, allowed = (tag & 7) == 0 ? numbers : (tag & 7) == 2 ? texts : 0;
        if (at == end || field > 19 || !(allowed >> field & 1)) return 0;
        uint64_t value = data[at++];
        for (int shift = 7; value >> shift; shift += 7) { /* the last byte so far has another one after it */
            if (shift == 63 || at == end) return 0;
            value = (value & ((1ull << shift) - 1)) | (uint64_t)data[at++] << shift;
        }
        if (tag & 7 && value > (uint64_t)(end - at)) return 0;
        at += tag & 7 ? (int64_t)value : 0;
        fields->seen |= 1u << field, fields->value[field] = (int64_t)value, fields->end[field] = at;
    }
    return 1;
}

VELA(batch_rows) {
    const uint8_t *data;
    Py_ssize_t length;
    long long count, flags = 0, at = 0;
    if (!PyArg_ParseTuple(arguments, "y#L", (const char **)&data, &length, &count)) return NULL;
    if (count < 0 || count > length / 6) Py_RETURN_NONE;
    OWNED *table = PyBytes_FromStringAndSize(NULL, count * COLUMNS * 8);
    int64_t *row = table ? (int64_t *)PyBytes_AS_STRING(table) : NULL;
    for (int64_t index = 0; table && index < count; index++, row += COLUMNS) {
        Fields has;
        long long end = length - at < 4 ? length + 1 : at + 4 + (long long)number(data + at, 4);
        if (end > length || !read_fields(data, at + 4, end, IN_BATCH, TEXTS_IN_BATCH, &has) || !(has.seen >> 3 & 1)
            || has.value[6] || has.value[3] > INT32_MAX || has.value[3] > length - end) Py_RETURN_NONE;
        row[METADATA] = at + 4, row[PAYLOAD] = end, row[PAYLOAD_END] = end + has.value[3];
        row[KEY_END] = has.seen & 4 ? has.end[2] : at + 4, row[KEY] = row[KEY_END] - has.value[2];
        row[EVENT_TIME] = has.value[5], row[INDEX] = index, at = row[PAYLOAD_END];
        flags |= row[FLAGS] = (has.seen & 4 ? HAS_KEY : 0) | (has.value[9] ? IS_NULL : 0)
            | (has.value[4] ? IS_REMOVED : 0) | (has.seen & 2 ? HAS_PROPERTIES : 0);
    }
    return table ? Py_BuildValue("OL", table, flags) : NULL;
}

VELA(read_sends) {
    PyObject *given;
    Py_ssize_t at;
    long long frame_max, count = 0, producer_id = -1, size_bytes = 0, size_each = 0, last_id = 0;
    int flags = ARE_SINGLE | ARE_CONSECUTIVE;
    if (!PyArg_ParseTuple(arguments, "SnL", &given, &at, &frame_max)) return NULL;
    const uint8_t *data = (const uint8_t *)PyBytes_AS_STRING(given);
    OWNED *payloads = PyList_New(0), *ids = PyBytes_FromStringAndSize(NULL, 1024);
    while (payloads && ids && count < RUN_MAX && at >= 0 && PyBytes_GET_SIZE(given) - at >= FRAME_MIN) {
        int64_t total = (int64_t)number(data + at, 4), size = (int64_t)number(data + at + 4, 4);
        int64_t begin = at + 8 + size, end = at + 4 + total, payload_size = end - begin;
        Fields send, message;
        if (end > PyBytes_GET_SIZE(given) || total + 4 > frame_max || size > COMMAND_MAX || payload_size < PAYLOAD_MIN
            || payload_size > PAYLOAD_MAX || number(data + at + 8, 3) != 0x080632 || data[at + 11] != size - 4
            || !read_fields(data, at + 12, begin, IN_SEND, 0, &send) || (send.seen & 6) != 6
            || (count && (send.value[1] != producer_id || size_bytes >= RUN_BYTES))) break;
        int64_t covered = begin + (number(data + begin, 2) == MAGIC ? UNCHECKED : 0);
        if (number(data + begin, 2) == MAGIC + 1 || (covered > begin
            && number(data + begin + 2, 4) != crc32c_of(0, data + covered, (size_t)(end - covered)))) break;
        OWNED *payload = PyBytes_FromStringAndSize((const char *)data + begin, payload_size);
        if (!payload || PyList_Append(payloads, payload) < 0) return NULL;
        if (8 * count == PyBytes_GET_SIZE(ids) && _PyBytes_Resize(&ids, 32 * count) < 0) return NULL;
        memcpy(PyBytes_AS_STRING(ids) + 8 * count, &send.value[2], 8);
        size_each = count && payload_size != size_each ? 0 : payload_size;
        int64_t metadata_end = covered + 4 + (int64_t)number(data + covered, 4);
        if (metadata_end > end || !read_fields(data, covered + 4, metadata_end, NUMBERS, TEXTS, &message)
            || (message.seen & REQUIRED) != REQUIRED) flags &= ~ARE_SINGLE;
        if (count && send.value[2] - last_id != 1) flags &= ~ARE_CONSECUTIVE; /* neither is negative */
        size_bytes += payload_size, producer_id = send.value[1], last_id = send.value[2], at = end, count++;
    }
    if (!payloads || !ids || _PyBytes_Resize(&ids, 8 * count) < 0) return NULL;
    return Py_BuildValue("LOOLLin", producer_id, ids, payloads, size_bytes, size_each, flags, at);
}

enum { MESSAGE = 0x08094A00, ACK = 0x080A5200, HEAD = 12, REST_MAX = 100, TAIL_MAX = 100, FIXED_MAX = 90 };
/* Both sizes of a frame, and its command up to the content, of which there are at most 127 bytes. */
static void put_head(uint8_t *to, uint32_t command, size_t content, size_t payload) {
    put(put(to, (8 + content + payload) << 32 | (4 + content), 8), command | content, 4);
}

static uint8_t *put_varint(uint8_t *to, uint64_t value) {
    for (; value > 127; value >>= 7) *to++ = (uint8_t)(value | 128);
    return put(to, value, 1);
}

/* Slots are int32, columns int64. */
static int32_t slot_at(const Py_buffer *slots, Py_ssize_t at) { return ((int32_t *)slots->buf)[at]; }

VELA(message_frames) {
    BUFFER slots = {0}, consumers = {0}, rest = {0};
    PyObject *data;
    if (!PyArg_ParseTuple(arguments, "y*y*y*S", &slots, &consumers, &rest, &data)) return NULL;
    if (rest.len > REST_MAX) return PyErr_Format(PyExc_ValueError, "too much follows the id of the consumer");
    OWNED *frames = PyList_New(slots.len / 4 * 2);
    for (Py_ssize_t at = 0; frames && at < slots.len / 4; at++) {
        uint8_t head[HEAD + 11 + REST_MAX] = {[HEAD] = 8}, *to;
        if (slot_at(&slots, at) < 0 || slot_at(&slots, at) >= consumers.len / 8)
            return PyErr_Format(PyExc_IndexError, "a slot is outside of the column");
        const uint64_t *id = (uint64_t *)consumers.buf + slot_at(&slots, at);
        to = mempcpy(put_varint(head + HEAD + 1, *id), rest.buf, (size_t)rest.len);
        put_head(head, MESSAGE, (size_t)(to - head - HEAD), (size_t)PyBytes_GET_SIZE(data));
        PyList_SET_ITEM(frames, 2 * at, PyBytes_FromStringAndSize((char *)head, to - head));
        PyList_SET_ITEM(frames, 2 * at + 1, Py_NewRef(data));
        if (!PyList_GET_ITEM(frames, 2 * at)) return NULL;
    }
    return Py_XNewRef(frames);
}

VELA(message_run) {
    const char *fixed[4]; /* of a head without sizes, tags and the entry id: consumer, ledger, partition, options */
    Py_ssize_t sizes[4], size, total = 0;
    PyObject *ids, *payloads;
    if (!PyArg_ParseTuple(arguments, "y#y#y#y#O!O!", &fixed[0], &sizes[0], &fixed[1], &sizes[1], &fixed[2], &sizes[2],
                          &fixed[3], &sizes[3], &PyList_Type, &ids, &PyList_Type, &payloads)) return NULL;
    Py_ssize_t fixed_size = sizes[0] + sizes[1] + sizes[2] + sizes[3];
    int is_refused = fixed_size > FIXED_MAX || PyList_GET_SIZE(ids) != PyList_GET_SIZE(payloads);
    for (Py_ssize_t at = 0; !is_refused && at < PyList_GET_SIZE(payloads); at++) {
        if ((size = PyBytes_Size(PyList_GET_ITEM(payloads, at))) < 0) return NULL; /* TypeError */
        is_refused = size > INT32_MAX - total;
        total += is_refused ? 0 : HEAD + 12 + fixed_size + size; /* with a tag, a size and a varint */
    }
    if (is_refused) return PyErr_Format(PyExc_ValueError, "heads or payloads too large, or not as many as entry ids");
    OWNED *frames = PyBytes_FromStringAndSize(NULL, total);
    uint8_t *to = frames ? (uint8_t *)PyBytes_AS_STRING(frames) : NULL;
    for (Py_ssize_t at = 0; frames && at < PyList_GET_SIZE(payloads); at++) {
        PyObject *payload = PyList_GET_ITEM(payloads, at);
        uint64_t entry_id = PyLong_AsUnsignedLongLong(PyList_GET_ITEM(ids, at));
        if (entry_id == UINT64_MAX && PyErr_Occurred()) return NULL;
        uint8_t *head = to, *message_id = (uint8_t *)mempcpy(head + HEAD, fixed[0], (size_t)sizes[0]) + 2;
        to = put_varint(mempcpy(message_id, fixed[1], (size_t)sizes[1]), entry_id);
        to = mempcpy(to, fixed[2], (size_t)sizes[2]);
        put(message_id - 2, 0x1200 | (uint64_t)(to - message_id), 2);
        to = mempcpy(to, fixed[3], (size_t)sizes[3]);
        put_head(head, MESSAGE, (size_t)(to - head - HEAD), (size_t)PyBytes_GET_SIZE(payload));
        to = mempcpy(to, PyBytes_AS_STRING(payload), (size_t)PyBytes_GET_SIZE(payload));
    }
    return frames && _PyBytes_Resize(&frames, (char *)to - PyBytes_AS_STRING(frames)) == 0 ? Py_NewRef(frames) : NULL;
}

VELA(update_slots) {
    BUFFER slots = {0}, column = {0};
    long long keep, value, step, least = INT64_MAX, most = INT64_MIN;
    if (!PyArg_ParseTuple(arguments, "y*w*LLL", &slots, &column, &keep, &value, &step)) return NULL;
    for (Py_ssize_t at = 0; at < slots.len / 4; at++) {
        if (slot_at(&slots, at) < 0 || slot_at(&slots, at) >= column.len / 8)
            return PyErr_Format(PyExc_IndexError, "a slot is outside of the column");
        int64_t *cell = (int64_t *)column.buf + slot_at(&slots, at);
        *cell = (int64_t)((uint64_t)(keep ? *cell : 0) + (uint64_t)value + (uint64_t)step * (uint64_t)at);
        least = *cell < least ? *cell : least;
        most = *cell > most ? *cell : most;
    }
    return Py_BuildValue("LL", least, most);
}

/* The numbers of consumers by their ids: open addressing, each id at its place or the next free ones. At most half
 * of the places are taken, and at least an eighth. Ids are chosen by strangers, so places depend on a secret. */
typedef struct { uint64_t id; int32_t number, is_taken; } PLACE;
typedef struct { PyObject_HEAD PLACE *places; size_t size, count; } TABLE; /* the size is a power of two */
enum { PLACES_MIN = 8 };
static uint64_t secret[2];

static PLACE *place_of(const TABLE *table, uint64_t id) { /* of the id, or the free one where it belongs */
    uint64_t mixed = (id ^ secret[0]) * (secret[1] | 1);
    mixed = (mixed ^ mixed >> 32) * (secret[1] | 1);
    size_t at = mixed >> 32 & (table->size - 1);
    while (table->places[at].is_taken && table->places[at].id != id) at = (at + 1) & (table->size - 1);
    return table->places + at;
}

static int resize(TABLE *table, size_t size) {
    PLACE *before = table->places, *end = before + table->size, *places = PyMem_Calloc(size, sizeof *places);
    if (!places) return PyErr_NoMemory() ? 0 : -1;
    table->places = places, table->size = size;
    for (PLACE *each = before; each < end; each++)
        if (each->is_taken) *place_of(table, each->id) = *each;
    PyMem_Free(before);
    return 0;
}

static PyObject *table_put(TABLE *table, PyObject *arguments) {
    unsigned long long id;
    int number;
    if (!PyArg_ParseTuple(arguments, "Ki", &id, &number)) return NULL;
    if (number < 0) return PyErr_Format(PyExc_OverflowError, "a number of a consumer has 31 bits");
    if (2 * (table->count + 1) > table->size && resize(table, 2 * table->size) < 0) return NULL;
    PLACE *place = place_of(table, id);
    table->count += !place->is_taken;
    *place = (PLACE){id, number, 1};
    Py_RETURN_NONE;
}

static PyObject *table_remove(TABLE *table, PyObject *arguments) {
    unsigned long long id;
    if (!PyArg_ParseTuple(arguments, "K", &id)) return NULL;
    PLACE *place = place_of(table, id);
    if (!place->is_taken) Py_RETURN_NONE;
    place->is_taken = 0, table->count--;
    for (size_t at = (size_t)(place - table->places);;) { /* what was put after it may have to move into a gap */
        PLACE *each = table->places + (at = (at + 1) & (table->size - 1)), moved = *each;
        if (!moved.is_taken) break;
        each->is_taken = 0;
        *place_of(table, moved.id) = moved;
    }
    if (table->size > PLACES_MIN && 8 * table->count < table->size && resize(table, table->size / 2) < 0) return NULL;
    Py_RETURN_NONE;
}

/* One frame for each ACK: a head with the id of the consumer, and the tail, which the caller knows. */
static PyObject *table_take(TABLE *table, PyObject *arguments) {
    BUFFER data = {0}, tail = {0};
    Py_ssize_t start, used = 0;
    if (!PyArg_ParseTuple(arguments, "y*ny*", &data, &start, &tail)) return NULL;
    OWNED *found = PyBytes_FromStringAndSize(NULL, 256);
    while (found && start >= 0 && tail.len <= TAIL_MAX && data.len - start > HEAD + 1 + tail.len) {
        const uint8_t *frame = (uint8_t *)data.buf + start, *to = frame + HEAD + 1;
        const uint8_t *last = frame + (data.len - start) - tail.len - 1;
        uint8_t head[HEAD + 11] = {[HEAD] = 8};
        uint64_t id = 0, shift = 0;
        for (; shift < 63 && to < last && *to & 128; to++, shift += 7) id |= (uint64_t)(*to & 127) << shift;
        id |= (uint64_t)*to++ << shift;
        Py_ssize_t size = put_varint(head + HEAD + 1, id) - head;
        put_head(head, ACK, (size_t)(size - HEAD + tail.len), 0);
        if (size != to - frame) break; /* the id was written with more bytes than it needs, or does not end */
        if (memcmp(frame, head, (size_t)size)) break; /* another command, or another size */
        if (memcmp(to, tail.buf, (size_t)tail.len)) break; /* another entry, or another form */
        const PLACE *place = place_of(table, id);
        if (!place->is_taken) break;
        if (used == PyBytes_GET_SIZE(found) && _PyBytes_Resize(&found, 4 * used) < 0) break;
        memcpy(PyBytes_AS_STRING(found) + used, &place->number, 4);
        used += 4, start += size + tail.len;
    }
    return found && _PyBytes_Resize(&found, used) == 0 ? Py_BuildValue("On", found, start) : NULL;
}

static PyObject *table___sizeof__(TABLE *table, PyObject *arguments) {
    return PyLong_FromSize_t(sizeof(TABLE) + table->size * sizeof(PLACE));
}

static Py_ssize_t table_len(TABLE *table) { return (Py_ssize_t)table->count; }

static void table_free(TABLE *table) {
    PyTypeObject *type = Py_TYPE(table);
    PyMem_Free(table->places);
    PyObject_Free(table);
    Py_DECREF(type);
}

#define TABLE_METHOD(name) {#name, (PyCFunction)table_##name, METH_VARARGS, NULL}
static PyMethodDef table_methods[] = {
    TABLE_METHOD(put), TABLE_METHOD(remove), TABLE_METHOD(take), TABLE_METHOD(__sizeof__),
    {NULL, NULL, 0, NULL}};
static PyType_Slot table_slots[] = {
    {Py_tp_methods, table_methods}, {Py_sq_length, table_len}, {Py_tp_dealloc, table_free}, {0, NULL}};
static PyType_Spec table_spec = {
    .name = "native._extension.AckTable",
    .basicsize = sizeof(TABLE),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, /* it comes from ack_table() */
    .slots = table_slots,
};
static PyTypeObject *table_type;

VELA(ack_table) {
    TABLE *table = PyArg_ParseTuple(arguments, "") ? PyObject_New(TABLE, table_type) : NULL;
    if (!table) return NULL;
    table->places = NULL, table->size = table->count = 0;
    if (resize(table, PLACES_MIN) == 0) return (PyObject *)table;
    Py_DECREF(table);
    return NULL;
}

#define METHOD(name) {#name, name, METH_VARARGS, NULL}
static PyMethodDef methods[] = {METHOD(ack_table), METHOD(batch_rows), METHOD(crc32c), METHOD(crc32c_bodies),
    METHOD(crc32c_payloads), METHOD(log_records), METHOD(message_frames), METHOD(message_run), METHOD(put_records),
    METHOD(read_sends), METHOD(update_slots), {NULL, NULL, 0, NULL}};
static PyModuleDef native = {PyModuleDef_HEAD_INIT, .m_name = "native._extension", .m_size = -1, .m_methods = methods};

PyMODINIT_FUNC PyInit__extension(void) {
    if (!__builtin_cpu_supports("sse4.2") || !__builtin_cpu_supports("pclmul"))
        return PyErr_Format(PyExc_ImportError, "this processor has no SSE 4.2 or no PCLMULQDQ");
    if (getrandom(secret, sizeof secret, 0) != sizeof secret) return PyErr_SetFromErrno(PyExc_OSError);
    table_type = (PyTypeObject *)PyType_FromSpec(&table_spec);
    return table_type ? PyModule_Create(&native) : NULL;
}
