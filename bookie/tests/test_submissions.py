"""Small groups that the event loop submits: answered when durable, in order, and never lost."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest
import trio

from bookie import read_turns
from bookie.api import Status
from bookie.errors import DiskFailed
from bookie.journal import SUBMITTED_BYTES_MAX, SUBMITTED_RECORDS_MAX
from bookie.testing.sim_disk import SimSubmissions
from bookie.tests.conftest import KEY, SMALL, Machine, RecordingSink, entry, wait_until, whole
from runtime.readers import Readers
from runtime.testing.conditions import SECONDS_MAX

MEGABYTE = 1 << 20


@pytest.fixture
def submissions():
    return SimSubmissions()


@pytest.fixture
def machine(submissions):
    machine = Machine(SMALL)
    machine.disk.submissions = lambda: submissions
    return machine


@asynccontextmanager
async def running(machine, **changes):
    """A bookie with one written entry, so that its journal has space reserved, and has the key."""
    async with machine.running(journalPreAllocSizeMB=1, **changes) as bookie:
        await added(bookie, 0)
        yield bookie


async def added(bookie, entry_id, payload=b"hello"):
    sink = RecordingSink()
    bookie.add_entry(1, entry_id, entry(1, entry_id, payload), KEY, 0, sink)
    bookie.kick()
    await sink.wait_for(1)
    assert sink.replies == [(0, 1, entry_id)]


async def check(machine, submissions, count, payload=b"hello"):
    """A later bookie finds all entries in the journal."""
    machine.disk.submissions = None
    async with machine.running() as bookie:
        for entry_id in range(count):
            assert await bookie.read_entry(1, entry_id) == whole(1, entry_id, payload)


async def test_a_small_group_is_submitted_and_answered_when_it_is_durable(machine, submissions):
    async with running(machine) as bookie:
        submissions.held = True
        before = submissions.submitted
        sink = RecordingSink()
        bookie.add_entry(1, 1, entry(1, 1), KEY, 0, sink)
        bookie.kick()
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert (submissions.submitted, sink.replies) == (before + 1, [])
        submissions.release()
        await sink.wait_for(1)
        assert sink.replies == [(0, 1, 1)]
    await check(machine, submissions, 2)


async def test_what_comes_meanwhile_is_the_next_group(machine, submissions):
    async with running(machine) as bookie:
        submissions.held = True
        before, groups = submissions.submitted, bookie.statistics().journal_groups
        sink = RecordingSink()
        for entry_id in range(1, 10):
            bookie.add_entry(1, entry_id, entry(1, entry_id), KEY, 0, sink)
            bookie.kick()
        assert submissions.submitted == before + 1
        submissions.release()
        await sink.wait_for(9)
        assert sink.replies == [(0, 1, entry_id) for entry_id in range(1, 10)]
        assert submissions.submitted == before + 2
        assert bookie.statistics().journal_groups == groups + 2
        assert bookie.statistics().journal_queue_entries == 0
    await check(machine, submissions, 10)


async def test_large_groups_and_a_busy_thread_are_left_to_the_thread(machine, submissions):
    payload = bytes(SUBMITTED_BYTES_MAX)
    async with running(machine) as bookie:
        before = submissions.submitted
        await added(bookie, 1, payload)
        assert submissions.submitted == before
        await added(bookie, 2)
        assert submissions.submitted == before + 1
        machine.power.lock.acquire()  # the thread cannot write
        try:
            sink = RecordingSink()
            bookie.add_entry(1, 3, entry(1, 3, payload), KEY, 0, sink)
            bookie.kick()
            bookie.add_entry(1, 4, entry(1, 4), KEY, 0, sink)
            bookie.kick()
            assert submissions.submitted == before + 1
        finally:
            machine.power.lock.release()
        await sink.wait_for(2)
        assert sink.replies == [(0, 1, 3), (0, 1, 4)]


async def test_a_group_of_many_records_is_left_to_the_thread(machine, submissions):
    async with running(machine) as bookie:
        before = submissions.submitted
        for count, submitted in ((SUBMITTED_RECORDS_MAX, 1), (SUBMITTED_RECORDS_MAX + 1, 1)):
            sink = RecordingSink()
            first = 1 if count == SUBMITTED_RECORDS_MAX else 1 + SUBMITTED_RECORDS_MAX
            for entry_id in range(first, first + count):
                bookie.add_entry(1, entry_id, entry(1, entry_id), KEY, 0, sink)
            bookie.kick()
            await sink.wait_for(count)
            assert submissions.submitted == before + submitted
    await check(machine, submissions, 2 + 2 * SUBMITTED_RECORDS_MAX)


async def test_a_barrier_waits_for_what_was_submitted(machine, submissions):
    async with running(machine) as bookie, trio.open_nursery() as nursery:
        submissions.held = True
        sink = RecordingSink()
        bookie.add_entry(1, 1, entry(1, 1), KEY, 0, sink)
        bookie.kick()
        done = []

        async def force():
            await bookie.force_ledger(1)
            done.append(list(sink.replies))

        nursery.start_soon(force)
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert not done
        submissions.release()
        with trio.fail_after(SECONDS_MAX):
            await wait_until(lambda: done)
        assert done == [[(0, 1, 1)]]


async def test_a_read_of_an_entry_log_waits_for_what_was_submitted(
    machine, submissions, monkeypatch
):
    monkeypatch.setattr(read_turns, "WAIT_SECONDS_MAX", 60.0)
    async with running(machine) as bookie, trio.open_nursery() as nursery:
        await added(bookie, 0)
        await bookie.checkpoint()
        submissions.held = True
        sink = RecordingSink()
        bookie.add_entry(1, 1, entry(1, 1), KEY, 0, sink)
        bookie.kick()
        found = []

        async def read():
            found.extend(await bookie.read_batch(1, 0, 1, 1 << 20))

        nursery.start_soon(read)
        await trio.sleep(0.05)
        assert not found
        submissions.release()
        await wait_until(lambda: found == [whole(1, 0)])
        assert sink.replies == [(0, 1, 1)]


async def test_what_is_under_way_when_the_readers_end_is_finished_by_the_thread(
    machine, submissions
):
    bookie = await machine.open(journalPreAllocSizeMB=1)
    readers = Readers()
    async with trio.open_nursery() as nursery:
        await nursery.start(bookie.run)
        async with trio.open_nursery() as reading:
            bookie.use_readers(readers)
            reading.start_soon(readers.run)
            await added(bookie, 0)
            await added(bookie, 1)
            submissions.held = True
            sink = RecordingSink()
            for entry_id in (2, 3):
                bookie.add_entry(1, entry_id, entry(1, entry_id), KEY, 0, sink)
                bookie.kick()
            reading.cancel_scope.cancel()
        await sink.wait_for(2)
        assert sink.replies == [(0, 1, 2), (0, 1, 3)]
        before = submissions.submitted
        await added(bookie, 4)
        assert submissions.submitted == before
        nursery.cancel_scope.cancel()
    await bookie.aclose()
    assert submissions.closed
    await check(machine, submissions, 5)


async def test_what_is_under_way_when_the_bookie_fails_is_not_overwritten(machine, submissions):
    """The journal's last group must not take the place of one that is being written."""
    submitted, other = RecordingSink(), RecordingSink()
    with pytest.RaisesGroup(pytest.RaisesExc(DiskFailed, match="a test")):
        async with running(machine) as bookie:
            submissions.held = True
            bookie.add_entry(1, 1, entry(1, 1), KEY, 0, submitted)
            bookie.kick()
            bookie.add_entry(1, 2, entry(1, 2), KEY, 0, other)
            bookie._adds.fail(DiskFailed("a test"))
            await trio.sleep_forever()
    assert [*submitted.statuses(), *other.statuses()] == [Status.IO_ERROR] * 2
    assert submissions.closed
    await check(machine, submissions, 2)


