"""Offsets survive the checkpoint, and every form a user may write means the same message."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.offsets import (
    NOTHING_YET,
    InvalidOffset,
    Offset,
    at,
    before,
    from_checkpoint,
    parse_bound,
    to_checkpoint,
)
from protocol.message_id import MessageId, to_bytes

TOPIC = "persistent://public/default/a"
IDS = st.integers(0, 2**62)
OFFSETS = st.builds(Offset, IDS, IDS, st.integers(-1, 1000)) | st.just(NOTHING_YET)


@given(st.dictionaries(st.text(), OFFSETS))
def test_the_checkpoint_gives_the_offsets_back_through_json(offsets: dict[str, Offset]) -> None:
    stored = json.loads(json.dumps(to_checkpoint(offsets)))

    assert from_checkpoint(stored) == offsets


def test_equal_offsets_are_equal_texts() -> None:
    """Spark compares the texts: a difference in order would run an empty micro-batch for ever."""
    one = {"b": Offset(1, 2), "a": Offset(3, 4)}
    other = {"a": Offset(3, 4), "b": Offset(1, 2)}

    assert json.dumps(to_checkpoint(one)) == json.dumps(to_checkpoint(other))


@pytest.mark.parametrize("stored", [{}, {"v": 2, "t": {}}, {"v": 1, "t": {"a": [1, 2]}}, {"t": []}])
def test_a_foreign_checkpoint_is_refused(stored: dict[str, object]) -> None:
    with pytest.raises(InvalidOffset):
        from_checkpoint(stored)


@given(IDS, IDS, st.integers(-1, 64), st.integers(-1, 1000))
def test_text_and_the_connectors_bytes_name_the_same_message(
    ledger_id: int, entry_id: int, partition: int, batch_index: int
) -> None:
    message_id = MessageId(ledger_id, entry_id, partition, batch_index)
    signed = [byte - 256 if byte > 127 else byte for byte in to_bytes(message_id)]

    by_bytes = parse_bound(json.dumps({TOPIC: signed}))
    by_text = parse_bound(json.dumps({"a": f"{ledger_id}:{entry_id}:{partition}:{batch_index}"}))

    assert by_bytes == by_text
    assert by_bytes.by_topic == {TOPIC: message_id}


def test_the_connectors_example_is_understood() -> None:
    bound = parse_bound(json.dumps({TOPIC: [8, 11, 16, 101, 24, 1, 32, 1]}))

    assert bound.by_topic[TOPIC] == MessageId(11, 101, 1, 1)


@pytest.mark.parametrize("text", ["now", "[]", "{}", '{"a": 5}', '{"a": "1"}', '{"a/b": "1:2"}'])
def test_what_is_no_offset_is_refused(text: str) -> None:
    with pytest.raises(InvalidOffset):
        parse_bound(text)


def test_the_named_message_is_inside_at_both_ends() -> None:
    assert before(MessageId(5, 7)) == Offset(5, 6)
    assert before(MessageId(5, 0)) == Offset(5, -1)
    assert before(MessageId(5, 7, -1, 3)) == Offset(5, 7, 2)
    assert before(MessageId(5, 7, -1, 0)) == Offset(5, 6)
    assert before(MessageId(-1, -1)) == NOTHING_YET
    assert at(MessageId(5, 7, -1, 3)) == Offset(5, 7, 3)


@given(st.lists(OFFSETS, min_size=2, max_size=2))
def test_a_whole_entry_comes_after_its_messages(pair: list[Offset]) -> None:
    one, other = pair
    if one[:2] == other[:2] and one.entry_id >= 0 and one.batch_index < 0 <= other.batch_index:
        assert one.sort_key > other.sort_key
    assert (one.sort_key == other.sort_key) == (one == other)
