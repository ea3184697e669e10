"""Which add an answer belongs to, compared with a list of single adds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgers.remote.pending_adds import LAYERS_MAX, PendingAdds
from protocol.errors import RemoteProtocolError

RUNS = st.tuples(st.integers(0, 1), st.integers(0, 12), st.integers(1, 6))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), RUNS, st.integers(0, 3), st.integers(0, 2)),
        st.tuples(st.just("answer"), RUNS),
    ),
    max_size=60,
)


@given(STEPS)
def test_an_answer_belongs_to_the_oldest_add_of_its_entry(steps):
    pending = PendingAdds()
    model = []
    for step in steps:
        ledger_id, first, count = step[1]
        entries = range(first, first + count)
        if step[0] == "add":
            assert pending.add(ledger_id, first, count, step[2], 10 * count, step[3])
            model += [(ledger_id, entry_id, step[2], step[3]) for entry_id in entries]
            continue
        owners = [
            next((add for add in model if add[:2] == (ledger_id, entry_id)), None)
            for entry_id in entries
        ]
        if None in owners:
            with pytest.raises(RemoteProtocolError):
                list(pending.answered(ledger_id, first, count))
            return
        found = pending.answered(ledger_id, first, count)
        assert [(e, sink) for sink, start, n in found for e in range(start, start + n)] == [
            (owner[1], owner[2]) for owner in owners
        ]
        for owner in owners:
            model.remove(owner)
        assert bool(model) == bool(pending.size_bytes)
        assert pending.oldest_since() == min((add[3] for add in model), default=None)
    left = [
        (ledger_id, entry_id, run.sink, run.since)
        for ledger_id, run in pending.take_all()
        for entry_id in range(run.first, run.end)
    ]
    assert sorted(left) == sorted(model)
    assert pending.size_bytes == 0
    assert pending.oldest_since() is None


def test_the_adds_of_a_writer_are_one_run():
    pending = PendingAdds()
    for entry_id in range(1000):
        assert pending.add(1, entry_id, 1, "writer", 5, 0.0)
    assert list(pending.answered(1, 0, 1000)) == [("writer", 0, 1000)]


def test_one_entry_is_not_pending_without_bound():
    pending = PendingAdds()
    for number in range(LAYERS_MAX):
        assert pending.add(1, 0, 1, number, 1, 0.0)
    assert not pending.add(1, 0, 1, "one too many", 1, 0.0)
    assert pending.add(1, 1, 1, "another entry", 1, 0.0)
    assert list(pending.answered(1, 0, 1)) == [(0, 0, 1)]


class Time(float):
    """A time that counts how often one is compared."""

    compared = 0

    def __lt__(self, other):
        Time.compared += 1
        return super().__lt__(other)

    def __gt__(self, other):
        Time.compared += 1
        return super().__gt__(other)

    __hash__ = float.__hash__


def test_the_age_of_the_oldest_add_does_not_cost_a_look_at_each():
    """It is asked for many times per second, also of connections with runs of thousands of
    ledgers."""
    pending = PendingAdds()
    times = [Time(number) for number in range(4)]
    for ledger_id in range(2_000):
        assert pending.add(ledger_id, 0, 1, None, 10, times[ledger_id % 4])
    Time.compared = 0
    assert pending.oldest_since() == 0
    assert Time.compared <= 10
