/* The fields of a protobuf message in their usual form. Twin: ../pure/fields.py.
 *
 * What always holds: nothing outside of the given range is read, whatever is in it. After success,
 * each field that was seen ends inside of the range, its value is not negative, and the bytes of a
 * text are the `value` bytes before its `end`.
 */
#ifndef VELA_PROTOBUF_FIELDS_H
#define VELA_PROTOBUF_FIELDS_H

#include <stdbool.h>
#include <stdint.h>

/* Numbers of fields are below this. It is the size of the columns, and fits into a set. */
enum { FIELD_NUMBERS = 20 };

/* A set of fields, a bit for each. */
typedef uint32_t FieldSet;
#define FIELD(number) ((FieldSet)1 << (number))

static inline bool has_field(FieldSet set, uint32_t number) { return set >> number & 1; }

typedef struct {
    FieldSet seen;
    int64_t value[FIELD_NUMBERS]; /* a number, or the size of a text; undefined unless seen */
    int64_t end[FIELD_NUMBERS];   /* where it ends; undefined unless seen */
} Fields;

/* Its number, or the size of its text; 0 if it is not there. */
static inline int64_t value_of(const Fields *fields, uint32_t number) {
    return has_field(fields->seen, number) ? fields->value[number] : 0;
}

/* Reads data[at:end]. Of a field that is there several times, the last one counts.
 *
 * `numbers`, `texts`: the fields that may be there, by their wire type.
 *
 * False: the message is not in the usual form. It has other fields or a tag of more than two bytes,
 * a number of more than 63 bits, or passes its end. `fields` is undefined then.
 */
bool read_fields(const uint8_t *data, int64_t at, int64_t end, FieldSet numbers, FieldSet texts,
                 Fields *fields);

#endif
