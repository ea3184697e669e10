"""What stays of a log of policies, and its form on disk."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.ground.entry import Entry
from broker.topics.topic.compacted_log import (
    DamagedCompaction,
    Survivors,
    decode_kept,
    encode_kept,
)
from protocol import client as c
from protocol import pulsar_api_pb2 as pb
from protocol.errors import ProtocolError
from protocol.metadata import batch_messages, is_batch, peek_and_payload

KEYS = ["a", "b", "c", "d"]
MESSAGES = st.tuples(st.sampled_from(["", *KEYS]), st.binary(max_size=3))


def _batch(messages):
    content = b""
    for key, value in messages:
        single = pb.SingleMessageMetadata(
            partition_key=key, payload_size=len(value), null_value=not value
        ).SerializeToString()
        content += len(single).to_bytes(4, "big") + single + value
    return c.message(content, num_messages_in_batch=len(messages))


CUT_BATCH = _batch([("a", b"1"), ("b", b"2")])[:-1]
"""Nobody takes a message of it, not even the first."""
KEY_OF_BYTES = c.message(b"x", checksum=False, partition_key="kkkk").replace(
    b"kkkk", b"\xff\xfe\xff\xfe"
)
ENTRIES = st.lists(
    st.one_of(
        MESSAGES,
        st.lists(MESSAGES, min_size=1, max_size=3),
        st.just(b"\x0e\x01 no message"),
        st.just(CUT_BATCH),
        st.just(KEY_OF_BYTES),
    ),
    max_size=30,
)


def entry_of(given_entry, number):
    position = (number // 10, number % 10)
    if isinstance(given_entry, bytes):
        return Entry(given_entry, -1, position)
    if isinstance(given_entry, list):
        return Entry(_batch(given_entry), -1, position)
    key, value = given_entry
    fields = {"partition_key": key} if key else {}
    return Entry(c.message(value, null_value=not value, **fields), -1, position)


def played(entries, state=None):
    """The last values, as a reader sees them."""
    state = {} if state is None else state
    for entry in entries:
        try:
            metadata, payload = peek_and_payload(entry.data)
            messages = [(metadata.partition_key, bytes(payload))]
            if is_batch(metadata):
                messages = [
                    (single.partition_key, bytes(content))
                    for single, content in batch_messages(payload, metadata.num_messages_in_batch)
                ]
        except ProtocolError:
            continue
        for key, value in messages:
            if key and isinstance(key, str):
                state[key] = value
    return {key: value for key, value in state.items() if value}


def compacted(kept, entries):
    survivors = Survivors()
    for entry in kept:
        survivors.add(entry, was_kept=True)
    for entry in entries:
        survivors.add(entry, was_kept=False)
    return survivors.kept()


@given(ENTRIES, st.lists(st.integers(0, 30), max_size=4), st.integers(0, 30))
def test_a_compacted_log_says_what_the_whole_log_says(given_entries, ends, read_up_to):
    entries = [entry_of(each, number) for number, each in enumerate(given_entries)]
    kept, horizon = [], 0
    for end in sorted(ends):
        before, kept = kept, compacted(kept, entries[horizon:end])
        # One that has read some of what there was before this compaction goes on in it.
        reader = {}
        ahead = before + entries[horizon:]
        played(ahead[:read_up_to], reader)
        last = ahead[:read_up_to][-1].position if ahead[:read_up_to] else (-1, -1)
        horizon = max(horizon, end)
        rest = [each for each in kept + entries[horizon:] if each.position > last]
        assert played(rest, reader) == played(entries)
        assert played(kept + entries[horizon:]) == played(entries)
        if entries[:horizon]:
            assert kept[-1] is entries[:horizon][-1]


@given(ENTRIES)
def test_what_stays_is_bounded_by_the_keys(given_entries):
    entries = [entry_of(each, number) for number, each in enumerate(given_entries)]
    once = compacted([], entries)
    assert len(once) <= len(KEYS) + 1
    assert len(compacted(once, [])) <= len(once)
    if all(isinstance(each, tuple) for each in given_entries):
        assert len(compacted(once, [])) <= len(played(entries)) + 1


@given(MESSAGES, st.integers(0, 2**40), st.integers(0, 2**40))
def test_an_entry_is_stored_and_read(message, ledger_id, entry_id):
    entry = entry_of(message, 0)
    entry.position = (ledger_id, entry_id)
    stored = encode_kept(entry)
    read = decode_kept(stored)
    assert (read.data, read.position) == (entry.data, entry.position)
    for wrong in (stored[:-1], stored + b"x", stored[:3], b"", b"\xff" * 20):
        with pytest.raises(DamagedCompaction):
            decode_kept(wrong)
