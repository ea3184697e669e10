"""Stored state is read back, for any entry size; damage is reported, never misread."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.topics.broadcast.snapshot_codec import (
    NAMES,
    POSITIONS,
    SnapshotDamaged,
    cut,
    decode_commit,
    decode_names,
    decode_positions,
    encode_commit,
    encode_names,
    encode_positions,
    join_parts,
    ragged_from,
)
from broker.topics.broadcast.virtual_cursors import VirtualCursors


def position_of(ordinal):
    return (5 + ordinal // 10, ordinal % 10)


def ordinal_of(position):
    return (position[0] - 5) * 10 + position[1]


@settings(max_examples=100, deadline=None)
@given(
    st.dictionaries(st.text(min_size=1, max_size=20), st.integers(0, 50), max_size=30),
    st.lists(st.tuples(st.integers(0, 29), st.integers(1, 80)), max_size=40),
    st.integers(8, 200),
)
def test_round_trip(starts, acks, entry_size):
    cursors = VirtualCursors()
    slots = [cursors.join(name, start) for name, start in starts.items()]
    for number, ordinal in acks:
        if number < len(slots):
            if ordinal % 7 == 0:
                cursors.ack_batch(slots[number], ordinal, 0b110)
            else:
                cursors.ack(slots[number], ordinal)
    if len(slots) > 2:
        cursors.drop(slots[1])
        cursors.detach(slots[2], 90.0)
    names = decode_names(join_parts(cut(encode_names(cursors, 0, 30.0, 1_000_000), entry_size)))
    stored = decode_positions(
        join_parts(cut(encode_positions(cursors, 0, position_of), entry_size))
    )
    assert [row and row[0] for row in names.rows] == cursors.names
    if len(slots) > 2:
        assert names.rows[slots[2]][1] == 1_060
    for slot, name in enumerate(cursors.names):
        assert stored.rows[slot] == (None if name is None else position_of(cursors.acked[slot]))
        ragged = cursors.ragged_of(slot)
        assert (slot in stored.ranges) == (ragged is not None)
        if ragged is not None:
            again = ragged_from(stored.ranges[slot], stored.batches[slot], ordinal_of)
            assert (list(again.holes), again.batches) == (list(ragged.holes), ragged.batches)


def test_a_consumer_that_goes_with_its_connection_is_not_stored():
    cursors = VirtualCursors()
    cursors.join("reader", 3, durable=False)
    assert decode_names(encode_names(cursors, 0, 0.0, 0)).rows == [None]


def test_a_commit_is_told_from_a_part():
    places = {(NAMES, 0): (7, 2), (POSITIONS, 0): (9, 1)}
    assert decode_commit(encode_commit(places)) == places
    assert decode_commit(cut(b"x", 100)[0]) is None


@pytest.mark.parametrize("decode", [decode_names, decode_positions])
@given(st.data())
def test_damage_is_named(decode, data):
    cursors = VirtualCursors()
    for number in range(5):
        cursors.join(f"c{number}", number)
    cursors.ack(0, 3)
    good = encode_names(cursors, 0, 0.0, 0)
    if decode is decode_positions:
        good = encode_positions(cursors, 0, position_of)
    bad = bytearray(good)
    bad[data.draw(st.integers(0, len(bad) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        decode(bytes(bad))
    except SnapshotDamaged:
        pass
    with pytest.raises(SnapshotDamaged):
        decode(good[: len(good) // 2])
    with pytest.raises(SnapshotDamaged):
        join_parts([b"VBC1C"])
