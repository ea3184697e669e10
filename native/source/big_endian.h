/* Numbers in the byte order of the network, at any address. The caller has made sure that all of
 * their bytes are inside of the buffer. */
#ifndef VELA_BIG_ENDIAN_H
#define VELA_BIG_ENDIAN_H

#include <stdint.h>
#include <string.h>

static inline uint16_t read_u16(const uint8_t *from) {
    uint16_t value;
    memcpy(&value, from, sizeof value);
    return __builtin_bswap16(value);
}

static inline uint32_t read_u32(const uint8_t *from) {
    uint32_t value;
    memcpy(&value, from, sizeof value);
    return __builtin_bswap32(value);
}

static inline uint64_t read_u64(const uint8_t *from) {
    uint64_t value;
    memcpy(&value, from, sizeof value);
    return __builtin_bswap64(value);
}

/* These return where the next bytes go. */
static inline uint8_t *put_u16(uint8_t *to, uint16_t value) {
    value = __builtin_bswap16(value);
    memcpy(to, &value, sizeof value);
    return to + sizeof value;
}

static inline uint8_t *put_u32(uint8_t *to, uint32_t value) {
    value = __builtin_bswap32(value);
    memcpy(to, &value, sizeof value);
    return to + sizeof value;
}

static inline uint8_t *put_u64(uint8_t *to, uint64_t value) {
    value = __builtin_bswap64(value);
    memcpy(to, &value, sizeof value);
    return to + sizeof value;
}

#endif
