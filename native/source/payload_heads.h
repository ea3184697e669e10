/* The start of the payload of a SEND. Three forms are told apart: a magic and the CRC-32C of all
 * that follows; another magic, before what only a broker writes; the size of the metadata, at once.
 */
#ifndef VELA_PAYLOAD_HEADS_H
#define VELA_PAYLOAD_HEADS_H

#include <stdbool.h>
#include <stddef.h>

#include "big_endian.h"

enum {
    CHECKSUM_MAGIC = 0x0E01,
    BROKER_METADATA_MAGIC = 0x0E02,
    PAYLOAD_CHECKSUM_AT = 2,
    CHECKED_FROM = 6, /* where the bytes begin that the checksum covers */
};

/* Whether the payload has room for a checksum, and begins as one that has it. */
static inline bool has_checksum(const uint8_t *payload, size_t size) {
    if (size < CHECKED_FROM) return false;
    return read_u16(payload) == CHECKSUM_MAGIC;
}

#endif
