/* CRC-32C with the processor's instruction: three streams at once, joined by products of polynomials. */
#pragma GCC target("sse4.2,pclmul")
#include "parts.h"
#include <nmmintrin.h>
#include <wmmintrin.h>

/* Factors are divided by x**33, because a product of two bit-reversed polynomials has that factor too much. */
enum { LONG = 2048, SHORT = 256 };
static const uint32_t ONE = 0xA9CDDA0D, ONE_BYTE = 0xBF818109, OVER_LONG = 0xA51B6135, OVER_SHORT = 0xB9E02B86;

uint32_t vela_crc32c_product(uint32_t left, uint32_t right) {
    __m128i wide = _mm_clmulepi64_si128(_mm_cvtsi32_si128((int)left), _mm_cvtsi32_si128((int)right), 0);
    return (uint32_t)_mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(wide));
}

uint32_t vela_crc32c_over(uint64_t bytes) {
    uint32_t factor = ONE, power = ONE_BYTE;
    for (; bytes; bytes >>= 1, power = vela_crc32c_product(power, power))
        factor = bytes & 1 ? vela_crc32c_product(power, factor) : factor;
    return factor;
}

static uint64_t next(uint64_t value, const uint8_t *data) {
    return _mm_crc32_u64(value, (uint64_t)_mm_cvtsi128_si64(_mm_loadl_epi64((const __m128i *)data)));
}

static uint32_t three_streams(uint64_t first, const uint8_t *data, size_t size, uint32_t over) {
    uint64_t second = 0, third = 0;
    for (const uint8_t *end = data + size; data < end; data += 8) {
        first = next(first, data);
        second = next(second, data + size);
        third = next(third, data + 2 * size);
    }
    second ^= vela_crc32c_product(over, (uint32_t)first);
    return vela_crc32c_product(over, (uint32_t)second) ^ (uint32_t)third;
}

uint32_t vela_crc32c_of(uint32_t value, const uint8_t *data, size_t size) {
    uint32_t now = ~value;
    for (; size >= 3 * LONG; data += 3 * LONG, size -= 3 * LONG)
        now = three_streams(now, data, LONG, OVER_LONG);
    for (; size >= 3 * SHORT; data += 3 * SHORT, size -= 3 * SHORT)
        now = three_streams(now, data, SHORT, OVER_SHORT);
    for (; size >= 8; data += 8, size -= 8) now = (uint32_t)next(now, data);
    for (; size; data++, size--) now = _mm_crc32_u8(now, *data);
    return ~now;
}

VELA(crc32c) {
    BUFFER data = {0};
    unsigned int value = 0;
    Py_ssize_t start = 0;
    if (!PyArg_ParseTuple(arguments, "y*|In", &data, &value, &start)) return NULL;
    start = start < 0 || start > data.len ? data.len : start;
    value = vela_crc32c_of(value, (const uint8_t *)data.buf + start, (size_t)(data.len - start));
    return PyLong_FromUnsignedLong(value);
}
