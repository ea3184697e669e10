"""A sticky key read from bytes is the one that the parsed metadata has."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from protocol import pulsar_api_pb2 as pb
from protocol.errors import RemoteProtocolError
from protocol.metadata import encode_message, peek, sticky_key
from protocol.sticky_keys import sticky_key_in

texts = st.text(max_size=6) | st.text("abc=+/", max_size=200)
optional = st.fixed_dictionaries(
    {},
    optional={
        "partition_key": texts,
        "ordering_key": st.binary(max_size=6),
        "partition_key_b64_encoded": st.booleans(),
        "num_messages_in_batch": st.integers(0, 2**31 - 1),
        "event_time": st.integers(0, 2**64 - 1),
        "deliver_at_time": st.integers(-1, 2**62),
        "highest_sequence_id": st.integers(0, 2**64 - 1),
    },
)


@given(
    producer_name=texts,
    sequence_id=st.integers(0, 300) | st.integers(0, 2**64 - 1),
    others=optional,
    properties=st.dictionaries(texts, texts, max_size=2),
    checksum=st.booleans(),
)
def test_both_find_the_same_key(producer_name, sequence_id, others, properties, checksum):
    metadata = pb.MessageMetadata(
        producer_name=producer_name, sequence_id=sequence_id, publish_time=1, **others
    )
    for key, value in properties.items():
        metadata.properties.add(key=key, value=value)
    found = sticky_key_in(encode_message(metadata, b"payload", checksum=checksum))
    assert found is None or found == sticky_key(metadata)
    is_plain = sequence_id < 2**63 and max(others.get("event_time", 0), 0) < 2**63
    is_plain &= others.get("highest_sequence_id", 0) < 2**63
    is_plain &= 0 <= others.get("deliver_at_time", 0) < 2**63
    is_plain &= not others.get("partition_key_b64_encoded")
    if is_plain and producer_name.isascii() and others.get("partition_key", "").isascii():
        assert found is not None  # the usual form is not parsed


ENTRY = encode_message(
    pb.MessageMetadata(
        producer_name="p", sequence_id=300, publish_time=2, partition_key="k", ordering_key=b"o"
    ),
    b"payload",
    checksum=False,
)


@given(
    st.lists(st.tuples(st.integers(0, len(ENTRY) - 1), st.integers(0, 255)), max_size=4),
    st.integers(0, len(ENTRY)),
)
def test_a_key_found_in_any_bytes_is_that_of_the_parser(damage, cut):
    changed = bytearray(ENTRY)
    for at, byte in damage:
        changed[at] = byte
    data = bytes(changed[: len(changed) - cut])
    found = sticky_key_in(data)
    if found is not None:
        try:
            metadata = peek(data)
        except RemoteProtocolError:
            return  # no client gets such an entry
        assert found == sticky_key(metadata)
