"""Adds are queued by runs: only the number of calls distinguishes them from single ones."""

from __future__ import annotations

from functools import partial

import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from bookie.config import BookieConfig
from bookie.journal import EMPTY_BODY, Journal
from bookie.tests.conftest import KEY, Machine, RecordingSink, body_or_status, entry

ADDS = st.lists(
    st.tuples(st.integers(0, 1), st.integers(1, 2), st.integers(0, 4), st.booleans()), max_size=40
)
"""(sink, ledger id, entry id, whether it is a record of its own)."""


def flattened(batch):
    return [
        (run.sink, run.ledger_id, run.first_entry_id + index, body)
        for run in batch
        for index, body in enumerate(run.bodies)
    ]


@given(ADDS)
def test_runs_are_the_adds_in_their_order(adds):
    journal = Journal(BookieConfig())
    sinks = (object(), object())
    expected = []
    for number, (sink, ledger_id, entry_id, alone) in enumerate(adds):
        body = (b"head", b"%d" % number)
        (journal.add_alone if alone else journal.add)(sinks[sink], ledger_id, entry_id, body)
        expected.append((sinks[sink], ledger_id, entry_id, body))
    assert flattened(journal.pending) == expected


@given(st.lists(st.integers(1, 50), min_size=1, max_size=8))
def test_consecutive_entries_are_one_run_per_kick(counts):
    journal = Journal(BookieConfig())
    sink = RecordingSink()
    first = 0
    for count in counts:
        for entry_id in range(first, first + count):
            journal.add(sink, 7, entry_id, EMPTY_BODY)
        journal.kick()
        first += count
    assert [len(run.bodies) for run in journal.outstanding] == counts
    assert journal.entries_handed == sum(counts)


def test_what_is_let_in_together_is_not_one_run_that_every_other_ledger_waits_for():
    """After a flush all adds that waited for room come at once."""
    journal = Journal(BookieConfig())
    sink, megabyte = RecordingSink(), bytes(1024 * 1024)
    for entry_id in range(64):
        journal.add(sink, 7, entry_id, (b"", megabyte))
    runs = [run for run in journal.pending if run.sink is sink]
    assert [len(run.bodies) for run in runs] == [1] * 64


async def test_every_entry_of_a_run_is_answered_and_can_be_read(machine):
    sink, other = RecordingSink(), RecordingSink()
    async with machine.running() as bookie:
        for entry_id in range(5):
            bookie.add_entry(1, entry_id, entry(1, entry_id, b"%d" % entry_id), KEY, 0, sink)
        bookie.add_entry(2, 0, entry(2, 0), KEY, 0, other)
        bookie.add_entry(1, 5, entry(1, 5, b"5"), b"another key".ljust(20), 0, sink)
        bookie.add_entry(1, 5, entry(1, 5, b"5"), KEY, 0, sink)
        await sink.wait_for(7)
        assert sink.replies == [
            *((0, 1, entry_id) for entry_id in range(5)),
            (102, 1, 5),
            (0, 1, 5),
        ]
        assert sink.ends >= 1
        assert other.replies == [(0, 2, 0)]
        assert bookie.statistics().adds >= 7
    async with machine.running() as bookie:
        found = await bookie.read_batch(1, 0, 10, 1 << 20)
        assert [body[-1:] for body in found] == [b"0", b"1", b"2", b"3", b"4", b"5"]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 2), st.integers(1, 12), st.integers(0, 60_000)),
        st.tuples(st.just("again"), st.integers(1, 2), st.integers(1, 3), st.integers(0, 100)),
        st.tuples(st.just("foreign"), st.integers(1, 2), st.integers(1, 3), st.integers(0, 100)),
        st.tuples(st.just("fence"), st.integers(1, 2), st.just(0), st.just(0)),
        st.tuples(st.just("kick"), st.just(1), st.just(0), st.just(0)),
    ),
    max_size=14,
)
"""Through a cache of two halves of 512 KB."""


async def answers_and_entries(steps, *, by_runs):
    sinks = {1: RecordingSink(), 2: RecordingSink()}
    following = {1: 0, 2: 0}
    asked = {1: 0, 2: 0}
    async with Machine().running() as bookie:
        for name, ledger_id, count, size in [("add", 1, 1, 0), ("add", 2, 1, 0), *steps]:
            if name == "kick":
                bookie.kick()
            elif name == "fence":
                await sinks[1].wait_for(asked[1])
                await sinks[2].wait_for(asked[2])
                await bookie.fence_ledger(ledger_id, KEY)
            else:
                first = 0 if name == "again" else following[ledger_id]
                if name == "add":
                    following[ledger_id] += count
                key = b"f" * 20 if name == "foreign" else KEY
                bodies = [entry(ledger_id, first + index, bytes(size)) for index in range(count)]
                asked[ledger_id] += count
                if by_runs:
                    bookie.add_entries(ledger_id, first, bodies, key, 0, sinks[ledger_id])
                else:
                    for entry_id, body in enumerate(bodies, first):
                        bookie.add_entry(ledger_id, entry_id, body, key, 0, sinks[ledger_id])
        for ledger_id, sink in sinks.items():
            await sink.wait_for(asked[ledger_id])
        entries = {
            (ledger_id, entry_id): await body_or_status(bookie, ledger_id, entry_id)
            for ledger_id in sinks
            for entry_id in range(following[ledger_id] + 3)
        }
        return [sink.replies for sink in sinks.values()], entries


@settings(max_examples=40, deadline=None)
@given(STEPS)
def test_a_run_is_answered_and_stored_as_its_entries_would_be_one_by_one(steps):
    """With refusals of every entry, and with caches that fill up in the middle."""
    assert trio.run(partial(answers_and_entries, steps, by_runs=True)) == trio.run(
        partial(answers_and_entries, steps, by_runs=False)
    )
