/* CRC-32C with the processor's instruction: three streams at once, joined by products of
 * polynomials.
 *
 * A result takes three cycles, and an instruction can start in each cycle, so three streams keep
 * the processor busy. A polynomial is written as 32 bits whose highest bit is that of x to the
 * power of 0. Its product with another one in that form has a factor x**33 too much. Each factor
 * below is therefore divided by x**33.
 */
#pragma GCC target("sse4.2,pclmul") /* PyInit__extension refuses processors without them */
#include "checksums.h"

#include <nmmintrin.h>
#include <wmmintrin.h>

#include "extension.h"

enum {
    WORD_BYTES = 8, /* what one instruction takes */
    STREAMS = 3,
    LONG_BYTES = 2048, /* of a stream; there are two sizes because joining has a cost of its own */
    SHORT_BYTES = 256,
};

/* Factors of a checksum that has so many bytes after it. */
static const uint32_t OVER_NOTHING = 0xA9CDDA0D;
static const uint32_t OVER_ONE_BYTE = 0xBF818109;
static const uint32_t OVER_LONG_BYTES = 0xA51B6135;
static const uint32_t OVER_SHORT_BYTES = 0xB9E02B86;

static inline uint32_t product(uint32_t left, uint32_t right) {
    __m128i one = _mm_cvtsi32_si128((int)left), other = _mm_cvtsi32_si128((int)right);
    __m128i wide = _mm_clmulepi64_si128(one, other, 0);
    return (uint32_t)_mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(wide));
}

/* By the binary digits of the size: each is a square of the one before. */
uint32_t crc32c_factor(uint64_t size) {
    uint32_t factor = OVER_NOTHING;
    for (uint32_t power = OVER_ONE_BYTE; size; size >>= 1, power = product(power, power))
        if (size & 1) factor = product(power, factor);
    return factor;
}

uint32_t crc32c_joined(uint32_t first, uint32_t second, uint32_t factor) {
    return product(factor, first) ^ second;
}

/* One step over WORD_BYTES bytes at any address. */
static inline uint64_t step(uint64_t value, const uint8_t *data) {
    __m128i word = _mm_loadl_epi64((const __m128i *)data);
    return _mm_crc32_u64(value, (uint64_t)_mm_cvtsi128_si64(word));
}

/* Over STREAMS stretches of `size` bytes. `over`: the factor of that size. */
static inline uint32_t three_streams(uint32_t value, const uint8_t *data, size_t size,
                                     uint32_t over) {
    uint64_t first = value, second = 0, third = 0;
    for (const uint8_t *end = data + size; data < end; data += WORD_BYTES) {
        first = step(first, data);
        second = step(second, data + size);
        third = step(third, data + 2 * size);
    }
    uint32_t joined = crc32c_joined((uint32_t)first, (uint32_t)second, over);
    return crc32c_joined(joined, (uint32_t)third, over);
}

uint32_t crc32c_of(uint32_t value, const uint8_t *data, size_t size) {
    value = ~value;
    for (; size >= STREAMS * LONG_BYTES; size -= STREAMS * LONG_BYTES) {
        value = three_streams(value, data, LONG_BYTES, OVER_LONG_BYTES);
        data += STREAMS * LONG_BYTES;
    }
    for (; size >= STREAMS * SHORT_BYTES; size -= STREAMS * SHORT_BYTES) {
        value = three_streams(value, data, SHORT_BYTES, OVER_SHORT_BYTES);
        data += STREAMS * SHORT_BYTES;
    }
    for (; size >= WORD_BYTES; size -= WORD_BYTES, data += WORD_BYTES)
        value = (uint32_t)step(value, data);
    for (; size; size--, data++) value = _mm_crc32_u8(value, *data);
    return ~value;
}

PyObject *crc32c(PyObject *module, PyObject *arguments) {
    BUFFER data = {0};
    unsigned int value = 0;
    Py_ssize_t start = 0;
    if (!PyArg_ParseTuple(arguments, "y*|In", &data, &value, &start)) return NULL;
    bool is_outside = start < 0 || start > data.len; /* then there is nothing to sum */
    if (is_outside) start = data.len;
    const uint8_t *from = (const uint8_t *)data.buf + start;
    return PyLong_FromUnsignedLong(crc32c_of(value, from, (size_t)(data.len - start)));
}
