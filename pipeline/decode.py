"""From the bytes of an entry to messages, whether a broker or a bookie sent it. Pure.

Entries and messages that no reader sees are left out: markers, and messages of a batch that
compaction removed.
Entries that cannot be read are refused with `Unreadable`. Decompression is handed in, because its
libraries belong to the pipeline alone.
"""

from __future__ import annotations

import zlib
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from native.batches import HAS_PROPERTIES, IS_REMOVED, ROW, batch_rows
from pipeline.rows import EntryHead, Rows, rows_of_parts
from protocol import pulsar_api_pb2 as pb
from protocol.errors import RemoteProtocolError
from protocol.metadata import (
    batch_messages,
    is_batch,
    is_encrypted,
    is_marker,
    is_transactional,
    key_bytes,
    parse_single,
    peek_and_payload,
    verify_checksum,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pipeline.rows import Message, Parts
    from protocol.position import Position

    Decompress = Callable[[str, bytes | memoryview, int], bytes]

CODECS: Final = {pb.LZ4: "lz4_raw", pb.ZSTD: "zstd", pb.SNAPPY: "snappy"}
"""Codec names that `Decompress` is called with. ZLIB is done here."""
_BATCHES_REMEMBERED: Final = 16


class Unreadable(Exception):
    """The entry cannot be read: encrypted, damaged, or on a bookie that does not answer. The
    text says which entry and why."""


class StoredEntry(NamedTuple):
    """One entry as it is stored."""

    ledger_id: int
    entry_id: int
    data: bytes


def parse(entry: StoredEntry) -> tuple[pb.MessageMetadata, memoryview]:
    """Metadata and (compressed) payload.

    Raises: Unreadable: damaged, or encrypted.
    """
    try:
        if not verify_checksum(entry.data):
            raise Unreadable(f"entry {_name(entry)}: the checksum is wrong")
        metadata, payload = peek_and_payload(entry.data)
    except RemoteProtocolError as error:
        raise Unreadable(f"entry {_name(entry)}: {error}") from None
    if is_encrypted(metadata):
        names = ", ".join(sorted(key.key for key in metadata.encryption_keys))
        raise Unreadable(
            f"entry {_name(entry)} is encrypted with the key {names}: this source has no keys; "
            "read the topic with a consumer that has them and publish it in the clear"
        )
    return metadata, payload


def is_chunk(metadata: pb.MessageMetadata) -> bool:
    """Whether the entry holds a part of a message only."""
    return metadata.num_chunks_from_msg > 1


def needs_broker(metadata: pb.MessageMetadata) -> bool:
    """Whether the stored bytes alone do not tell what a consumer sees."""
    return is_transactional(metadata) or is_chunk(metadata)


def rows_of(
    entry: StoredEntry,
    metadata: pb.MessageMetadata,
    payload: bytes | memoryview,
    decompress: Decompress,
    first_chunk: Position | None = None,
) -> Rows:
    """The messages of an entry (or of a chunked message put together, with its `first_chunk`).

    Raises: Unreadable.
    """
    batch_size = metadata.num_messages_in_batch if is_batch(metadata) else 0
    head = EntryHead(
        entry.ledger_id,
        entry.entry_id,
        batch_size,
        metadata.publish_time,
        metadata.schema_version,
        first_chunk,
    )
    if is_marker(metadata):
        return Rows(head, b"", b"")
    try:
        content = _decompressed(metadata, payload, decompress)
        if is_batch(metadata):
            return _of_batch(head, bytes(content))
    except (RemoteProtocolError, ValueError, OSError, zlib.error) as error:
        raise Unreadable(f"entry {_name(entry)}: {error}") from None
    key = None
    if metadata.HasField("partition_key"):
        key = key_bytes(metadata.partition_key, b64_encoded=metadata.partition_key_b64_encoded)
    parts = (-1, key, None if metadata.null_value else content, metadata.event_time)
    properties = metadata.properties
    return rows_of_parts(head, [parts], {0: _pairs(properties)} if properties else {})


def _pairs(properties: Iterable[pb.KeyValue]) -> list[tuple[str, str]]:
    return [(each.key, each.value) for each in properties]


def _of_batch(head: EntryHead, content: bytes) -> Rows:
    """Most rows come from here. Raises: RemoteProtocolError."""
    found = batch_rows(content, head.batch_size)
    if found is None:
        return _of_unusual_batch(head, content)
    table, flags = found
    rows = Rows(head, content, table)
    if flags & HAS_PROPERTIES:
        rows = rows._replace(properties=_properties_of(rows))
    if flags & IS_REMOVED:
        places = enumerate(ROW.iter_unpack(table))
        rows = rows.chosen([number for number, row in places if not row[7] & IS_REMOVED])
    return rows


def _properties_of(rows: Rows) -> dict[int, list[tuple[str, str]]]:
    found = {}
    for number, row in enumerate(ROW.iter_unpack(rows.table)):
        if row[7] & HAS_PROPERTIES:
            single = parse_single(rows.content[row[0] : row[1]], number)
            found[number] = _pairs(single.properties)
    return found


def _of_unusual_batch(head: EntryHead, content: bytes) -> Rows:
    """As `_of_batch`, by protobuf. Raises: RemoteProtocolError."""
    parts: list[Parts] = []
    properties = {}
    for index, (single, payload) in enumerate(batch_messages(content, head.batch_size)):
        if single.compacted_out:
            continue
        key = None
        if single.HasField("partition_key"):
            key = key_bytes(single.partition_key, b64_encoded=single.partition_key_b64_encoded)
        if single.properties:
            properties[len(parts)] = _pairs(single.properties)
        parts.append((index, key, None if single.null_value else payload, single.event_time))
    return rows_of_parts(head, parts, properties)


def _decompressed(
    metadata: pb.MessageMetadata, payload: bytes | memoryview, decompress: Decompress
) -> bytes | memoryview:
    if metadata.compression == pb.NONE:
        return payload
    size = metadata.uncompressed_size
    if metadata.compression == pb.ZLIB:
        content = zlib.decompress(payload)
    else:
        content = decompress(CODECS[metadata.compression], payload, size)
    if len(content) != size:
        raise ValueError(f"{len(content)} bytes after decompression, the metadata says {size}")
    return content


def _varint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def message_id_head(partition: int, head: EntryHead) -> bytes:
    """How the ids of all messages of an entry begin, as clients serialize them (MessageIdData). Of
    a chunked message with the id of its first chunk (PIP-107)."""
    begin = b"\x08" + _varint(head.ledger_id) + b"\x10" + _varint(head.entry_id)
    if partition >= 0:
        begin += b"\x18" + _varint(partition)
    if head.first_chunk is not None:
        ledger_id, entry_id = head.first_chunk
        inner = b"\x08" + _varint(ledger_id) + b"\x10" + _varint(entry_id)
        if partition >= 0:
            inner += b"\x18" + _varint(partition)
        begin += b"\x3a" + _varint(len(inner)) + inner
    return begin


@lru_cache(_BATCHES_REMEMBERED)
def message_id_tails(batch_size: int) -> list[bytes]:
    """How the ids of a batch's messages end: with index and size. Most batches of a topic have the
    same few sizes. Outside a batch (0) an id ends with its head."""
    if batch_size == 0:
        return [b""]
    end = b"\x30" + _varint(batch_size)
    return [b"\x20" + _varint(index) + end for index in range(batch_size)]


def message_id_text(message: Message) -> str:
    """For errors: `ledger:entry[:batch]`."""
    text = f"{message.ledger_id}:{message.entry_id}"
    return text if message.batch_index < 0 else f"{text}:{message.batch_index}"


def _name(entry: StoredEntry) -> str:
    return f"{entry.ledger_id}:{entry.entry_id}"
