"""Entries kept as runs are found, flushed and freed as if each were kept for itself."""

from __future__ import annotations

import threading

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from bookie.api import Status
from bookie.entry_runs import FREED_AT_ONCE, EntryRuns
from bookie.ledger_state import LedgerState
from bookie.tests.conftest import KEY, RecordingSink, body_or_status, entry, wait_until, whole
from bookie.write_cache import WriteCache
from runtime.testing.conditions import SECONDS_MAX

ADDS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 8)), max_size=20)
"""(first entry id, number of consecutive entries; 0: a single one, by itself)."""


def added(adds):
    """The same adds to runs and to a dictionary."""
    runs, model = EntryRuns(), {}
    for number, (first, count) in enumerate(adds):
        bodies = [(b"%d" % number, b"%d" % at) for at in range(max(count, 1))]
        if count:
            runs.add_run(first, bodies)
        else:
            runs.add(first, bodies[0])
        model.update(enumerate(bodies, first))
    return runs, model


@given(ADDS)
def test_the_newest_of_each_entry_is_found_and_none_that_was_not_added(adds):
    runs, model = added(adds)
    assert [runs.get(entry_id) for entry_id in range(50)] == [model.get(i) for i in range(50)]
    assert set(runs) == set(model)
    assert bool(len(runs)) == bool(model)


@given(ADDS)
def test_a_flush_gets_the_newest_of_each_entry_in_ascending_order(adds):
    runs, model = added(adds)
    flushed = [
        (first + at - start, bodies[at])
        for first, bodies, start, end in runs.runs()
        for at in range(start, end)
    ]
    assert flushed == sorted(model.items())


@given(ADDS)
def test_a_run_that_was_added_is_not_changed_with_those_after_it(adds):
    """The journal writes the list that was added."""
    bodies = [(b"head", b"payload")]
    runs = EntryRuns()
    runs.add_run(0, bodies)
    for first, count in adds:
        runs.add_run(first, [(b"other", b"")] * count)
    assert bodies == [(b"head", b"payload")]


@given(ADDS)
def test_all_is_freed_in_parts(adds):
    runs, model = added(adds)
    runs.add_run(100, [(b"head", b"payload")] * 3 * FREED_AT_ONCE)
    parts = 0
    while runs.free_some():
        parts += 1
    assert not runs
    assert 4 <= parts <= 5 + len(model)


def test_ledgers_in_turn_are_long_runs_and_so_are_those_after_a_gap():
    """The bookies of a striped ledger have two of three entries."""
    cache = WriteCache(1 << 20)
    handles = [LedgerState(ledger_id) for ledger_id in (1, 2)]
    for first in range(0, 300, 10):
        for handle in handles:
            cache.put_run(handle, first, [(b"h", b"%d" % at) for at in range(10)], 30)
    cache.put_run(handles[0], 900, [(b"h", b"p")] * 5, 10)
    assert cache.size_bytes == 30 * 2 * 30 + 10
    half = cache.swap()
    assert [handle.ledger_id for handle in half.handles] == [1, 2]
    assert [(run[0], run[3] - run[2]) for run in handles[0].flushing.runs()] == [(0, 300), (900, 5)]
    assert [(run[0], run[3] - run[2]) for run in handles[1].flushing.runs()] == [(0, 300)]
    assert [handle.entry_id_max for handle in handles] == [904, 299]


async def test_entries_sent_again_and_out_of_order_are_read_before_and_after_a_flush(machine):
    sink = RecordingSink()
    expected = {}
    async with machine.running() as bookie:
        for round_number, ids in enumerate(((5, 6, 7), (2, 3), (6, 7, 8), (0,), (20,))):
            payload = b"round %d" % round_number
            bodies = [entry(1, entry_id, payload) for entry_id in ids]
            bookie.add_entries(1, ids[0], bodies, KEY, 0, sink)
            expected.update({entry_id: whole(1, entry_id, payload) for entry_id in ids})
        await sink.wait_for(10)
        for _ in range(2):
            assert await bookie.list_entry_ids(1) == sorted(expected)
            assert await bookie.read_entry(1, -1) == expected[20]
            for entry_id in range(25):
                found = await body_or_status(bookie, 1, entry_id)
                assert found == expected.get(entry_id, 2)
            assert await bookie.read_batch(1, 5, 10, 1 << 20) == [expected[i] for i in range(5, 9)]
            await bookie.checkpoint()
        assert await bookie.read_batch(1, 2, 10, 1 << 20) == [expected[2], expected[3]]


async def test_a_ledger_deleted_during_its_adds_leaves_nothing_to_flush(machine):
    sink = RecordingSink()
    async with machine.running() as bookie:
        for ledger_id in (1, 2):
            bodies = [entry(ledger_id, entry_id) for entry_id in range(50)]
            bookie.add_entries(ledger_id, 0, bodies, KEY, 0, sink)
        await sink.wait_for(100)
        await bookie.delete_ledger(1)
        await bookie.checkpoint()
        assert await body_or_status(bookie, 1, 0) == 1
        assert await bookie.list_entry_ids(2) == list(range(50))
        with trio.fail_after(SECONDS_MAX):
            assert await bookie.read_entry(2, 49) == whole(2, 49)


class Body(tuple):
    """Tells in which thread it was freed."""

    freed_in = []

    def __del__(self):
        Body.freed_in.append(threading.get_ident())


async def test_the_entries_of_a_deleted_ledger_are_not_freed_in_the_event_loop(machine):
    """There may be hundreds of thousands."""
    sink = RecordingSink()
    async with machine.running() as bookie:
        bookie.add_entry(1, 0, entry(1, 0), KEY, 0, sink)  # a known ledger keeps what it is given
        bodies = [Body(entry(1, number)) for number in range(1, 601)]
        bookie.add_entries(1, 1, bodies, KEY, 0, sink)
        del bodies
        await sink.wait_for(601)
        await wait_until(lambda: not bookie._journals[0].outstanding)
        await bookie.delete_ledger(1)
        # Whoever has the last reference may still be at work when the deletion returns.
        await wait_until(lambda: len(Body.freed_in) == 600)
        assert len(set(Body.freed_in)) == 1
        assert threading.get_ident() not in Body.freed_in


@pytest.mark.parametrize("is_fenced", [False, True])
async def test_a_deleted_ledger_does_not_come_back_with_a_flush_that_had_no_space(
    machine, is_fenced
):
    sink = RecordingSink()
    async with machine.running(diskCheckInterval=3_600_000) as bookie:
        bookie.add_entries(1, 0, [entry(1, number) for number in range(50)], KEY, 0, sink)
        await sink.wait_for(50)
        if is_fenced:
            await bookie.fence_ledger(1, KEY)
        machine.disk.free_bytes = 2000
        await bookie.checkpoint()
        await bookie.delete_ledger(1)
        machine.disk.free_bytes = None
        await bookie.checkpoint()
        await bookie.checkpoint()
        assert bookie.statistics().checkpoints == 1
    async with machine.running() as bookie:
        assert bookie.ledger_ids() == []
        bookie.add_entry(1, 50, entry(1, 50), KEY, 0, sink)
        assert (await sink.wait_for(51))[50][0] == (Status.FENCED if is_fenced else Status.OK)
