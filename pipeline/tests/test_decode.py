"""Every kind of entry gives back the messages that its producer put into it."""

from __future__ import annotations

import zlib
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.chunks import ChunkBuffer, ChunkStartMissing
from pipeline.decode import (
    StoredEntry,
    Unreadable,
    message_id_head,
    message_id_tails,
    needs_broker,
    parse,
    rows_of,
)
from pipeline.rows import EntryHead, Message
from protocol import client
from protocol import pulsar_api_pb2 as pb
from protocol.message_id import from_bytes
from protocol.metadata import add_broker_entry_metadata, encode_message

PROPERTIES = st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3)
CONTENTS = st.tuples(st.binary(max_size=40), st.none() | st.text(max_size=5), PROPERTIES)


def no_codec(codec: str, payload: bytes | memoryview, size_bytes: int) -> bytes:
    raise AssertionError(f"{codec} is not expected here")


def decoded(data: bytes) -> list[Message]:
    entry = StoredEntry(7, 3, data)
    return rows_of(entry, *parse(entry), no_codec).messages()


@given(CONTENTS, st.integers(0, 2**40), st.booleans())
def test_a_single_message(
    content: tuple[bytes, str | None, dict[str, str]], event_time: int, with_broker_metadata: bool
) -> None:
    payload, key, properties = content
    fields = {} if key is None else {"partition_key": key}
    data = client.message(payload, properties=properties, event_time=event_time, **fields)
    if with_broker_metadata:
        data = add_broker_entry_metadata(data, 5, 6)

    (message,) = decoded(data)

    assert message.payload == payload
    assert message.key == (None if key is None else key.encode())
    assert dict(message.properties) == properties
    assert (message.ledger_id, message.entry_id, message.batch_index) == (7, 3, -1)
    assert message.publish_time_ms == client.PUBLISH_TIME_MS_DEFAULT
    assert message.event_time_ms == event_time


@given(st.lists(CONTENTS, min_size=1, max_size=8), st.booleans())
def test_a_batch(
    contents: list[tuple[bytes, str | None, dict[str, str]]], compressed: bool
) -> None:
    items = [
        client.BatchItem(
            payload,
            {"properties": client.key_values(properties)}
            | ({} if key is None else {"partition_key": key}),
        )
        for payload, key, properties in contents
    ]
    data = client.batch(items)
    if compressed:
        metadata, payload = parse(StoredEntry(0, 0, data))
        metadata.compression = pb.ZLIB
        metadata.uncompressed_size = len(payload)
        data = encode_message(metadata, zlib.compress(payload))

    messages = decoded(data)

    assert [each.payload for each in messages] == [payload for payload, _, _ in contents]
    assert [each.batch_index for each in messages] == list(range(len(contents)))
    assert {each.batch_size for each in messages} == {len(contents)}
    assert [each.key for each in messages] == [
        None if key is None else key.encode() for _, key, _ in contents
    ]


def test_a_key_that_is_base64_on_the_wire_comes_out_as_its_bytes() -> None:
    data = client.message(b"", partition_key="/wA=", partition_key_b64_encoded=True)

    assert decoded(data)[0].key == b"\xff\x00"


def test_null_values_markers_and_compacted_messages() -> None:
    assert decoded(client.message(b"", null_value=True))[0].payload is None
    assert decoded(client.message(b"", marker_type=10)) == []
    batch = client.batch([client.BatchItem(b"a", {"compacted_out": True}), b"b"])
    assert [(each.payload, each.batch_index) for each in decoded(batch)] == [(b"b", 1)]


@given(st.binary(max_size=60))
def test_any_bytes_are_messages_or_unreadable(data: bytes) -> None:
    with suppress(Unreadable):
        decoded(data)


def test_damage_and_encryption_name_the_entry() -> None:
    data = bytearray(client.message(b"payload"))
    data[-1] ^= 1
    with pytest.raises(Unreadable, match="7:3: the checksum is wrong"):
        decoded(bytes(data))

    key = pb.EncryptionKeys(key="city", value=b"x")
    with pytest.raises(Unreadable, match="7:3 is encrypted with the key city"):
        decoded(client.message(b"", encryption_keys=[key]))


def test_transactions_and_chunks_need_the_broker() -> None:
    def metadata(**fields: object) -> pb.MessageMetadata:
        return parse(StoredEntry(0, 0, client.message(b"", **fields)))[0]

    assert needs_broker(metadata(txnid_most_bits=0, txnid_least_bits=1))
    assert needs_broker(metadata(uuid="u", num_chunks_from_msg=2, chunk_id=0))
    assert not needs_broker(metadata())


@given(st.binary(min_size=1, max_size=50), st.integers(1, 7), st.integers(1, 7))
def test_chunks_of_two_producers_come_together(payload: bytes, size: int, other_size: int) -> None:
    def chunks(uuid: str, step: int) -> list[tuple[pb.MessageMetadata, bytes]]:
        parts = [payload[first : first + step] for first in range(0, len(payload), step)]
        return [
            (pb.MessageMetadata(uuid=uuid, num_chunks_from_msg=len(parts), chunk_id=index), part)
            for index, part in enumerate(parts)
        ]

    one, other = chunks("one", size), chunks("other", other_size)
    interleaved = sorted([*enumerate(one), *enumerate(other)], key=lambda pair: pair[0])
    buffer = ChunkBuffer()

    added = [
        buffer.add(metadata, part, (3, entry_id))
        for entry_id, (_, (metadata, part)) in enumerate(interleaved)
    ]

    whole = [each for each in added if each is not None]
    assert [each.payload for each in whole] == [payload, payload]
    assert sorted(each.first_chunk for each in whole) == [(3, 0), (3, 1)]


@given(st.integers(0, 2**62), st.integers(0, 2**62), st.integers(-1, 900))
def test_the_id_of_a_chunked_message_names_its_first_chunk(
    first_ledger: int, first_entry: int, partition: int
) -> None:
    first = (first_ledger, first_entry)
    encoded = message_id_head(partition, EntryHead(7, 9, 0, 0, b"", first))

    wire = pb.MessageIdData.FromString(encoded)
    assert from_bytes(encoded)[:4] == (7, 9, partition, -1)
    assert (wire.first_chunk_message_id.ledgerId, wire.first_chunk_message_id.entryId) == first
    assert wire.SerializeToString() == encoded


def test_a_chunk_without_its_beginning_is_noticed() -> None:
    with pytest.raises(ChunkStartMissing):
        ChunkBuffer().add(
            pb.MessageMetadata(uuid="u", num_chunks_from_msg=3, chunk_id=1), b"", (0, 1)
        )


@given(st.integers(0, 2**62), st.integers(0, 2**62), st.integers(-1, 900), st.integers(-1, 900))
def test_message_ids_are_what_clients_read(
    ledger_id: int, entry_id: int, partition: int, batch_index: int
) -> None:
    size = 901 if batch_index >= 0 else 0
    head = message_id_head(partition, EntryHead(ledger_id, entry_id, size, 0, b""))
    encoded = head + message_id_tails(size)[batch_index]

    assert from_bytes(encoded)[:4] == (ledger_id, entry_id, partition, batch_index)
    assert pb.MessageIdData.FromString(encoded).batch_size == size
