"""The fields of a protobuf message in their usual form: what two loops over messages read. Pure."""

from __future__ import annotations

from typing import Final, final

FIELDS: Final = 20
"""Numbers of fields are below this."""
_VARINT_BITS: Final = 63


class Unusual(Exception):
    """The message is not in its usual form."""


@final
class Fields:
    """The fields by their numbers: a number, or the size of bytes (0 unless it is there), and where
    it ends. The last one counts if a field is there several times."""

    __slots__ = ("ends", "seen", "values")

    def __init__(self) -> None:
        self.values = [0] * FIELDS
        self.ends = [0] * FIELDS
        self.seen = 0
        """A bit for each field that is there."""


def read_fields(data: bytes, at: int, end: int, numbers: int, texts: int) -> Fields:
    """The fields of the message at `data[at:end]`, whose numbers may be those with a bit in
    `numbers`, and with bytes as content those in `texts`.

    Raises: Unusual: it has others, tags of more than two bytes, a number of more than 63 bits, or
        passes its end.
    """
    fields = Fields()
    while at < end:
        tag = data[at]
        at += 1
        if tag > 0x7F:
            if at == end or data[at] > 0x7F:
                raise Unusual
            tag = tag & 0x7F | data[at] << 7
            at += 1
        value, at = _varint(data, at, end)
        number, wire_type = divmod(tag, 8)
        allowed = {0: numbers, 2: texts}.get(wire_type, 0)
        if number >= FIELDS or not allowed >> number & 1:
            raise Unusual
        if wire_type:
            if value > end - at:
                raise Unusual
            at += value
        fields.seen |= 1 << number
        fields.values[number] = value
        fields.ends[number] = at
    return fields


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """The number at `at`, and where it ends.

    Raises: Unusual: it passes the end, or has more than 63 bits.
    """
    value = shift = 0
    while at < end and shift < _VARINT_BITS:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise Unusual
