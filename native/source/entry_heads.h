/* The head of an entry as BookKeeper's DigestManager writes it: four numbers, and a CRC-32C of
 * these numbers and the payload, which follows. */
#ifndef VELA_ENTRY_HEADS_H
#define VELA_ENTRY_HEADS_H

#include "big_endian.h"
#include "checksums.h"

enum {
    LEDGER_ID_AT = 0,
    ENTRY_ID_AT = 8,
    LAST_CONFIRMED_AT = 16, /* the entry up to which all were stored when this one was sent */
    LENGTH_AT = 24,         /* payload bytes of the ledger up to the end of this entry */
    DIGEST_AT = 32,
    ENTRY_HEAD_BYTES = 36,
};

/* The digest of an entry begins with that of the numbers, which are the `head` up to DIGEST_AT. */
static inline uint32_t digest_of_numbers(const uint8_t *head) {
    return crc32c_of(0, head, DIGEST_AT);
}

#endif
