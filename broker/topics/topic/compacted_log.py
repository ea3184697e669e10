"""The messages that the compaction of a log of policies keeps, and their stored form. Pure.

The last message of each key stays. A message without value ends its key, and stays for one
compaction more, so that a reader that has read an older message of the key does not miss it. The
newest entry stays, whatever it is, so that there is an end up to which the log can be read.

A batch stays as a whole as long as one of its messages is the last of its key. The other messages
of it come before the last of theirs, as ever; so the end of a key that was in a batch stays, too.

An entry of the compacted ledger is an entry of the topic with its message id (RawMessageImpl of
Pulsar 4.0):

    id size (int32) | MessageIdData | size (int32) | checksum, metadata and payload
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, final

from google.protobuf.message import DecodeError

from broker.ground.entry import Entry
from broker.tenancy.policies.topic_events import BATCH_MAX
from protocol import pulsar_api_pb2 as pb
from protocol.errors import ProtocolError
from protocol.message_id import MessageId, position_of, to_wire
from protocol.metadata import batch_messages, is_batch, is_marker, peek_and_payload

if TYPE_CHECKING:
    from protocol.position import Position

_SIZE: Final = struct.Struct(">i")


class DamagedCompaction(Exception):
    """An entry of a compacted ledger that is not one. The text says why."""


@final
class Survivors:
    """Takes the entries of a log in order, and keeps those that stay."""

    def __init__(self) -> None:
        self._entries: dict[Position, Entry] = {}
        self._last: dict[str, Position] = {}
        """By key: the entry with its last message."""
        self._counts: dict[Position, int] = {}
        """Keys whose last message is in the entry."""
        self._ending: dict[Position, str] = {}
        """Entries that end this key and were there at the last compaction."""
        self._in_batches: set[str] = set()
        self._newest: Position | None = None

    def add(self, entry: Entry, *, was_kept: bool) -> None:
        """The next one. `was_kept`: by the last compaction."""
        position = entry.position
        newest, self._newest = self._newest, position
        if newest is not None and not self._counts[newest]:
            self._drop(newest)
        self._entries[position] = entry
        self._counts[position] = 0
        batched = is_batch(entry.metadata)
        for key, has_value in _keys_in(entry):
            self._take_from_former(key, position)
            self._last[key] = position
            self._counts[position] += 1
            if batched:
                self._in_batches.add(key)
            elif was_kept and not has_value:
                self._ending[position] = key

    def _take_from_former(self, key: str, position: Position) -> None:
        former = self._last.get(key)
        if former is None:
            return
        self._counts[former] -= 1
        if not self._counts[former] and former != position:
            self._drop(former)

    def _drop(self, position: Position) -> None:
        del self._entries[position], self._counts[position]
        self._ending.pop(position, None)

    def kept(self) -> list[Entry]:
        """The messages that stay, in order."""
        gone = {
            position
            for position, key in self._ending.items()
            if position != self._newest and key not in self._in_batches
        }
        return [entry for position, entry in self._entries.items() if position not in gone]


def _keys_in(entry: Entry) -> list[tuple[str, bool]]:
    """Key of each message, and whether it has a value. Messages without a key count for nothing,
    because no reader takes them, and neither do those of an entry that cannot be read to its
    end."""
    try:
        metadata, payload = peek_and_payload(entry.data)
        if is_marker(metadata):
            return []
        if not is_batch(metadata):
            found = [(metadata.partition_key, bool(payload) and not metadata.null_value)]
        else:
            count = metadata.num_messages_in_batch
            if count > BATCH_MAX:
                return []
            found = [
                (single.partition_key, bool(content) and not single.null_value)
                for single, content in batch_messages(payload, count)
                if not single.compacted_out
            ]
    except (ProtocolError, ValueError):
        return []
    return [(key, has_value) for key, has_value in found if key and isinstance(key, str)]


def encode_kept(entry: Entry) -> bytes:
    """An entry of the compacted ledger."""
    message_id = to_wire(MessageId(*entry.position)).SerializeToString()
    sizes = _SIZE.pack(len(message_id)), _SIZE.pack(len(entry.data))
    return b"".join((sizes[0], message_id, sizes[1], entry.data))


def decode_kept(data: bytes) -> Entry:
    """The inverse. Raises: DamagedCompaction."""
    try:
        (size,) = _SIZE.unpack_from(data)
        end = _SIZE.size + size
        (length,) = _SIZE.unpack_from(data, end)
        position = position_of(pb.MessageIdData.FromString(data[_SIZE.size : end]))
    except (struct.error, DecodeError) as error:
        raise DamagedCompaction(f"it has no message id: {error}") from None
    content = data[end + _SIZE.size :]
    if size < 0 or length != len(content) or min(position) < 0:
        raise DamagedCompaction("its sizes do not fit")
    return Entry(content, -1, position)
