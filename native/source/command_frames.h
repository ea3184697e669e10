/* The start of a frame with a command of Pulsar's protocol that has one field besides its type:
 *
 *     size of all that follows (4) | size of the command (4) | 08 <type> <tag> <size> | content
 *
 * A payload may follow the content. Sizes of contents are below 128, so that <size> is one byte.
 */
#ifndef VELA_COMMAND_FRAMES_H
#define VELA_COMMAND_FRAMES_H

#include "big_endian.h"

enum {
    FRAME_SIZE_AT = 0,
    COMMAND_SIZE_AT = 4,
    COMMAND_AT = 8,
    CONTENT_AT = 12,
    COMMAND_START_BYTES = CONTENT_AT - COMMAND_AT,
    CONTENT_BYTES_MAX = 127,
};

/* BaseCommand.type, whose number is also that of the field with the content. */
enum { SEND = 6, MESSAGE = 9, ACK = 10 };

/* The tag of BaseCommand.type, and of a field with bytes as its content. */
enum { TYPE_TAG = 0x08, TEXT_TAG = 2 };

/* The four bytes from COMMAND_AT on as one number. */
static inline uint32_t command_start(uint32_t type, uint32_t content) {
    uint32_t tag = type << 3 | TEXT_TAG;
    return (uint32_t)TYPE_TAG << 24 | type << 16 | tag << 8 | content;
}

/* Writes the CONTENT_AT bytes up to the content. `content` is at most CONTENT_BYTES_MAX, and both
 * sizes together have 32 bits. */
static inline void put_command_start(uint8_t *to, uint32_t type, size_t content, size_t payload) {
    size_t command = COMMAND_START_BYTES + content;
    to = put_u32(to, (uint32_t)(COMMAND_AT - COMMAND_SIZE_AT + command + payload));
    to = put_u32(to, (uint32_t)command);
    put_u32(to, command_start(type, (uint32_t)content));
}

#endif
