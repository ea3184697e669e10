"""ACK of one whole entry, read straight from its bytes.

A client that acknowledges one by one sends a command per message. Building the protobuf objects and
asking them for three numbers costs several times as much as reading the numbers. Only the form that
clients write is read here (fields in order, one message id without an ack set, no request id);
anything else goes through protobuf, with the same result: `protocol/tests/test_plain_acks.py` holds
the two equal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from protocol import pulsar_api_pb2 as pb

if TYPE_CHECKING:
    from mypy_extensions import i64

ACK_PREFIX: Final = b"\x08\x0a\x52"
"""BaseCommand.type = ACK, then the tag of BaseCommand.ack, whose size is the next byte."""

_CONSUMER_ID: Final = 0x08
_ACK_TYPE: Final = 0x10
_MESSAGE_ID: Final = 0x1A
_LEDGER_ID: Final = 0x08
_ENTRY_ID: Final = 0x10
_NEXT_FIELDS: Final = (0x18, 0x20)
"""The number of the partition, and of the message in its batch: the whole entry is meant."""
_VARINT_BITS_READ: Final = 63
"""More do not fit into an i64, with which compiled code computes without objects."""
_VARINT_SIZE_MAX: Final = 10


@final
class PlainAck:
    """An acknowledgement of the entry, or of all up to it."""

    __slots__ = ("consumer_id", "entry_id", "is_cumulative", "ledger_id")

    def __init__(
        self, consumer_id: int, ledger_id: int, entry_id: int, is_cumulative: bool
    ) -> None:
        self.consumer_id = consumer_id
        self.ledger_id = ledger_id
        self.entry_id = entry_id
        self.is_cumulative = is_cumulative

    def command(self) -> pb.BaseCommand:
        """As protobuf would have read it."""
        command = pb.BaseCommand(type=pb.BaseCommand.ACK)
        command.ack.consumer_id = self.consumer_id
        command.ack.ack_type = (
            pb.CommandAck.Cumulative if self.is_cumulative else pb.CommandAck.Individual
        )
        command.ack.message_id.add(ledgerId=self.ledger_id, entryId=self.entry_id)
        return command


def read_ack(data: bytes, start: i64, end: i64) -> PlainAck | None:
    """The ACK command at `data[start:end]`, which begins with ACK_PREFIX; None if it is one that
    protobuf has to look at (longer, other fields, or broken)."""
    position: i64 = start + 4
    if data[start + 3] != end - position or position >= end or data[position] != _CONSUMER_ID:
        return None
    consumer_id, position = _number(data, position + 1, end)
    if consumer_id < 0 or position + 4 > end or data[position] != _ACK_TYPE:
        return None
    kind: i64 = data[position + 1]
    if kind > 1 or data[position + 2] != _MESSAGE_ID or data[position + 3] != end - position - 4:
        return None
    position += 4
    if position >= end or data[position] != _LEDGER_ID:
        return None
    ledger_id, position = _number(data, position + 1, end)
    if ledger_id < 0 or position >= end or data[position] != _ENTRY_ID:
        return None
    entry_id, position = _number(data, position + 1, end)
    if entry_id < 0:
        return None
    for field in _NEXT_FIELDS:
        if position < end and data[position] == field:
            position = _after_varint(data, position + 1, end)
    if position != end:
        return None
    return PlainAck(consumer_id, ledger_id, entry_id, kind == 1)


def _number(data: bytes, position: i64, end: i64) -> tuple[i64, i64]:
    """The varint there, and where it ends. Negative: it is none, or too large."""
    value: i64 = 0
    shift: i64 = 0
    while position < end and shift < _VARINT_BITS_READ:
        byte: i64 = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    return -1, position


def _after_varint(data: bytes, position: i64, end: i64) -> i64:
    """Where a varint ends. Negative: it is none."""
    last: i64 = min(end, position + _VARINT_SIZE_MAX)
    while position < last:
        position += 1
        if data[position - 1] < 0x80:
            return position
    return -1