@pytest.mark.parametrize("when", ["refuses", "refuses_late"])
async def test_a_disk_that_refuses_submissions_gets_the_same_from_the_thread(
    machine, submissions, when
):
    async with running(machine) as bookie:
        setattr(submissions, when, True)
        for entry_id in range(1, 4):
            await added(bookie, entry_id)
        sink = RecordingSink()
        for entry_id in range(4, 8):
            bookie.add_entry(1, entry_id, entry(1, entry_id), KEY, 0, sink)
            bookie.kick()
        await sink.wait_for(4)
        assert sink.replies == [(0, 1, entry_id) for entry_id in range(4, 8)]
    await check(machine, submissions, 8)


@pytest.mark.parametrize(
    ("alignment", "journal_alignment"),
    [(0, 4096), (4096, 512)],
    ids=["no submissions", "another alignment"],
)
async def test_no_group_is_put_together_that_the_file_does_not_take(
    machine, submissions, alignment, journal_alignment
):
    submissions.alignment = alignment
    async with running(machine, journalAlignmentSize=journal_alignment) as bookie:
        for entry_id in range(1, 4):
            await added(bookie, entry_id)
        assert submissions.tried == 0


async def test_the_first_group_of_a_file_is_not_put_together_to_be_submitted(machine, submissions):
    """It begins after the header, which is shorter than what direct writes need."""
    submissions.alignment = 4096
    async with machine.running(journalPreAllocSizeMB=1, journalAlignmentSize=4096) as bookie:
        await added(bookie, 0)
        assert submissions.tried == 0
        await added(bookie, 1)
        assert (submissions.tried, submissions.submitted) == (1, 1)
    await check(machine, submissions, 2)


async def test_a_submitted_write_that_fails_stops_the_bookie(machine, submissions):
    sink = RecordingSink()
    with pytest.RaisesGroup(pytest.RaisesExc(DiskFailed, match="fdatasync")):
        async with running(machine) as bookie:
            machine.disk.sync_fails = True
            for entry_id in (1, 2):
                bookie.add_entry(1, entry_id, entry(1, entry_id), KEY, 0, sink)
                bookie.kick()
            await trio.sleep_forever()
    assert sink.statuses() == [Status.IO_ERROR] * 2
    assert submissions.closed


async def test_a_full_disk_is_found_by_the_thread(machine, submissions):
    """A group for which no space is reserved cannot be submitted. Only the journal finds the disk
    full: the write cache has more room, and the share in use is small."""
    changes = {
        "minUsableSizeForHighPriorityWrites": 0,
        "dbStorage_writeCacheMaxSizeMb": 8,
        "diskCheckInterval": 1,
    }
    async with running(machine, **changes) as bookie:
        before = submissions.submitted
        machine.disk.free_bytes = machine.disk.total_bytes = 1
        sink = RecordingSink()
        entry_id = 1
        while not any(sink.statuses()):
            bookie.add_entry(1, entry_id, entry(1, entry_id, bytes(20_000)), KEY, 0, sink)
            bookie.kick()
            await sink.wait_for(entry_id)
            entry_id += 1
            assert entry_id * 20_000 < 2 * MEGABYTE
        assert submissions.submitted > before
        assert sink.statuses()[-1] == Status.READ_ONLY
        machine.disk.free_bytes = None
        await wait_until(bookie.is_writable)
        await added(bookie, entry_id)
