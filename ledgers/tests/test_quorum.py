from hypothesis import given, settings
from hypothesis import strategies as st

from ledgers.replication import absent_after, is_covered
from protocol.bookkeeper.ledger_layout import write_set


@st.composite
def quorums(draw):
    ensemble = draw(st.integers(1, 5))
    write = draw(st.integers(1, ensemble))
    return ensemble, write, draw(st.integers(1, write))


@settings(deadline=None)
@given(quorums(), st.integers(0, 20))
def test_a_write_set_has_w_distinct_members(sizes, entry_id):
    ensemble, write, _ = sizes
    members = write_set(entry_id, ensemble, write)
    assert len(set(members)) == write
    assert all(0 <= member < ensemble for member in members)


@settings(deadline=None)
@given(quorums(), st.sets(st.integers(0, 4)))
def test_covered_means_that_nobody_can_collect_an_ack_quorum_elsewhere(sizes, heard):
    ensemble, write, ack = sizes
    possible = max(
        len(set(write_set(entry_id, ensemble, write)) - heard) for entry_id in range(ensemble)
    )
    assert is_covered(heard, ensemble, write, ack) == (possible < ack)


def test_absence_needs_more_proofs_than_an_ack_quorum_can_miss():
    assert absent_after(3, 2) == 2
