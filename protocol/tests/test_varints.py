"""Numbers read without objects, against protobuf's rule: seven bits a byte, the lowest first."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from protocol.templates import varint
from protocol.varints import after_varint, read_varint

numbers = st.integers(0, 300) | st.integers(0, 2**64 - 1)


@given(numbers, st.binary(max_size=3), st.binary(max_size=3))
@example(2**63 - 1, b"", b"")
@example(2**63, b"", b"\x00")
def test_a_number_is_read_where_it_stands_and_one_of_64_bits_is_declined(number, before, after):
    encoded = varint(number)
    data, start = before + encoded + after, len(before)
    end = start + len(encoded)

    assert after_varint(data, start, len(data)) == end
    if number < 2**63:
        assert read_varint(data, start, len(data)) == (number, end)
    else:
        assert read_varint(data, start, len(data)) == (-1, -1)


@given(numbers, st.binary(max_size=12))
def test_a_number_that_goes_on_beyond_the_end_is_none(number, after):
    """Whatever bytes there are beyond it."""
    encoded = varint(number)
    data = encoded + after
    for end in range(len(encoded)):
        assert read_varint(data, 0, end) == (-1, -1)
        assert after_varint(data, 0, end) == end + 1


@given(st.integers(10, 20), st.integers(0, 0x7F))
def test_a_number_of_more_than_ten_bytes_is_none(continued, last):
    data = b"\x80" * continued + bytes((last,))

    assert read_varint(data, 0, len(data)) == (-1, -1)
    assert after_varint(data, 0, len(data)) == len(data) + 1
