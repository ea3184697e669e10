/* See protobuf_fields.h. The bytes are hostile: what is read here was written by strangers. */
#include "protobuf_fields.h"

#include "varints.h"

/* A tag is the number of a field and the wire type of what follows. */
enum { WIRE_TYPE_BITS = 3, WIRE_TYPE = 7, WIRE_VARINT = 0, WIRE_TEXT = 2 };

/* Numbers have 63 bits, so that none is negative as an int64_t. */
enum { NUMBER_BITS_MAX = 63 };

/* The tag at `*at`, which is before `end`. False: it does not end in two bytes. */
static inline bool read_tag(const uint8_t *data, int64_t *at, int64_t end, uint32_t *tag) {
    *tag = data[(*at)++];
    if (!(*tag & VARINT_MORE)) return true;
    if (*at == end) return false; /* the second byte is missing */
    uint32_t second = data[(*at)++];
    if (second & VARINT_MORE) return false; /* no field that is allowed has so large a number */
    *tag = (*tag & VARINT_PART) | second << VARINT_PART_BITS;
    return true;
}

/* The number at `*at`. False: it passes the end, or has more than NUMBER_BITS_MAX bits. */
static inline bool read_number(const uint8_t *data, int64_t *at, int64_t end, uint64_t *number) {
    if (*at == end) return false; /* nothing follows the tag */
    *number = data[(*at)++];
    if (!(*number & VARINT_MORE)) return true; /* as most numbers do */
    *number &= VARINT_PART;
    for (int shift = VARINT_PART_BITS; shift < NUMBER_BITS_MAX; shift += VARINT_PART_BITS) {
        if (*at == end) return false; /* the byte that should follow is missing */
        uint8_t byte = data[(*at)++];
        *number |= (uint64_t)(byte & VARINT_PART) << shift;
        if (!(byte & VARINT_MORE)) return true;
    }
    return false; /* it goes on after 63 bits */
}

bool read_fields(const uint8_t *data, int64_t at, int64_t end, FieldSet numbers, FieldSet texts,
                 Fields *fields) {
    FieldSet seen = 0;
    while (at < end) {
        uint32_t tag;
        if (!read_tag(data, &at, end, &tag)) return false;

        uint32_t field = tag >> WIRE_TYPE_BITS, wire_type = tag & WIRE_TYPE;
        if (field >= FIELD_NUMBERS) return false; /* it has no place in the columns */
        bool is_text = wire_type != WIRE_VARINT;
        if (is_text && wire_type != WIRE_TEXT) return false; /* a fixed size, or a group */
        if (!has_field(is_text ? texts : numbers, field)) return false; /* not expected here */

        uint64_t value;
        if (!read_number(data, &at, end, &value)) return false;
        if (is_text) {
            if (value > (uint64_t)(end - at)) return false; /* the text passes the end */
            at += (int64_t)value;
        }
        seen |= FIELD(field);
        fields->value[field] = (int64_t)value;
        fields->end[field] = at;
    }
    fields->seen = seen;
    return true;
}
