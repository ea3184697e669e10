"""What deduplication reads from the bytes of an entry is what the parser reads after a restart."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import pulsar_api_pb2 as pb
from protocol.dedup_ids import FOREIGN, last_sequence_id_in, parsed_last_sequence_id
from protocol.errors import RemoteProtocolError
from protocol.metadata import add_broker_entry_metadata, encode_message, peek

names = st.sampled_from(["p", "producer", "é", "a" * 200])
numbers = st.integers(0, 300) | st.integers(0, 2**64 - 1)


@given(
    sender=names,
    named=names,
    sequence_id=numbers,
    highest=st.none() | numbers,
    key=st.none() | st.text(max_size=4),
    checksum=st.booleans(),
    has_broker_metadata=st.booleans(),
)
def test_the_number_is_that_of_the_metadata_if_they_name_the_producer(
    sender, named, sequence_id, highest, key, checksum, has_broker_metadata
):
    metadata = pb.MessageMetadata(
        producer_name=named,
        sequence_id=sequence_id,
        publish_time=1,
        highest_sequence_id=highest,
        partition_key=key,
    )
    data = encode_message(metadata, b"payload", checksum=checksum)
    if has_broker_metadata:
        data = add_broker_entry_metadata(data, 1, 2)
    expected = max(sequence_id, highest or 0) if sender == named else FOREIGN
    assert last_sequence_id_in(data, sender.encode()) == expected
    assert parsed_last_sequence_id(data, sender.encode()) == expected


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
def test_no_bytes_restore_more_than_was_judged(damage, cut):
    changed = bytearray(ENTRY)
    for at, byte in damage:
        changed[at] = byte
    data = bytes(changed[: len(changed) - cut])
    try:
        metadata = peek(data)
    except RemoteProtocolError:
        return  # a restart does not count it
    name = metadata.producer_name
    if not isinstance(name, str):
        return
    for sender in ("p", "q", name):
        found = last_sequence_id_in(data, sender.encode())
        if sender != name:
            assert found == FOREIGN
        else:
            assert found == max(metadata.sequence_id, metadata.highest_sequence_id)


@pytest.mark.parametrize("size", range(6))
def test_bytes_too_few_for_metadata_are_nobodys(size):
    assert last_sequence_id_in(ENTRY[:size], b"p") == FOREIGN
    assert last_sequence_id_in((b"\x0e\x01" + ENTRY)[:size], b"p") == FOREIGN
