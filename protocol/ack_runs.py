"""Acknowledgements that arrive by the thousand, decoded without a parser.

When all consumers of a connection have received the same message, their ACK frames arrive one after
the other and differ only in the consumer id:

    <total> <command size> 08 0a 52 <size> 08 <consumer>     the head
    10 00 1a <size> 08 <ledger> 10 <entry> [18 ..] [20 ..]   the tail, the same in the whole run

So the tail of the first frame is read, and the table takes the frames that have the same
one. Head and tail together are exactly one frame, so the result is that of a parser. All other
commands and forms of ACK (cumulative, several ids, batch indexes, a request id) are left to the
parser, from the first byte that does not belong to the run. `RequestDecoder.take_ack_runs` calls
this at the beginning of a frame only, and keeps an incomplete frame.

A client numbers its consumers over all of its connections, so the ids of one connection are as far
apart as there are connections, or in no order at all. A table finds each of them, whatever the ids
are (`native.broadcast`).
"""

from __future__ import annotations

import re
from array import array
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Protocol, final

from native.broadcast import ack_table

if TYPE_CHECKING:
    from native.broadcast import AckTable
    from protocol.position import Position

RUN_MIN: Final = 4
"""After a shorter run the rest of the data is left to the parser: looking for runs costs a scan."""
RUNS_MAX: Final = 256
"""After so many runs the rest of the data is left to the parser, too: one turn takes all runs."""
_TAIL_MAX: Final = 100
"""More than the expression below can match, so that nothing large is remembered."""
_HEAD: Final = b"\x08\x0a\x52"
_HEAD_OFFSET: Final = 8
_CONSUMER_OFFSET: Final = 13
_VARINT: Final = rb"([\x80-\xff]{0,9}[\x00-\x7f])"
_TAIL: Final = re.compile(
    rb"\x10\x00\x1a([\x00-\x7f])(\x08" + _VARINT + rb"\x10" + _VARINT
    # The number of the partition and of the message in its batch: the whole entry is meant.
    + rb"(?:\x18" + _VARINT + rb")?(?:\x20" + _VARINT + rb")?)",
    re.DOTALL,
)  # fmt: skip

AckRun = tuple["array[int]", "Position"]
"""(numbers of consumers, type "i", in the order of their ACKs; the entry that all of them
acknowledge)."""


class AckRunTarget(Protocol):
    """Takes the plain ACKs of its consumers by the run."""

    def ack_run(self, consumers: array[int], position: Position) -> None:
        """All of the consumers have acknowledged the whole entry. They are given by the numbers
        under which they were added to the connection's `AckRuns`. The callee owns the array."""


@final
class AckRuns:
    """The consumers of one connection whose plain ACKs are taken by the run. The caller of `add`
    chooses a consumer's number (0 to 2^31 - 1)."""

    __slots__ = ("_table",)

    def __init__(self) -> None:
        self._table: AckTable = ack_table()

    @property
    def unused(self) -> bool:
        """Whether it knows no consumer."""
        return not len(self._table)

    def add(self, consumer_id: int, number: int) -> None:
        """A consumer was attached."""
        self._table.put(consumer_id, number)

    def remove(self, consumer_id: int) -> None:
        """It has left."""
        self._table.remove(consumer_id)

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
            found, taken = self._table.take(data, taken, tail)
            consumers = array("i", found)
            if consumers:
                runs.append((consumers, position))
            if len(consumers) < RUN_MIN:
                break
        return taken


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
