"""Acknowledgements that arrive by the thousand, decoded without a parser.

When all consumers of a connection have received the same message, their ACK frames arrive one after
the other and differ only in the consumer id:

    <total> <command size> 08 0a 52 <size> 08 <consumer>     the head, known per consumer
    10 00 1a <size> 08 <ledger> 10 <entry> [18 ..] [20 ..]   the tail, the same in the whole run

So a run is split at the tail of its first frame, and the heads are looked up. Head and tail
together are exactly one frame, so the result is that of a parser. All other commands and forms of
ACK (cumulative, several ids, batch indexes, a request id) are left to the parser, from the first
byte that does not belong to the run. `FrameDecoder.take_ack_runs` calls this at the beginning of a
frame only, and keeps an incomplete frame.
"""

from __future__ import annotations

import re
from functools import lru_cache
from struct import Struct
from typing import TYPE_CHECKING, Final, Protocol, final

if TYPE_CHECKING:
    from protocol.position import Position

RUN_MIN: Final = 4
"""After a shorter run the rest of the data is left to the parser: looking for runs costs a scan."""
RUNS_MAX: Final = 256
"""After so many runs the rest of the data is left to the parser, too: one turn takes all runs."""
_PIECE_BYTES_MIN: Final = 1024
"""More than one ACK of a run can have, so that a piece with none of them is the end of the run."""
_TABLES_MAX: Final = 4
_TAIL_MAX: Final = 128
"""More than the expression below can match, so that nothing large is remembered."""
_HEAD: Final = b"\x08\x0a\x52"
_HEAD_OFFSET: Final = 8
_CONSUMER_OFFSET: Final = 13
_pack_sizes: Final = Struct(">II").pack
_VARINT: Final = rb"([\x80-\xff]{0,9}[\x00-\x7f])"
_TAIL: Final = re.compile(
    rb"\x10\x00\x1a([\x00-\x7f])(\x08" + _VARINT + rb"\x10" + _VARINT
    # The number of the partition and of the message in its batch: the whole entry is meant.
    + rb"(?:\x18" + _VARINT + rb")?(?:\x20" + _VARINT + rb")?)",
    re.DOTALL,
)  # fmt: skip

AckRun = tuple[list[int], "Position"]
"""(numbers of consumers, in the order of their ACKs; the entry that all of them acknowledge)."""


class AckRunTarget(Protocol):
    """Takes the plain ACKs of its consumers by the run."""

    def ack_run(self, consumers: list[int], position: Position) -> None:
        """All of the consumers have acknowledged the whole entry. They are given by the numbers
        under which they were added to the connection's `AckRuns`."""


@final
class AckRuns:
    """The consumers of one connection whose plain ACKs are taken by the run, by the first bytes of
    their ACK frames. The caller of `add` chooses a consumer's number."""

    __slots__ = ("_consumers", "_tables")

    def __init__(self) -> None:
        self._consumers: dict[bytes, int] = {}
        self._tables: dict[int, dict[bytes, int]] = {}

    @property
    def unused(self) -> bool:
        """Whether it knows no consumer."""
        return not self._consumers

    def add(self, consumer: bytes, number: int) -> None:
        """A consumer (its id as a varint) was attached."""
        self._consumers[consumer] = number
        for tail_size, table in self._tables.items():
            table[_head(consumer, tail_size)] = number

    def remove(self, consumer: bytes) -> None:
        """It has left."""
        self._consumers.pop(consumer, None)
        for tail_size, table in self._tables.items():
            table.pop(_head(consumer, tail_size), None)

    def take(self, data: bytes, runs: list[AckRun]) -> int:
        """Append the runs that `data` begins with, and return how many bytes they are. `data`
        begins with a frame. The time is proportional to what is taken."""
        taken = 0
        while len(runs) < RUNS_MAX and data.startswith(_HEAD, taken + _HEAD_OFFSET):
            end = taken + 4 + int.from_bytes(data[taken : taken + 4], "big")
            if end > len(data):
                break
            start = taken + _CONSUMER_OFFSET
            while start < end and data[start] & 0x80:
                start += 1
            if start >= end:  # compiled, a slice that ends before it begins is a SystemError
                break
            tail = data[start + 1 : end]
            position = _position(tail)
            if position is None:
                break
            consumers, taken = self._take_run(data, taken, tail)
            if consumers:
                runs.append((consumers, position))
            if len(consumers) < RUN_MIN:
                break
        return taken

    def _take_run(self, data: bytes, at: int, tail: bytes) -> tuple[list[int], int]:
        """The consumers of the run at `at`, and where it ends. The data is split in pieces that
        grow with the run, so that many short runs do not cost a pass over all of the data each."""
        consumers: list[int] = []
        known = self._table(len(tail)).get
        size = _PIECE_BYTES_MIN
        while True:
            piece = data[at : at + size]
            parts = piece.split(tail)
            rest = parts.pop()
            found = list(map(known, parts))
            if None in found:
                count = found.index(None)
                consumers += [number for number in found[:count] if number is not None]
                return consumers, at + sum(map(len, parts[:count])) + count * len(tail)
            consumers += [number for number in found if number is not None]
            at += len(piece) - len(rest)
            if not found or len(piece) < size:
                return consumers, at
            size *= 4

    def _table(self, tail_size: int) -> dict[bytes, int]:
        table = self._tables.get(tail_size)
        if table is None:
            while len(self._tables) >= _TABLES_MAX:
                del self._tables[next(iter(self._tables))]
            table = {_head(each, tail_size): number for each, number in self._consumers.items()}
            self._tables[tail_size] = table
        return table


def _head(consumer: bytes, tail_size: int) -> bytes:
    """How an ACK frame of the consumer begins, up to its tail of that size."""
    content = 1 + len(consumer) + tail_size
    return b"%b\x08\x0a\x52%c\x08%b" % (
        _pack_sizes(8 + content, 4 + content),
        min(content, 0x7F),
        consumer,
    )


def _position(tail: bytes) -> Position | None:
    """The entry that the tail of a plain ACK names."""
    # All consumers acknowledge the same few entries. No plain ACK has a longer tail than this.
    return _read_position(tail) if len(tail) <= _TAIL_MAX else None


@lru_cache(maxsize=64)
def _read_position(tail: bytes) -> Position | None:
    match = _TAIL.fullmatch(tail)
    if match is None or len(match[2]) != match[1][0]:
        return None
    position = (_number(match[3]), _number(match[4]))
    return position if max(position) < 1 << 63 else None


def _number(varint: bytes) -> int:
    value = 0
    for shift, byte in enumerate(varint):
        value |= (byte & 0x7F) << (7 * shift)
    return value
