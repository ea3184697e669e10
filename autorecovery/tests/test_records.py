"""Records as BookKeeper 4.17 writes them, and what is made of others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autorecovery import records

BOOKIE_IDS = st.lists(st.text("abc-.:09", min_size=1, max_size=8), max_size=5)


def test_records_are_those_of_bookkeeper():
    assert records.encode_mark(["h:1", "h:2"], 17) == b'replica: "h:1"\nreplica: "h:2"\nctime: 17\n'
    assert records.encode_lock("h:1") == b'bookieId: "h:1"\n'
    assert records.encode_vote("h:1") == b'bookieId: "h:1"\n'
    assert records.encode_layout() == b'type: "BASIC"\nversion: 1\n'
    assert records.encode_ledgers_checked(5) == b"checkAllLedgersCTime: 5\n"
    assert records.encode_leader("h:1") == b'"h:1"'


@given(BOOKIE_IDS, BOOKIE_IDS, st.integers(0, 2**60))
def test_a_mark_names_every_bookie_it_was_made_or_merged_with(first, second, ctime):
    mark = records.encode_mark(first, ctime)
    merged = records.merged_mark(mark, second, 1)

    if merged is None:
        assert first
        assert set(second) <= set(first)
    else:
        assert list(records.replicas_of_mark(merged))[: len(first)] == first
        assert set(records.replicas_of_mark(merged)) == set(first) | set(second)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_record_that_may_say_nothing(data):
    records.replicas_of_mark(data)
    records.candidate_of_vote(data)
    records.leader_of(data)
    records.ledgers_checked_ms(data)
    records.delay_seconds(data)
    records.is_known_layout(data)
    assert records.replicas_of_mark(records.merged_mark(data, ["x"], 1) or data)


@pytest.mark.parametrize("text", [b"", b"type: 'BASIC'", b'type: "OTHER" version: 1'])
def test_other_layouts_are_not_taken_for_ours(text):
    assert not records.is_known_layout(text)


@given(st.lists(st.integers(0, 2**31 - 2), unique=True))
def test_a_new_vote_comes_after_all_others(numbers):
    names = [records.vote_path(each).rpartition("/")[2] for each in numbers]
    found = records.vote_numbers([*names, "V_x", "other"])

    assert found == sorted(numbers)
    assert records.next_vote_number(found) > max(found, default=-1)
