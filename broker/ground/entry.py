"""An entry of a topic: the content of a producer's SEND, shared by everything that reads it.

One object per entry, made once on arrival or when read back, and shared by the tail cache and all
subscriptions, so that its metadata is parsed at most once however many dispatchers ask for it.

Compiled, it is unknown to the garbage collector: nothing that it holds leads back to it, and the
thousands that a cache keeps would start most collections, and be walked by them.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import mypyc_attr

from protocol import pulsar_api_pb2 as pb
from protocol.errors import RemoteProtocolError
from protocol.metadata import count_messages, peek
from protocol.position import EARLIEST, Position

_UNREADABLE: Final = pb.MessageMetadata()
"""Stands for metadata that could not be parsed. Never changed."""
_EARLIEST: Final[Position] = EARLIEST
"""Compiled, names of this module are no look-up in a dict."""


@mypyc_attr(acyclic=True)
@final
class Entry:
    """`data` is the part after the command on the wire: checksum magic, metadata and payload.

    `message_count` is the number of messages in the entry (1 for an unbatched one, 0 for one that
    no client gets), counted when it is published; -1 until `messages()` is asked for entries read
    back from a bookie. `is_intact` says of one that is to be stored that the checksum in `data` was
    found to fit, if there is one.
    """

    __slots__ = ("_metadata", "data", "is_intact", "message_count", "position")

    def __init__(
        self,
        data: bytes,
        message_count: int = -1,
        position: Position = _EARLIEST,
        is_intact: bool = False,
    ) -> None:
        self.data = data
        self.is_intact = is_intact
        self.message_count = message_count
        self.position = position
        self._metadata: pb.MessageMetadata | None = None

    @property
    def metadata(self) -> pb.MessageMetadata:
        """The message metadata, parsed on first use.

        A producer can store bytes that are not metadata, as with Pulsar. They read as metadata
        without any field, so that one such entry never holds up those after it.
        """
        metadata = self._metadata
        if metadata is None:
            try:
                metadata = peek(self.data)
            except RemoteProtocolError:
                metadata = _UNREADABLE
            self._metadata = metadata
        return metadata

    @property
    def is_withheld(self) -> bool:
        """Whether no client gets it: the metadata cannot be read, or it is a marker, or the view of
        the log that gave it holds it back."""
        return self.messages() == 0

    def messages(self) -> int:
        """How many messages the entry holds (`protocol.metadata.count_messages`)."""
        count = self.message_count
        if count < 0:
            count = self.message_count = count_messages(self.data)
        return count


def entries_of(payloads: list[bytes], message_counts: list[int] | None) -> list[Entry]:
    """New entries without positions, whose checksums are verified. No counts: one message each."""
    if message_counts is None:
        return [Entry(payload, 1, _EARLIEST, True) for payload in payloads]
    entries: list[Entry] = []
    for index, payload in enumerate(payloads):
        entries.append(Entry(payload, message_counts[index], _EARLIEST, True))
    return entries


def withheld(entry: Entry) -> Entry:
    """The same entry, for readers of a view of the log that holds it back."""
    return Entry(entry.data, 0, entry.position)


def entries_read(ledger_id: int, first_entry_id: int, payloads: list[bytes]) -> list[Entry]:
    """Consecutive entries of a ledger that were read back."""
    entries: list[Entry] = []
    entry_id = first_entry_id
    for payload in payloads:
        entries.append(Entry(payload, -1, (ledger_id, entry_id)))
        entry_id += 1
    return entries


def data_bytes(entries: list[Entry]) -> int:
    """The sizes of their `data` together."""
    size_bytes = 0
    for entry in entries:
        size_bytes += len(entry.data)
    return size_bytes


def first_within(entries: list[Entry], bytes_max: int) -> list[Entry]:
    """The first entries up to so many bytes of `data`, at least one if there are any."""
    return sized_first_within(entries, bytes_max)[0]


def sized_first_within(entries: list[Entry], bytes_max: int) -> tuple[list[Entry], int]:
    """The same, with the bytes of their `data`."""
    size_bytes = 0
    for index, entry in enumerate(entries):
        added = size_bytes + len(entry.data)
        if added > bytes_max and index:
            return entries[:index], size_bytes
        size_bytes = added
    return entries, size_bytes
