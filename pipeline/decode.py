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

from protocol import pulsar_api_pb2 as pb
from protocol.errors import RemoteProtocolError
from protocol.metadata import (
    batch_messages,
    is_batch,
    is_encrypted,
    is_marker,
    is_transactional,
    key_bytes,
    peek_and_payload,
    verify_checksum,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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
    properties: Sequence[tuple[str, str]]
    schema_version: bytes
    first_chunk: Position | None = None
    """The entry of the first chunk of a message that was cut into chunks."""


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


def messages_of(
    entry: StoredEntry,
    metadata: pb.MessageMetadata,
    payload: bytes | memoryview,
    decompress: Decompress,
    first_chunk: Position | None = None,
) -> list[Message]:
    """The messages of an entry (or of a chunked message put together, with its `first_chunk`).

    Raises: Unreadable.
    """
    if is_marker(metadata):
        return []
    try:
        content = _decompressed(metadata, payload, decompress)
        if is_batch(metadata):
            return _of_batch(entry, metadata, content)
    except (RemoteProtocolError, ValueError, OSError, zlib.error) as error:
        raise Unreadable(f"entry {_name(entry)}: {error}") from None
    key = None
    if metadata.HasField("partition_key"):
        key = key_bytes(metadata.partition_key, b64_encoded=metadata.partition_key_b64_encoded)
    properties = metadata.properties
    message = Message(
        entry.ledger_id,
        entry.entry_id,
        -1,
        0,
        key,
        None if metadata.null_value else bytes(content),
        metadata.publish_time,
        metadata.event_time,
        [(each.key, each.value) for each in properties] if properties else (),
        metadata.schema_version,
        first_chunk,
    )
    return [message]


def _of_batch(
    entry: StoredEntry, metadata: pb.MessageMetadata, content: bytes | memoryview
) -> list[Message]:
    """Most rows come from here: what all have in common, and what most do not have, is asked for
    once, and payloads are cut from bytes, which costs less than views of a kilobyte."""
    ledger_id, entry_id, _ = entry
    count = metadata.num_messages_in_batch
    publish_time_ms, version = metadata.publish_time, metadata.schema_version
    found = []
    for index, (single, payload) in enumerate(batch_messages(bytes(content), count)):
        if single.compacted_out:
            continue
        key = None
        if single.HasField("partition_key"):
            key = key_bytes(single.partition_key, b64_encoded=single.partition_key_b64_encoded)
        properties = single.properties
        found.append(
            Message(
                ledger_id,
                entry_id,
                index,
                count,
                key,
                None if single.null_value else bytes(payload),
                publish_time_ms,
                single.event_time,
                [(each.key, each.value) for each in properties] if properties else (),
                version,
            )
        )
    return found


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


def message_ids(partition: int, messages: Sequence[Message]) -> list[bytes]:
    """The ids of messages of one entry as clients serialize them (MessageIdData): of a batch with
    index and size, of a chunked message with the id of its first chunk (PIP-107)."""
    first = messages[0]
    head = b"\x08" + _varint(first.ledger_id) + b"\x10" + _varint(first.entry_id)
    if partition >= 0:
        head += b"\x18" + _varint(partition)
    if first.first_chunk is not None:
        ledger_id, entry_id = first.first_chunk
        inner = b"\x08" + _varint(ledger_id) + b"\x10" + _varint(entry_id)
        if partition >= 0:
            inner += b"\x18" + _varint(partition)
        return [head + b"\x3a" + _varint(len(inner)) + inner]
    if first.batch_index < 0:
        return [head] * len(messages)
    tails = _id_tails(first.batch_size)
    return [head + tails[each.batch_index] for each in messages]


@lru_cache(_BATCHES_REMEMBERED)
def _id_tails(batch_size: int) -> list[bytes]:
    """How the ids of a batch's messages end: most batches of a topic have the same few sizes."""
    end = b"\x30" + _varint(batch_size)
    return [b"\x20" + _varint(index) + end for index in range(batch_size)]


def message_id_text(message: Message) -> str:
    """For errors: `ledger:entry[:batch]`."""
    text = f"{message.ledger_id}:{message.entry_id}"
    return text if message.batch_index < 0 else f"{text}:{message.batch_index}"


def _name(entry: StoredEntry) -> str:
    return f"{entry.ledger_id}:{entry.entry_id}"
