from hypothesis import given, settings
from hypothesis import strategies as st

from ledgers.quorum import AckTracker, absent_after, is_covered
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


@settings(deadline=None)
@given(quorums(), st.data())
def test_confirmed_is_the_longest_prefix_with_a_distinct_acks(sizes, data):
    ensemble, write, ack = sizes
    count = 6
    tracker = AckTracker(write, ack)
    for _ in range(count):
        tracker.sent()
    replies = [(e, i) for e in range(count) for i in write_set(e, ensemble, write)]
    order = data.draw(st.lists(st.sampled_from(replies), max_size=3 * len(replies)))
    seen = [set() for _ in range(count)]
    for entry_id, index in order:
        tracker.on_ok(entry_id, index)
        seen[entry_id].add(index)
        prefix = next((e for e in range(count) if len(seen[e]) < ack), count)
        assert tracker.last_add_confirmed == prefix - 1


def test_a_failure_is_final_when_the_ack_quorum_is_out_of_reach():
    tracker = AckTracker(3, 2)
    tracker.sent()
    assert not tracker.on_failure(0, 1)
    assert not tracker.on_failure(0, 1)
    assert tracker.on_failure(0, 2)
    assert absent_after(3, 2) == 2
