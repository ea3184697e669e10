"""Acknowledgement by runs, compared with counting every entry."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ledgers.ensemble_acks import EnsembleAcks
from ledgers.tests.test_quorum import quorums
from protocol.bookkeeper.ledger_layout import write_set

COUNT = 14


@given(quorums(), st.data())
def test_confirmed_is_the_longest_prefix_with_a_distinct_acks(sizes, data):
    ensemble, write, ack = sizes
    acks = EnsembleAcks(*sizes)
    seen = [set() for _ in range(COUNT)]
    confirmed = -1
    for _ in range(data.draw(st.integers(0, 40))):
        index = data.draw(st.integers(0, ensemble - 1))
        share = [e for e in range(COUNT) if index in write_set(e, ensemble, write)]
        if data.draw(st.integers(0, 9)) == 0:
            acks.reset(index, confirmed + 1)
            for entry_id in range(confirmed + 1, COUNT):
                seen[entry_id].discard(index)
        elif share:
            unseen = [e for e in share if index not in seen[e]] or share
            is_in_order = data.draw(st.booleans())
            first = unseen[0] if is_in_order else data.draw(st.sampled_from(share))
            count = 1
            while count < 4 and first + count in share and data.draw(st.booleans()):
                count += 1
            acks.on_ok(index, first, count)
            for entry_id in range(first, first + count):
                seen[entry_id].add(index)
        prefix = next((e for e in range(COUNT) if len(seen[e]) < ack), COUNT)
        assert acks.confirmed(COUNT) == prefix - 1
        confirmed = prefix - 1


@given(quorums(), st.integers(0, 9), st.integers(0, 9))
def test_the_runs_of_all_places_are_the_write_sets(sizes, first, count):
    ensemble, write, _ = sizes
    acks = EnsembleAcks(*sizes)
    found = sorted(
        (entry_id, index)
        for index in range(ensemble)
        for start, size in acks.runs_of(index, first, first + count)
        for entry_id in range(start, start + size)
    )
    assert found == sorted(
        (entry_id, index)
        for entry_id in range(first, first + count)
        for index in write_set(entry_id, ensemble, write)
    )


@given(quorums(), st.sets(st.integers(0, 4)))
def test_writing_goes_on_while_every_write_set_has_enough_places(sizes, failed):
    ensemble, write, ack = sizes
    expected = all(
        len(set(write_set(entry_id, ensemble, write)) - failed) >= ack
        for entry_id in range(ensemble)
    )
    assert EnsembleAcks(*sizes).may_go_on(failed) == expected
