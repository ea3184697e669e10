"""One message to a strip of consumers, and a run of its acknowledgements. Pure.

Consumers are given by slots: indexes into columns of numbers. Slots are an array of type "i",
columns of type "q" (ids of consumers "Q").
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from array import array

REST_MAX: Final = 100
TAIL_MAX: Final = 100
_INT64_MAX: Final = 2**63 - 1
_INT64_MIN: Final = -(2**63)
_HEAD_SIZE: Final = 13
_ID_MAX: Final = 10
_head: Final = Struct(">II5s").pack


def message_frames(
    slots: array[int], consumers: array[int], rest: bytes, data: bytes
) -> list[bytes]:
    """The MESSAGE frames of the slots, in their order, as [head, `data`, head, `data`, ...].

    `consumers` are the ids of the consumers by slot, `rest` the fields of the command that follow
    the id.

    Raises: IndexError: a slot is outside of the column. ValueError: `rest` has more than 100 bytes.
    """
    if len(rest) > REST_MAX:
        raise ValueError("too much follows the id of the consumer")
    starts = [_start(0x09_4A, 1 + size + len(rest), len(data)) for size in range(_ID_MAX + 1)]
    frames = [data] * (2 * len(slots))
    for number, slot in enumerate(slots):
        if slot < 0:
            raise IndexError("a slot is outside of the column")
        consumer = _varint(consumers[slot])
        frames[2 * number] = starts[len(consumer)] + consumer + rest
    return frames


def update_slots(
    slots: array[int], column: array[int], keep: int, value: int, step: int
) -> tuple[int, int]:
    """Set each of the slots in the column to what it was (0 unless `keep`), plus `value`, plus
    `step` for each slot before it. Returns the least and the greatest of the results: without
    slots the greatest and the least number of 64 bits.

    Raises: IndexError: a slot is outside of the column. Those before it are set.
    """
    least, most = _INT64_MAX, _INT64_MIN
    for slot in slots:
        if slot < 0:
            raise IndexError("a slot is outside of the column")
        number = column[slot] + value if keep else value
        column[slot] = number
        value += step
        least = min(least, number)
        most = max(most, number)
    return least, most


def take_acks(
    data: bytes, start: int, tail: bytes, first: int, numbers: array[int]
) -> tuple[bytes, int]:
    """The ACK frames from `start` on that end with `tail`, which is all that follows the consumer's
    id: their consumers, as int32, and where they end.

    `numbers` are the numbers of consumers by id, of which `first` is the first one's. The run ends
    before the first frame of another form, and before a consumer whose number is negative or that
    is outside of `numbers`. A tail of more than 100 bytes has no run.
    """
    found = bytearray()
    if start < 0 or len(tail) > TAIL_MAX:
        return bytes(found), start
    starts = [_start(0x0A_52, 1 + size + len(tail), 0) for size in range(_ID_MAX + 1)]
    while len(data) - start > _HEAD_SIZE + len(tail):
        at = start + _HEAD_SIZE
        last = min(len(data) - len(tail), at + _ID_MAX) - 1
        consumer = shift = 0
        while at < last and data[at] & 0x80:
            consumer |= (data[at] & 0x7F) << shift
            shift += 7
            at += 1
        size = at + 1 - start - _HEAD_SIZE
        consumer = ((consumer | data[at] << shift) - first) % 2**64
        if (
            data[at] & 0x80
            or not data.startswith(starts[size], start)
            or not data.startswith(tail, at + 1)
            or not 0 <= consumer < len(numbers)
            or numbers[consumer] < 0
        ):
            break
        found += numbers[consumer].to_bytes(4, "little")
        start = at + 1 + len(tail)
    return bytes(found), start


def _start(command: int, content: int, payload: int) -> bytes:
    """A frame up to the id, which is the first field of its command."""
    kind, field = divmod(command, 256)
    return _head(8 + content + payload, 4 + content, bytes((8, kind, field, content & 0xFF, 8)))


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
