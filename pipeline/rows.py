"""The messages of one entry, undivided: its bytes, and a table of where each message is in them.

Columns are built from the tables of many entries at once (`pipeline.columns`). No message becomes
an object unless somebody asks for it (`Rows.messages`): a decoder of values, a filter, an error.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from native.batches import HAS_KEY, IS_NULL, ROW

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from protocol.position import Position

    Properties = Sequence[tuple[str, str]]
    Parts = tuple[int, bytes | None, bytes | memoryview | None, int]
    """Index in the batch, key, payload (None: a null value), event time."""

_NO_PROPERTIES: Final[Mapping[int, Properties]] = MappingProxyType({})


class Message(NamedTuple):
    """One message. `payload` is None for a null value, `key` for a message without one; times are
    ms since 1970, `event_time_ms` 0 when not set; batch size 0 outside a batch."""

    ledger_id: int
    entry_id: int
    batch_index: int
    batch_size: int
    key: bytes | None
    payload: bytes | None
    publish_time_ms: int
    event_time_ms: int
    properties: Properties
    schema_version: bytes
    first_chunk: Position | None = None
    """The entry of the first chunk of a message that was cut into chunks."""


class EntryHead(NamedTuple):
    """What all messages of an entry have in common. `batch_size` is 0 outside a batch."""

    ledger_id: int
    entry_id: int
    batch_size: int
    publish_time_ms: int
    schema_version: bytes
    first_chunk: Position | None = None


class Rows(NamedTuple):
    """Messages of an entry, in order: a row of `table` for each (`native.batches.FIELDS`).

    Places in `content` ascend from row to row. The index of a message outside a batch is -1.
    `properties` has those of the messages that have some, by the number of the row.
    """

    head: EntryHead
    content: bytes
    table: bytes
    properties: Mapping[int, Properties] = _NO_PROPERTIES

    @property
    def row_count(self) -> int:
        """Number of messages."""
        return len(self.table) // ROW.size

    @property
    def batch_indexes(self) -> list[int]:
        """Index in the batch of each message."""
        return [row[6] for row in ROW.iter_unpack(self.table)]

    def messages(self) -> list[Message]:
        """Each message as an object."""
        content, properties = self.content, self.properties
        ledger_id, entry_id, batch_size, publish_time_ms, version, first_chunk = self.head
        return [
            Message(
                ledger_id,
                entry_id,
                index,
                batch_size,
                content[key:key_end] if flags & HAS_KEY else None,
                None if flags & IS_NULL else content[payload:payload_end],
                publish_time_ms,
                event_time_ms,
                properties.get(number, ()),
                version,
                first_chunk,
            )
            for number, (
                _,
                payload,
                payload_end,
                key,
                key_end,
                event_time_ms,
                index,
                flags,
            ) in enumerate(ROW.iter_unpack(self.table))
        ]

    def chosen(self, numbers: Sequence[int]) -> Rows:
        """The rows with these numbers, which ascend, in bytes of their own: what is counted as the
        size of a few rows must not be that of a whole batch."""
        messages = self.messages()
        chosen = [messages[number] for number in numbers]
        return rows_of_parts(
            self.head,
            [(each.batch_index, each.key, each.payload, each.event_time_ms) for each in chosen],
            {at: each.properties for at, each in enumerate(chosen) if each.properties},
        )


def row_of_message(
    head: EntryHead,
    key: bytes | None,
    payload: bytes | None,
    event_time_ms: int,
    properties: Properties | None,
) -> Rows:
    """As `rows_of_parts`, of the one message of an entry without a batch."""
    flags = 0
    content = payload
    if content is None:
        content, flags = b"", IS_NULL
    at = 0
    if key is not None:
        at, flags, content = len(key), flags | HAS_KEY, key + content
    table = ROW.pack(0, at, len(content), 0, at, event_time_ms, -1, flags)
    return Rows(head, content, table, {0: properties} if properties else _NO_PROPERTIES)


def rows_of_parts(
    head: EntryHead, messages: Iterable[Parts], properties: Mapping[int, Properties]
) -> Rows:
    """The rows of messages that were taken apart already."""
    contents: list[bytes | memoryview] = []
    table: list[bytes] = []
    at = 0
    for index, key, payload, event_time_ms in messages:
        begin = key_end = at
        flags = 0
        if key is not None:
            contents.append(key)
            key_end += len(key)
            flags = HAS_KEY
        at = key_end
        if payload is None:
            flags |= IS_NULL
        else:
            contents.append(payload)
            at += len(payload)
        table.append(ROW.pack(begin, key_end, at, begin, key_end, event_time_ms, index, flags))
    return Rows(head, b"".join(contents), b"".join(table), properties)
