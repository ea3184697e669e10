/* Numbers of protobuf: seven bits a byte, the lowest first. The highest bit of a byte says that
 * another one follows. */
#ifndef VELA_VARINTS_H
#define VELA_VARINTS_H

#include <stdint.h>

enum {
    VARINT_MORE = 0x80,    /* the bit that says that another byte follows */
    VARINT_PART = 0x7F,    /* the bits of a byte that belong to the number */
    VARINT_PART_BITS = 7,
    VARINT_BYTES_MAX = 10, /* of a number of 64 bits */
};

/* Writes at most VARINT_BYTES_MAX bytes, as few as the number needs. Returns where the next go. */
static inline uint8_t *put_varint(uint8_t *to, uint64_t value) {
    for (; value > VARINT_PART; value >>= VARINT_PART_BITS) *to++ = (uint8_t)(value | VARINT_MORE);
    *to++ = (uint8_t)value;
    return to;
}

#endif
