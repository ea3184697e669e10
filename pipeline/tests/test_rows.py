"""Tables of messages say what protobuf reads in the same bytes; chosen rows keep what they have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from native.pure.batches import batch_rows
from pipeline.decode import StoredEntry, Unreadable, parse, rows_of
from pipeline.rows import EntryHead, rows_of_parts
from protocol import client
from protocol import pulsar_api_pb2 as pb
from protocol.errors import RemoteProtocolError
from protocol.metadata import batch_messages, encode_message, key_bytes, peek_and_payload

if TYPE_CHECKING:
    from collections.abc import Sequence

PAIRS = st.builds(lambda text: (text, text * 2), st.text(max_size=3))
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "partition_key": st.text(max_size=200),
        "partition_key_b64_encoded": st.booleans(),
        "ordering_key": st.binary(max_size=5),
        "event_time": st.integers(0, 2**64 - 1),
        "compacted_out": st.booleans(),
        "null_value": st.booleans(),
        "null_partition_key": st.booleans(),
        "properties": st.lists(PAIRS, max_size=2).map(
            lambda pairs: [pb.KeyValue(key=key, value=value) for key, value in pairs]
        ),
    },
)
BATCHES = st.lists(st.builds(client.BatchItem, st.binary(max_size=300), FIELDS), max_size=4)

Values = list[tuple[int, bytes | None, bytes | None, int, list[tuple[str, str]]]]


def by_protobuf(content: bytes, count: int) -> Values:
    """Index, key, payload, event time, properties.

    Raises: RemoteProtocolError.
    """
    return [
        (
            index,
            key_bytes(single.partition_key, b64_encoded=single.partition_key_b64_encoded)
            if single.HasField("partition_key")
            else None,
            None if single.null_value else bytes(payload),
            single.event_time,
            [(each.key, each.value) for each in single.properties],
        )
        for index, (single, payload) in enumerate(batch_messages(content, count))
        if not single.compacted_out
    ]


def read(content: bytes, count: int) -> Values:
    metadata = pb.MessageMetadata(
        producer_name="p", sequence_id=0, publish_time=1, num_messages_in_batch=count
    )
    entry = StoredEntry(1, 2, encode_message(metadata, content))
    return [
        (each.batch_index, each.key, each.payload, each.event_time_ms, list(each.properties))
        for each in rows_of(entry, *parse(entry), lambda *_: b"").messages()
    ]


@given(BATCHES)
def test_a_batch_is_read_as_by_protobuf(items: Sequence[client.BatchItem]) -> None:
    content = bytes(peek_and_payload(client.batch(items))[1])

    assert read(content, len(items)) == by_protobuf(content, len(items))


@given(BATCHES.filter(bool), st.data())
def test_damage_is_refused_or_read_as_by_protobuf(
    items: Sequence[client.BatchItem], data: st.DataObject
) -> None:
    content = bytearray(peek_and_payload(client.batch(items))[1])
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] = data.draw(st.integers(0, 255))
    count = data.draw(st.integers(1, len(items) + 1))
    try:
        expected = by_protobuf(bytes(content), count)
    except RemoteProtocolError:
        expected = None

    try:
        found = read(bytes(content), count)
    except Unreadable:
        found = None

    assert found == expected


@given(BATCHES)
def test_what_the_stock_client_writes_is_usual(items: Sequence[client.BatchItem]) -> None:
    usual = [
        client.BatchItem(
            item.payload,
            {
                name: value
                for name, value in item.fields.items()
                if name not in ("partition_key_b64_encoded", "event_time")
            },
        )
        for item in items
    ]
    content = bytes(peek_and_payload(client.batch(usual))[1])

    assert batch_rows(content, len(items)) is not None


@given(st.lists(st.tuples(st.binary(max_size=3), st.none() | st.binary(max_size=3))), st.data())
def test_chosen_rows_keep_what_they_have(
    messages: list[tuple[bytes, bytes | None]], data: st.DataObject
) -> None:
    parts = [(index, key, payload, 5) for index, (key, payload) in enumerate(messages)]
    properties = {index: [("n", str(index))] for index in range(0, len(parts), 2)}
    rows = rows_of_parts(EntryHead(1, 2, len(parts), 3, b""), parts, properties)
    numbers = sorted(data.draw(st.sets(st.integers(0, max(0, len(parts) - 1)))) if parts else [])

    chosen = rows.chosen(numbers)

    assert chosen.messages() == [rows.messages()[number] for number in numbers]
    assert chosen.batch_indexes == numbers
    assert len(chosen.content) == sum(
        len(messages[number][0]) + len(messages[number][1] or b"") for number in numbers
    )
