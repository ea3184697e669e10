/* CRC-32C (polynomial 0x1EDC6F41, bits reflected). Twin: ../pure/checksums.py. */
#ifndef VELA_CHECKSUMS_H
#define VELA_CHECKSUMS_H

#include <stddef.h>
#include <stdint.h>

/* Checksum of the bytes, after others with the checksum `value` (0: there are none before). */
uint32_t crc32c_of(uint32_t value, const uint8_t *data, size_t size);

/* What crc32c_joined needs to know of bytes of this size. It costs up to two products for each bit
 * of the size, so a caller with many bytes of one size keeps it. */
uint32_t crc32c_factor(uint64_t size);

/* Checksum of bytes with the checksum `first` and others with `second` after them. `factor`: of the
 * size of the others. */
uint32_t crc32c_joined(uint32_t first, uint32_t second, uint32_t factor);

#endif
