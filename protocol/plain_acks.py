"""ACK of whole entries, read straight from its bytes.

A client that acknowledges one by one sends a command per message, others one with many ids.
Building the protobuf objects and asking them for their numbers costs several times as much as
reading the numbers. Only the form that clients write is read here (fields in order, message ids of
one ledger without ack sets, no request id); anything else goes through protobuf, with the same
result: `protocol/tests/test_plain_acks.py` holds the two equal.

Commands that follow each other, of one consumer and for entries of one ledger, are one object with
a column of entry ids.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from protocol import pulsar_api_pb2 as pb
from protocol.varints import after_varint, read_varint

if TYPE_CHECKING:
    from mypy_extensions import i64

ACK_PREFIX: Final = b"\x08\x0a\x52"
"""BaseCommand.type = ACK, then the tag of BaseCommand.ack, whose size is the next byte."""

_CONSUMER_ID: Final = 0x08
_ACK_TYPE: Final = 0x10
_MESSAGE_ID: Final = 0x1A
_LEDGER_ID: Final = 0x08
_ENTRY_ID: Final = 0x10
_PARTITION: Final = 0x18
_BATCH_INDEX: Final = 0x20
"""The number of the message in its batch: with it, too, the whole entry is meant."""
_PREFIX_0: Final = ACK_PREFIX[0]
_PREFIX_1: Final = ACK_PREFIX[1]
_PREFIX_2: Final = ACK_PREFIX[2]
_FRAME_HEAD_SIZE: Final = 8
_COMMAND_BYTES_MIN: Final = 14
_COMMAND_BYTES_MAX: Final = 16 * 1024
"""Room for the thousand ids that Java's clients group. Longer commands are divided
(`long_commands`)."""
ACKS_PER_RUN_MAX: Final = 256
"""A run that has so many takes in no further command. It is handled in one step."""


@final
class PlainAck:
    """Acknowledgements of entries of one ledger by one consumer, in the order in which they came;
    a cumulative one, of all up to its entry, comes alone."""

    __slots__ = ("consumer_id", "entry_ids", "is_cumulative", "ledger_id")

    def __init__(
        self, consumer_id: int, ledger_id: int, entry_ids: list[int], is_cumulative: bool
    ) -> None:
        self.consumer_id = consumer_id
        self.ledger_id = ledger_id
        self.entry_ids = entry_ids
        self.is_cumulative = is_cumulative

    def command(self) -> pb.BaseCommand:
        """As protobuf would have read it; several are one command with several ids."""
        command = pb.BaseCommand(type=pb.BaseCommand.ACK)
        command.ack.consumer_id = self.consumer_id
        command.ack.ack_type = (
            pb.CommandAck.Cumulative if self.is_cumulative else pb.CommandAck.Individual
        )
        for entry_id in self.entry_ids:
            command.ack.message_id.add(ledgerId=self.ledger_id, entryId=entry_id)
        return command


def read_acks(
    data: bytes, start: i64, end: i64, frame_bytes_max: i64
) -> tuple[PlainAck, i64] | None:
    """The ACK command at `data[start:end]`, which begins with ACK_PREFIX, with those of the whole
    frames after it that acknowledge other entries of its ledger for its consumer, and where the
    last of them ends; None if the first is one that protobuf has to look at (other fields, several
    ledgers, very long, or broken). A frame larger than `frame_bytes_max` is left to the caller."""
    if end - start > _COMMAND_BYTES_MAX:
        return None
    entry_ids: list[int] = []
    consumer_id, kind, ledger_id = _read(data, start, end, entry_ids)
    if ledger_id < 0 or (kind == 1 and len(entry_ids) != 1):
        return None
    size_max: i64 = min(frame_bytes_max - _FRAME_HEAD_SIZE, _COMMAND_BYTES_MAX)
    length: i64 = len(data)
    while kind == 0 and len(entry_ids) < ACKS_PER_RUN_MAX and end + _COMMAND_BYTES_MIN < length:
        size: i64 = data[end + 6]
        size = size << 8 | data[end + 7]
        total: i64 = data[end + 2]
        total = total << 8 | data[end + 3]
        high: i64 = data[end]
        high = high << 8 | data[end + 1]
        high = high << 8 | data[end + 4]
        high = high << 8 | data[end + 5]
        begin = end + _FRAME_HEAD_SIZE
        if (
            high != 0
            or total != size + 4
            or size < _COMMAND_BYTES_MIN
            or size > size_max
            or begin + size > length
            or data[begin] != _PREFIX_0
            or data[begin + 1] != _PREFIX_1
            or data[begin + 2] != _PREFIX_2
        ):
            break
        before = len(entry_ids)
        its_consumer, its_kind, its_ledger = _read(data, begin, begin + size, entry_ids)
        if its_kind != 0 or its_consumer != consumer_id or its_ledger != ledger_id:
            del entry_ids[before:]
            break
        end = begin + size
    return PlainAck(consumer_id, ledger_id, entry_ids, kind == 1), end


def _read(data: bytes, start: i64, end: i64, entry_ids: list[int]) -> tuple[i64, i64, i64]:
    """Append the entries of the command there. Returns its consumer, 1 if it is cumulative, and its
    ledger: negative if it is no command that is read here, and what was appended is void."""
    size, position = read_varint(data, start + 3, end)
    if size != end - position or position >= end or data[position] != _CONSUMER_ID:
        return 0, 0, -1
    consumer_id, position = read_varint(data, position + 1, end)
    if consumer_id < 0 or position + 4 > end or data[position] != _ACK_TYPE:
        return 0, 0, -1
    kind: i64 = data[position + 1]
    if kind > 1:
        return 0, 0, -1
    position += 2
    ledger_id: i64 = -1
    while position < end:
        if position + 4 > end or data[position] != _MESSAGE_ID:
            return 0, 0, -1
        stop = position + 2 + data[position + 1]
        if data[position + 1] > 0x7F or stop > end or data[position + 2] != _LEDGER_ID:
            return 0, 0, -1
        its_ledger, position = read_varint(data, position + 3, stop)
        if its_ledger < 0 or (ledger_id >= 0 and its_ledger != ledger_id):
            return 0, 0, -1
        ledger_id = its_ledger
        if position >= stop or data[position] != _ENTRY_ID:
            return 0, 0, -1
        entry_id, position = read_varint(data, position + 1, stop)
        if entry_id < 0:
            return 0, 0, -1
        if position < stop and data[position] == _PARTITION:
            position = after_varint(data, position + 1, stop)
        if position < stop and data[position] == _BATCH_INDEX:
            position = after_varint(data, position + 1, stop)
        if position != stop:
            return 0, 0, -1
        entry_ids.append(entry_id)
    return consumer_id, kind, ledger_id
