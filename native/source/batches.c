/* The messages of a batch as columns. Reference and description: ../pure/batches.py, ../pure/fields.py. */
#include "parts.h"

int vela_read_fields(const uint8_t *data, int64_t at, int64_t end, uint32_t numbers, uint32_t texts, Fields *fields) {
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

enum { METADATA, PAYLOAD, PAYLOAD_END, KEY, KEY_END, EVENT_TIME, INDEX, FLAGS, COLUMNS };
enum { HAS_KEY = 1, IS_NULL = 2, IS_REMOVED = 4, HAS_PROPERTIES = 8, NUMBERS = 0x778, TEXTS = 0x86 };

/* Fills in a row from the metadata at data[at:end]; 0: it is not in its usual form. */
static int read_metadata(const uint8_t *data, int64_t at, int64_t end, int64_t *row) {
    Fields has;
    if (!vela_read_fields(data, at, end, NUMBERS, TEXTS, &has) || has.value[6] || has.value[3] > INT32_MAX) return 0;
    row[METADATA] = row[KEY] = row[KEY_END] = at;
    row[PAYLOAD] = end, row[PAYLOAD_END] = end + has.value[3], row[EVENT_TIME] = has.value[5];
    if (has.seen & 4) row[KEY] = has.end[2] - has.value[2], row[KEY_END] = has.end[2];
    row[FLAGS] = (has.seen & 4 ? HAS_KEY : 0) | (has.value[9] ? IS_NULL : 0) | (has.value[4] ? IS_REMOVED : 0)
        | (has.seen & 2 ? HAS_PROPERTIES : 0);
    return has.seen >> 3 & 1;
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
        long long end = length - at < 4 ? length + 1 : at + 4 + (long long)vela_number(data + at, 4);
        if (end > length || !read_metadata(data, at + 4, end, row) || row[PAYLOAD_END] > length) Py_RETURN_NONE;
        row[INDEX] = index, flags |= row[FLAGS], at = row[PAYLOAD_END];
    }
    return table ? Py_BuildValue("OL", table, flags) : NULL;
}
