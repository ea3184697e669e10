"""Message ids in their four forms: on the wire, as positions, as JSON of the admin API, as text.

On the wire ids are unsigned, so -1 arrives as 2^64-1; everywhere else they are signed. A message id
is a position plus what is only known to clients: partition and index within the batch.
"""

from __future__ import annotations

from typing import NamedTuple

from google.protobuf.message import DecodeError

from protocol import pulsar_api_pb2 as pb
from protocol.errors import RemoteProtocolError
from protocol.json_numbers import number_of
from protocol.position import EARLIEST, ID_MAX, LATEST, Position, signed_id, unsigned_id


class MessageId(NamedTuple):
    """The address of a message; `batch_index` is -1 for an entry as a whole."""

    ledger_id: int
    entry_id: int
    partition: int = -1
    batch_index: int = -1
    ack_set: tuple[int, ...] = ()

    @property
    def position(self) -> Position:
        """The entry the message is in."""
        return (self.ledger_id, self.entry_id)

    def __str__(self) -> str:
        text = f"{self.ledger_id}:{self.entry_id}:{self.partition}"
        return text if self.batch_index < 0 else f"{text}:{self.batch_index}"


def position_of(data: pb.MessageIdData) -> Position:
    """The position a message id of the wire names."""
    ledger_id, entry_id = data.ledgerId, data.entryId
    if ledger_id > ID_MAX or entry_id > ID_MAX:
        return (signed_id(ledger_id), signed_id(entry_id))
    return (ledger_id, entry_id)


def from_wire(data: pb.MessageIdData) -> MessageId:
    """Everything a message id of the wire says."""
    ledger_id, entry_id = position_of(data)
    return MessageId(ledger_id, entry_id, data.partition, data.batch_index, tuple(data.ack_set))


def to_wire(message_id: MessageId) -> pb.MessageIdData:
    """The wire form; partition and batch index only where they are set."""
    data = pb.MessageIdData(
        ledgerId=unsigned_id(message_id.ledger_id),
        entryId=unsigned_id(message_id.entry_id),
        ack_set=message_id.ack_set,
    )
    if message_id.partition >= 0:
        data.partition = message_id.partition
    if message_id.batch_index >= 0:
        data.batch_index = message_id.batch_index
    return data


def to_bytes(message_id: MessageId) -> bytes:
    """The form clients serialize message ids to."""
    return to_wire(message_id).SerializeToString()


def from_bytes(data: bytes) -> MessageId:
    """The inverse of `to_bytes`.

    Raises: RemoteProtocolError: no message id.
    """
    try:
        wire = pb.MessageIdData.FromString(data)
    except DecodeError as error:
        raise RemoteProtocolError(f"message id cannot be read: {error}") from None
    if not wire.IsInitialized():
        raise RemoteProtocolError("message id without ledger id or entry id")
    return from_wire(wire)


def to_json(message_id: MessageId) -> dict[str, int]:
    """As answers of the admin API write it."""
    fields = {
        "ledgerId": message_id.ledger_id,
        "entryId": message_id.entry_id,
        "partitionIndex": message_id.partition,
    }
    if message_id.batch_index >= 0:
        fields["batchIndex"] = message_id.batch_index
    return fields


def from_json(fields: object) -> MessageId:
    """As requests of the admin API write it; clients add fields of their own, which are ignored.

    Raises: ValueError: it is no object, or a number is missing, is none, or has more than 64 bits.
    """
    if not isinstance(fields, dict):
        raise ValueError(f"message id must be an object, got {str(fields)[:40]!r}")
    numbers = []
    defaults = (("ledgerId", None), ("entryId", None), ("partitionIndex", -1), ("batchIndex", -1))
    for name, default in defaults:
        given = fields.get(name, default)
        value = number_of(given)
        if value is None:
            raise ValueError(f"message id: {name} must be a number, got {str(given)[:40]!r}")
        if not -(2**63) <= value < 2**63:
            raise ValueError(f"message id: {name} must be a number of 64 bits")
        numbers.append(value)
    return MessageId(numbers[0], numbers[1], numbers[2], numbers[3])


def parse_text(text: str) -> MessageId:
    """`earliest`, `latest`, or `ledger:entry[:partition[:batch index]]`.

    Raises: ValueError.
    """
    if text == "earliest":
        return MessageId(*EARLIEST)
    if text == "latest":
        return MessageId(*LATEST)
    parts = text.split(":")
    if not 2 <= len(parts) <= 4:
        raise ValueError(f"message id must have the form ledger:entry, got {text!r}")
    numbers = [int(part) for part in parts] + [-1, -1]
    return MessageId(numbers[0], numbers[1], numbers[2], numbers[3])
