"""Which records are in a journal's next group when more waits than belongs into one."""

from __future__ import annotations

from collections import Counter, defaultdict

from hypothesis import given
from hypothesis import strategies as st

from bookie.journal import EMPTY_BODY
from bookie.journal_turns import (
    LEDGER_QUANTUM_BYTES,
    LITTLE_BYTES,
    SHARED_GROUPS,
    AddRun,
    JournalTurns,
)

GROUP_BYTES = 512 * 1024
MEGABYTE = 1024 * 1024
BARRIER = -1


def run_of(ledger_id, entry_id, size_bytes):
    return AddRun(object(), ledger_id, entry_id, [EMPTY_BODY], size_bytes)


def groups(turns):
    while turns:
        batches, _ = turns.group(GROUP_BYTES)
        yield [run for batch in batches for run in batch]


def test_what_fits_into_a_group_is_written_as_it_came():
    turns = JournalTurns()
    batches = [[run_of(ledger, 0, 1_000), run_of(BARRIER, 0, 0)] for ledger in range(5)]
    for number, batch in enumerate(batches):
        turns.add_batch(batch, float(number))
    assert turns.group(GROUP_BYTES) == (batches, 0.0)
    assert not turns


def test_a_small_record_is_in_the_next_group_however_much_another_ledger_has_brought():
    turns = JournalTurns()
    for entry_id in range(64):
        turns.add_batch([run_of(1, entry_id, MEGABYTE)], 0.0)
    turns.group(GROUP_BYTES)
    turns.add_batch([run_of(2, 0, 1_000)], 1.0)
    batches, handed_at = turns.group(GROUP_BYTES)
    (group,) = batches
    assert run_of(2, 0, 0).ledger_id in [run.ledger_id for run in group]
    assert len(group) <= 2
    assert handed_at == 1.0


def ledgers_of_next(turns):
    batches, _ = turns.group(GROUP_BYTES)
    return [run.ledger_id for batch in batches for run in batch]


def test_little_is_a_group_before_much_but_not_twice_in_a_row():
    flood, quiet = 1, 2
    turns = JournalTurns()
    for entry_id in range(10):
        turns.add_batch([run_of(flood, entry_id, MEGABYTE)], 0.0)
    assert ledgers_of_next(turns) == [flood]
    turns.add_batch([run_of(quiet, 0, LITTLE_BYTES)], 1.0)
    assert ledgers_of_next(turns) == [quiet]
    for entry_id in range(1, 5):
        turns.add_batch([run_of(quiet, entry_id, LITTLE_BYTES)], 1.0)
    assert flood in ledgers_of_next(turns)


def test_little_does_not_wait_for_much_that_came_with_it_and_fits():
    turns = JournalTurns()
    turns.add_batch([run_of(1, 0, 4 * LITTLE_BYTES)], 0.0)
    turns.add_batch([run_of(2, 0, 1_000)], 0.0)
    seen = [ledgers_of_next(turns) for _ in range(2)]
    assert seen[0] != seen[1]
    assert not turns


def test_a_ledger_that_is_alone_has_one_group_whatever_its_runs_are():
    turns = JournalTurns()
    turns.add_batch([run_of(1, 0, 1_000)], 0.0)
    for _ in range(SHARED_GROUPS):
        turns.group(GROUP_BYTES)
    for entry_id, size_bytes in enumerate((1_000, 4 * LITTLE_BYTES, 1_000)):
        turns.add_batch([run_of(1, entry_id, size_bytes)], 0.0)
    assert ledgers_of_next(turns) == [1, 1, 1]
    assert not turns


def test_many_ledgers_with_little_each_are_one_group():
    turns = JournalTurns()
    for ledger_id in range(400):
        turns.add_batch([run_of(ledger_id, 0, 1_000)], 0.0)
    assert len(ledgers_of_next(turns)) == 400
    assert not turns


def test_a_ledger_gets_its_share_of_each_group_beside_a_hundred_others():
    turns = JournalTurns()
    for entry_id in range(20):
        for ledger_id in range(100):
            turns.add_batch([run_of(ledger_id, entry_id, LEDGER_QUANTUM_BYTES)], 0.0)
    seen = [run.ledger_id for group in groups(turns) for run in group]
    for end in range(100, len(seen), 100):
        counts = Counter(seen[:end])
        assert max(counts.values()) - min(counts.values()) <= 2
        assert len(counts) == 100 or end < 200


def test_a_barrier_is_answered_after_all_that_came_before_it_and_holds_nothing_up():
    turns = JournalTurns()
    for entry_id in range(4):
        turns.add_batch([run_of(1, entry_id, MEGABYTE)], 0.0)
    turns.add_batch([run_of(BARRIER, 0, 0)], 1.0)
    turns.add_batch([run_of(2, 0, 1_000)], 2.0)
    order = [[(run.ledger_id, run.first_entry_id) for run in group] for group in groups(turns)]
    assert (2, 0) in order[0] + order[1]
    flat = [each for group in order for each in group]
    assert flat.index((BARRIER, 0)) > flat.index((1, 3))


RUNS = st.lists(st.tuples(st.integers(-1, 4), st.integers(0, 300_000), st.booleans()), max_size=50)


@given(RUNS, st.integers(1, 4))
def test_nothing_is_lost_ledgers_keep_their_order_and_barriers_come_last(given_runs, per_batch):
    turns = JournalTurns()
    put, taken = [], []
    before = {}

    def take_group():
        batches, _ = turns.group(GROUP_BYTES)
        taken.extend(run for batch in batches for run in batch)

    batch = []
    for number, (ledger_id, size_bytes, takes) in enumerate(given_runs):
        run = run_of(ledger_id, number, 0 if ledger_id < 0 else size_bytes)
        if ledger_id < 0:
            before[run] = list(put)
        put.append(run)
        batch.append(run)
        if len(batch) >= per_batch:
            turns.add_batch(batch, float(number))
            batch = []
            if takes:
                take_group()
    turns.add_batch(batch, 0.0)
    while turns:
        take_group()
    assert len(taken) == len(put)
    assert set(taken) == set(put)
    by_ledger = defaultdict(list)
    for run in taken:
        by_ledger[run.ledger_id].append(run.first_entry_id)
    assert all(ids == sorted(ids) for ids in by_ledger.values())
    places = {run: place for place, run in enumerate(taken)}
    for barrier, earlier in before.items():
        assert all(places[run] < places[barrier] for run in earlier)
