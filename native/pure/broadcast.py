"""One message to a strip of consumers, and a run of its acknowledgements. Pure.

Consumers are given by slots: indexes into columns of numbers. Slots are an array of type "i",
columns of type "q" (ids of consumers "Q").
"""

from __future__ import annotations

from array import array
from functools import lru_cache
from struct import Struct
from typing import Final, Protocol, final

REST_MAX: Final = 100
TAIL_MAX: Final = 100
_DATA_MAX: Final = 2**31 - 1 - 139
"""Clients in Java read the size of a frame as an int32. The longest head has 139 bytes."""
_INT64_MAX: Final = 2**63 - 1
_INT64_MIN: Final = -(2**63)
_HEAD_SIZE: Final = 13
_ID_MAX: Final = 10
_ROWS_FIRST: Final = 16
_ROWS_MAX: Final = 4096
"""A look at so many frames at once, each time four times as many as were taken the last time."""
_head: Final = Struct(">II5s").pack


def message_frames(
    slots: array[int], consumers: array[int], rest: bytes, data: bytes
) -> list[bytes]:
    """The MESSAGE frames of the slots, in their order, as [head, `data`, head, `data`, ...].

    `consumers` are the ids of the consumers by slot, `rest` the fields of the command that follow
    the id.

    Raises: IndexError: a slot is outside of the column. ValueError: `rest` has more than 100 bytes,
        or `data` has 2 GB.
    """
    frames = [data] * (2 * len(slots))
    frames[::2] = _heads(slots, consumers, rest, len(data))
    return frames


def message_heads(
    slots: array[int], consumers: array[int], rest: bytes, payload_size: int
) -> bytes:
    """The heads of `message_frames` in one block. `payload_size`: of the payload that follows each
    of them. Raises as `message_frames` does."""
    return b"".join(_heads(slots, consumers, rest, payload_size))


def _heads(slots: array[int], consumers: array[int], rest: bytes, payload_size: int) -> list[bytes]:
    if len(rest) > REST_MAX:
        raise ValueError("too much follows the id of the consumer")
    if not 0 <= payload_size <= _DATA_MAX:
        raise ValueError("a frame with so large a payload has a size of more than 31 bits")
    starts = [_start(0x09_4A, 1 + size + len(rest), payload_size) for size in range(_ID_MAX + 1)]
    heads = []
    for slot in slots:
        if slot < 0:
            raise IndexError("a slot is outside of the column")
        consumer = _varint(consumers[slot])
        heads.append(starts[len(consumer)] + consumer + rest)
    return heads


def update_slots(
    slots: array[int], column: array[int], keep: int, value: int, step: int
) -> tuple[int, int]:
    """Set each of the slots in the column to what it was (0 unless `keep`), plus `value`, plus
    `step` for each slot before it. Returns the least and the greatest of the results: without
    slots the greatest and the least number of 64 bits.

    Raises: IndexError: a slot is outside of the column. Those before it are set.
    """
    if not slots:
        return _INT64_MAX, _INT64_MIN
    if min(slots) < 0:
        inside = next(at for at, slot in enumerate(slots) if slot < 0)
        update_slots(slots[:inside], column, keep, value, step)
        raise IndexError("a slot is outside of the column")
    # A loop for each case, because they are half of what a broadcast costs without the extension.
    if not keep and not step:
        for slot in slots:
            column[slot] = value
        return value, value
    if keep and not value and not step:
        numbers = [column[slot] for slot in slots]
    else:
        numbers = []
        for slot in slots:
            number = column[slot] + value if keep else value
            column[slot] = number
            numbers.append(number)
            value += step
    return min(numbers), max(numbers)


class AckTable(Protocol):
    """The numbers of consumers (0 to 2^31 - 1) by their ids (64 bits). Its memory is proportional
    to the consumers in it, whatever their ids are."""

    def __len__(self) -> int: ...

    def put(self, consumer: int, number: int, /) -> None:
        """From now on this is the number of the consumer. Raises: OverflowError."""

    def remove(self, consumer: int, /) -> None:
        """Forget the consumer, if it is there."""

    def take(self, data: bytes, start: int, tail: bytes, /) -> tuple[bytes, int]:
        """The ACK frames from `start` on that end with `tail`, which is all that follows the
        consumer's id: the numbers of their consumers, as int32, and where they end.

        The run ends before the first frame of another form, and before a consumer that is not in
        the table or whose id is written with more bytes than it needs. A tail of more than 100
        bytes has no run. The time is proportional to what is taken.
        """


def ack_table() -> AckTable:
    """An empty table."""
    return _AckTable()


@final
class _AckTable:
    """The table by the ids as they are written, because a run has one size of them for a long time:
    the frames are rows then, and a column is looked up without a step for each frame."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def put(self, consumer: int, number: int, /) -> None:
        """See AckTable."""
        if not 0 <= number < 1 << 31:
            raise OverflowError("a number of a consumer has 31 bits")
        self._numbers[_varint(consumer)] = number

    def remove(self, consumer: int, /) -> None:
        """See AckTable."""
        self._numbers.pop(_varint(consumer), None)

    def take(self, data: bytes, start: int, tail: bytes, /) -> tuple[bytes, int]:
        """See AckTable."""
        found = array("i")
        if start < 0 or len(tail) > TAIL_MAX:
            return b"", start
        rows_max = _ROWS_FIRST
        while True:
            count, end = self._take_rows(data, start, tail, rows_max, found)
            start = end
            if not count:
                return found.tobytes(), start
            rows_max = min(4 * count, _ROWS_MAX)

    def _take_rows(
        self, data: bytes, start: int, tail: bytes, rows_max: int, found: array[int]
    ) -> tuple[int, int]:
        """Append the numbers of a run whose ids have the size of the first one. Returns how many
        they are, and where they end."""
        width = _width(data, start + _HEAD_SIZE, len(data) - len(tail))
        size = _HEAD_SIZE + width + len(tail)
        rows = min((len(data) - start) // size, rows_max)
        if not width or not rows:
            return 0, start
        head = _start(0x0A_52, 1 + width + len(tail), 0)
        form = _row(width, len(tail))
        heads, ids, tails = zip(*form.iter_unpack(data[start : start + rows * size]), strict=True)
        if heads.count(head) != rows or tails.count(tail) != rows:
            same = (each == (head, tail) for each in zip(heads, tails, strict=True))
            rows = next(at for at, is_same in enumerate(same) if not is_same)
        numbers = list(map(self._numbers.get, ids[:rows]))
        if None in numbers:
            rows = numbers.index(None)
        found.extend(number for number in numbers[:rows] if number is not None)
        return rows, start + rows * size


@lru_cache(maxsize=256)
def _row(width: int, tail: int) -> Struct:
    return Struct(f"{_HEAD_SIZE}s{width}s{tail}s")


def _width(data: bytes, at: int, end: int) -> int:
    """Bytes of the varint there; 0 if it does not end."""
    first = at
    while at < end and data[at] & 0x80:
        at += 1
    width = at + 1 - first
    return width if at < end and width <= _ID_MAX else 0


def _start(command: int, content: int, payload: int) -> bytes:
    """A frame up to the id, which is the first field of its command."""
    kind, field = divmod(command, 256)
    return _head(8 + content + payload, 4 + content, bytes((8, kind, field, content & 0xFF, 8)))


def _varint(value: int) -> bytes:
    if value < 1 << 7:
        return bytes((value,))
    if value < 1 << 14:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value < 1 << 21:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
