"""Small groups that are held back: fewer groups and bytes, and nobody waits for nothing."""

from __future__ import annotations

import pytest
import trio

from bookie.api import Status
from bookie.journal_hold import GroupHold
from bookie.journal_turns import AddRun, JournalTurns, is_urgent
from bookie.testing.sim_disk import SimSubmissions
from bookie.tests.conftest import KEY, RecordingSink, entry, wait_until, whole
from bookie.tests.test_full_journal import fill_up
from runtime.testing.conditions import SECONDS_MAX

HOUR_MS = 3_600_000
HELD = {"journalAdaptiveGroupWrites": False, "journalMaxGroupWaitMSec": HOUR_MS}
COUNT = 20


async def known_ledger(bookie):
    """The first entry, with the record of the key, is not held."""
    sink = RecordingSink()
    bookie.add_entry(1, 0, entry(1, 0), KEY, 0, sink)
    bookie.kick()
    await sink.wait_for(1)


async def add_each(bookie, sink, count=COUNT, payload=b"hello"):
    """Each by itself, as at a low rate."""
    for entry_id in range(1, count + 1):
        bookie.add_entry(1, entry_id, entry(1, entry_id, payload), KEY, 0, sink)
        bookie.kick()
        await trio.testing.wait_all_tasks_blocked()


async def test_a_held_group_is_written_for_a_barrier(machine):
    async with machine.running(**HELD) as bookie:
        await known_ledger(bookie)
        sink = RecordingSink()
        before = bookie.statistics()
        await add_each(bookie, sink)
        assert sink.replies == []
        assert bookie.statistics().journal_groups == before.journal_groups
        with trio.fail_after(SECONDS_MAX):
            await bookie.force_ledger(1)
        assert sink.replies == [(0, 1, entry_id) for entry_id in range(1, COUNT + 1)]
        assert bookie.statistics().journal_groups == before.journal_groups + 1
        held_bytes = bookie.statistics().journal_bytes - before.journal_bytes
    async with machine.running() as bookie:
        for entry_id in range(1, COUNT + 1):
            assert await bookie.read_entry(1, entry_id) == whole(1, entry_id)
        sink = RecordingSink()
        before = bookie.statistics()
        for entry_id in range(COUNT + 1, 2 * COUNT + 1):
            bookie.add_entry(1, entry_id, entry(1, entry_id), KEY, 0, sink)
            bookie.kick()
            await sink.wait_for(entry_id - COUNT)
        at_once_bytes = bookie.statistics().journal_bytes - before.journal_bytes
    assert at_once_bytes == COUNT * 512, "a block for each"
    assert held_bytes <= at_once_bytes / 4


async def test_a_full_group_is_not_held(machine):
    async with machine.running(**HELD, journalBufferedWritesThreshold=10_000) as bookie:
        await known_ledger(bookie)
        sink = RecordingSink()
        await add_each(bookie, sink, 9, bytes(1_000))
        assert sink.replies == []
        for entry_id in range(10, 13):  # the thread looks after each quarter of a group
            bookie.add_entry(1, entry_id, entry(1, entry_id, bytes(1_000)), KEY, 0, sink)
            bookie.kick()
        await sink.wait_for(10)


async def test_a_group_is_held_until_its_first_record_has_waited(machine):
    async with machine.running(**{**HELD, "journalMaxGroupWaitMSec": 20}) as bookie:
        await known_ledger(bookie)
        for entry_id in (1, 2):
            sink = RecordingSink()
            started = trio.current_time()
            bookie.add_entry(1, entry_id, entry(1, entry_id), KEY, 0, sink)
            bookie.kick()
            await sink.wait_for(1)
            assert trio.current_time() - started >= 0.019


@pytest.mark.parametrize(
    "at_once",
    [
        {"journalAdaptiveGroupWrites": True},
        {"journalFlushWhenQueueEmpty": True},
        {"journalMaxGroupWaitMSec": 0},
    ],
)
async def test_without_a_wait_an_idle_journal_writes_at_once(machine, at_once):
    async with machine.running(**{**HELD, **at_once}) as bookie:
        await known_ledger(bookie)
        sink = RecordingSink()
        bookie.add_entry(1, 1, entry(1, 1), KEY, 0, sink)
        bookie.kick()
        await sink.wait_for(1)


async def test_what_is_held_is_written_at_the_end(machine):
    bookie = await machine.open(**HELD)
    sink = RecordingSink()
    async with trio.open_nursery() as nursery:
        await nursery.start(bookie.run)
        await known_ledger(bookie)
        await add_each(bookie, sink)
        with trio.fail_after(SECONDS_MAX):
            await bookie.aclose()
        nursery.cancel_scope.cancel()
    assert sink.statuses() == [0] * COUNT
    async with machine.running() as bookie:
        assert await bookie.read_entry(1, COUNT) == whole(1, COUNT)


async def test_fences_and_checkpoints_do_not_wait(machine):
    async with machine.running(**HELD) as bookie:
        await known_ledger(bookie)
        sink = RecordingSink()
        await add_each(bookie, sink, 3)
        with trio.fail_after(SECONDS_MAX):
            await bookie.checkpoint()
            await sink.wait_for(3)
            await bookie.fence_ledger(1, KEY)


async def test_a_full_journal_answers_at_once_and_looks_for_space(machine):
    changes = {**HELD, "journalPreAllocSizeMB": 1, "diskCheckInterval": 5}
    changes |= {"journalBufferedWritesThreshold": 50_000, "dbStorage_writeCacheMaxSizeMb": 64}
    async with machine.running(**changes) as bookie:
        sink = RecordingSink()
        known = await fill_up(bookie, machine, sink)
        bookie.add_entry(1, known + 1, entry(1, known + 1), KEY, 0, sink)
        bookie.kick()
        await sink.wait_for(known + 2)
        assert sink.statuses()[known:] == [Status.READ_ONLY] * 2
        machine.disk.free_bytes = None
        await wait_until(bookie.is_writable)


async def test_groups_that_are_held_are_not_submitted(machine):
    submissions = SimSubmissions()
    machine.disk.submissions = lambda: submissions
    async with machine.running(**HELD, journalPreAllocSizeMB=1) as bookie:
        await known_ledger(bookie)
        sink = RecordingSink()
        await add_each(bookie, sink, 3)
        assert (submissions.submitted, sink.replies) == (0, [])
        await bookie.force_ledger(1)
        assert len(sink.replies) == 3


def run_of(entry_id, size_bytes, ledger_id=1):
    return AddRun(object(), ledger_id, entry_id, [], size_bytes)


def test_what_somebody_waits_for_alone_is_urgent():
    assert not is_urgent([run_of(0, 100), run_of(5, 100)])
    assert is_urgent([run_of(0, 100), run_of(-1, 0, ledger_id=-1)])
    assert is_urgent([run_of(-4096, 20)])
    assert is_urgent([run_of(7, 0)])
    assert is_urgent([])


def test_a_group_that_came_while_the_thread_was_writing_has_waited_already():
    """The thread is not held again from the end of the last write on."""
    turns = JournalTurns()
    hold = GroupHold(3600.0, 1_000)
    turns.add_batch([run_of(0, 100)], -3600.0)
    hold.wait(turns, lambda: True)


def test_the_thread_is_woken_for_a_part_of_a_group_and_not_for_each_batch():
    hold = GroupHold(3600.0, 1_000)
    told = []
    for entry_id in range(20):
        hold.handed([run_of(entry_id, 50)], 50)
        told.append(hold._ends.is_set())
        hold._ends.clear()
    assert told.count(True) == 4
