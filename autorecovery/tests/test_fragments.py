"""Which copies a ledger has, and what is done about those that are bad."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from autorecovery.copies import Walk
from autorecovery.fragments import (
    BAD,
    CopyState,
    Fragment,
    Rest,
    bookies_of,
    findings,
    fragments_of,
)
from protocol.bookkeeper.ledger_layout import write_set
from protocol.bookkeeper.ledger_metadata import LedgerMetadata, LedgerState

BOOKIES = tuple("abcdefgh")


@st.composite
def ledgers(draw):
    ensemble_size = draw(st.integers(1, 5))
    write_quorum = draw(st.integers(1, ensemble_size))
    firsts = sorted({0, *draw(st.lists(st.integers(1, 30), max_size=3))})
    ensembles = {first: tuple(draw(st.permutations(BOOKIES))[:ensemble_size]) for first in firsts}
    state = draw(st.sampled_from(LedgerState))
    last = draw(st.integers(max(-1, firsts[-1] - 1), 40))
    return LedgerMetadata(
        ensemble_size=ensemble_size,
        write_quorum_size=write_quorum,
        ack_quorum_size=draw(st.integers(1, write_quorum)),
        ensembles=ensembles,
        state=state,
        last_entry_id=last if state is LedgerState.CLOSED else -1,
    )


@given(ledgers())
def test_copies_hold_every_entry_of_settled_fragments_as_the_write_sets_say(metadata):
    expected = set()
    end = metadata.last_entry_id if metadata.is_closed else metadata.last_ensemble[0] - 1
    for entry_id in range(end + 1):
        ensemble = metadata.ensemble_of(entry_id)
        for place in write_set(entry_id, len(ensemble), metadata.write_quorum_size):
            expected.add((entry_id, ensemble[place]))

    found = [
        (entry_id, bookie_id)
        for fragment in fragments_of(metadata)
        for place, bookie_id in enumerate(fragment.ensemble)
        for first, last in fragment.runs_at(place)
        for entry_id in range(first, last + 1)
    ]

    assert len(found) == len(set(found))
    assert set(found) == expected


@given(ledgers())
def test_the_boundary_of_a_copy_is_its_first_and_last_entry(metadata):
    for fragment in fragments_of(metadata):
        for place in range(len(fragment.ensemble)):
            runs = list(fragment.runs_at(place))
            expected = {runs[0][0], runs[-1][1]} if runs else set()
            assert set(fragment.boundary_at(place)) == expected
            assert len(fragment.boundary_at(place)) == len(expected)


@given(ledgers(), st.data())
def test_sources_are_the_write_set_with_the_copy_itself_last(metadata, data):
    fragment = data.draw(st.sampled_from(fragments_of(metadata)))
    place = data.draw(st.integers(0, len(fragment.ensemble) - 1))
    for first, last in list(fragment.runs_at(place))[:2]:
        for entry_id in (first, last):
            sources = fragment.sources_of(entry_id, place)
            places = write_set(entry_id, len(fragment.ensemble), fragment.write_quorum_size)
            assert set(sources) == {fragment.ensemble[each] for each in places}
            assert sources[-1] == fragment.ensemble[place]


@given(ledgers(), st.data())
def test_every_bad_copy_of_a_settled_fragment_is_moved_or_filled_and_no_good_one_is(metadata, data):
    states = st.sampled_from(CopyState)
    copies = {
        (fragment.first, place): data.draw(states)
        for fragment in fragments_of(metadata)
        for place in range(len(fragment.ensemble))
    }
    writable = data.draw(st.sets(st.sampled_from(BOOKIES)))
    filled = data.draw(st.sets(st.sampled_from(sorted(copies))))

    found = findings(metadata, copies, writable, filled)

    touched = set()
    for repair in found.repairs:
        assert repair.fragment.last is not None
        for place in (*repair.fill, *repair.move):
            # Its bookie gets the entries again if it is there, takes entries, and did not fail to
            # keep them.
            key = repair.fragment.first, place
            assert (place in repair.fill) == (
                copies[key] in {CopyState.ABSENT, CopyState.DAMAGED}
                and repair.fragment.ensemble[place] in writable
                and key not in filled
            )
            touched.add(key)
        assert not set(repair.fill) & set(repair.move)
    settled = {each.first for each in fragments_of(metadata) if each.last is not None}
    assert touched == {key for key, state in copies.items() if state in BAD and key[0] in settled}


def metadata_of(state, last=-1, ensembles=None, quorum=2):
    return LedgerMetadata(
        ensemble_size=3,
        write_quorum_size=quorum,
        ack_quorum_size=quorum,
        ensembles=ensembles or {0: ("a", "b", "c")},
        state=state,
        last_entry_id=last,
    )


def lost(metadata, bookie_id):
    return {
        (fragment.first, place): CopyState.LOST if each == bookie_id else CopyState.PRESENT
        for fragment in fragments_of(metadata)
        for place, each in enumerate(fragment.ensemble)
    }


def test_bookkeeper_3239_an_empty_ledger_does_not_keep_naming_a_lost_bookie():
    metadata = metadata_of(LedgerState.CLOSED)

    found = findings(metadata, lost(metadata, "c"), {"a", "b", "d"})

    assert [repair.move for repair in found.repairs] == [(2,)]
    assert list(found.repairs[0].fragment.runs_at(2)) == []


def test_bookkeeper_3239_a_lost_bookie_outside_of_every_write_set_is_replaced_too():
    metadata = metadata_of(LedgerState.CLOSED, last=0)  # entry 0 is on a and b

    found = findings(metadata, lost(metadata, "c"), {"a", "b", "d"})

    assert [repair.move for repair in found.repairs] == [(2,)]


def test_bookkeeper_3905_a_bookie_that_lost_its_disk_keeps_its_place():
    metadata = metadata_of(LedgerState.CLOSED, last=9)
    copies = lost(metadata, "none") | {(0, 1): CopyState.ABSENT}

    found = findings(metadata, copies, {"a", "b", "c"})

    assert [(repair.fill, repair.move) for repair in found.repairs] == [((1,), ())]


def test_a_bookie_keeps_its_place_if_it_keeps_what_it_gets_in_place_of_damaged_entries():
    metadata = metadata_of(LedgerState.CLOSED, last=9)
    copies = lost(metadata, "none") | {(0, 1): CopyState.DAMAGED}

    first = findings(metadata, copies, {"a", "b", "c"})
    again = findings(metadata, copies, {"a", "b", "c"}, {(0, 1)})

    assert [(repair.fill, repair.move) for repair in first.repairs] == [((1,), ())]
    assert [(repair.fill, repair.move) for repair in again.repairs] == [((), (1,))]


def test_a_read_only_bookie_that_lacks_entries_is_replaced():
    metadata = metadata_of(LedgerState.CLOSED, last=9)
    copies = lost(metadata, "none") | {(0, 1): CopyState.ABSENT}

    found = findings(metadata, copies, {"a", "c", "d"})

    assert [(repair.fill, repair.move) for repair in found.repairs] == [((), (1,))]


def test_the_segment_being_written_is_left_to_its_writer_and_those_before_it_are_not():
    ensembles = {0: ("a", "b", "c"), 5: ("a", "b", "c")}
    metadata = metadata_of(LedgerState.OPEN, ensembles=ensembles)

    found = findings(metadata, lost(metadata, "c"), {"a", "b", "d"})

    assert found.rest is Rest.WRITER
    assert [repair.fragment.first for repair in found.repairs] == [0]


def test_a_silent_bookie_is_neither_complete_nor_lost():
    metadata = metadata_of(LedgerState.CLOSED, last=9)
    copies = lost(metadata, "none") | {(0, 1): CopyState.UNKNOWN}

    found = findings(metadata, copies, {"a", "b", "c", "d"})

    assert (found.repairs, found.rest) == ((), Rest.ASK_AGAIN)


def test_all_bookies_of_all_segments_are_named():
    ensembles = {0: ("a", "b", "c"), 5: ("a", "b", "d")}

    assert bookies_of(metadata_of(LedgerState.OPEN, ensembles=ensembles)) == set("abcd")


def test_a_copy_is_walked_in_batches_that_begin_after_what_was_done():
    walk = Walk(Fragment(3, 12, ("a", "b"), 2), 0, 4)
    batches = []
    for first, last in walk:
        batches.append((first, last))
        walk.done(1 if first == 3 else last - first + 1)
    assert batches == [(3, 6), (4, 7), (8, 11), (12, 12)]


def test_a_batch_of_a_copy_ends_with_its_run():
    fragment = Fragment(3, 12, ("a", "b", "c"), 2)
    for place in range(3):
        walk = Walk(fragment, place, 5)
        batches = []
        for first, last in walk:
            batches.append((first, last))
            walk.done(last - first + 1)
        assert batches == list(fragment.runs_at(place))
    assert list(Walk(Fragment(3, 2, ("a",), 1), 0, 5)) == []
