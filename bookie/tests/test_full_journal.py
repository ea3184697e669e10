"""A journal that finds no space refuses its groups and goes on when there is some."""

from __future__ import annotations

import errno
import os
import random

import pytest

from bookie import journal_format as fmt
from bookie.api import FLAG_HIGH_PRIORITY, BookieError, Status
from bookie.disk import RealDisk
from bookie.errors import DiskFull, JournalFull
from bookie.journal_writer import JournalWriter, journal_path
from bookie.newest_journal import NewestJournal
from bookie.testing.sim_disk import SimDisk
from bookie.tests.conftest import KEY, RecordingSink, entry, wait_until, whole
from bookie.tests.test_journal_writer import bodies_of, config_of, records_in, size_of

MB = 1 << 20
RESERVING = {"journalPreAllocSizeMB": 1, "diskCheckInterval": 5}


def add(bookie, ledger_id, entry_id, sink, payload=b"hello", flags=0):
    bookie.add_entry(ledger_id, entry_id, entry(ledger_id, entry_id, payload), KEY, flags, sink)


async def fill_up(bookie, machine, sink, first_entry_id=0):
    """Until the first refusal. Returns the number of entries acknowledged."""
    machine.disk.total_bytes = 1
    machine.disk.free_bytes = 100_000
    for entry_id in range(first_entry_id, first_entry_id + 100):
        add(bookie, 1, entry_id, sink, b"x" * 100_000)
        await sink.wait_for(len(sink.replies) + 1)
        if sink.statuses()[-1]:
            return entry_id
    raise AssertionError


async def test_no_space_for_the_journal_refuses_adds_until_there_is_some(machine):
    async with machine.running(**RESERVING, dbStorage_writeCacheMaxSizeMb=64) as bookie:
        changes = []
        bookie.watch_writable(lambda: changes.append(bookie.is_writable()))
        sink = RecordingSink()
        known = await fill_up(bookie, machine, sink)
        assert sink.statuses() == [0] * known + [Status.READ_ONLY]
        await wait_until(lambda: changes == [False])
        assert not bookie.has_headroom()
        add(bookie, 1, known + 1, sink)
        add(bookie, 2, 0, sink, flags=FLAG_HIGH_PRIORITY)
        await sink.wait_for(known + 3)
        assert sink.statuses()[known:] == [Status.READ_ONLY] * 3
        assert await bookie.read_entry(1, 0) == whole(1, 0, b"x" * 100_000)
        machine.disk.free_bytes = None
        await wait_until(bookie.is_writable)
        add(bookie, 1, known + 2, sink)
        assert (await sink.wait_for(known + 4))[-1] == (0, 1, known + 2)
    assert changes == [False, True]


async def test_what_was_acknowledged_beside_a_full_journal_survives_a_crash(machine):
    """A key and a fence that were refused are written before what depends on them."""
    async with machine.running(**RESERVING, dbStorage_writeCacheMaxSizeMb=64) as bookie:
        sink = RecordingSink()
        known = await fill_up(bookie, machine, sink)
        with pytest.raises(BookieError) as refusal:
            await bookie.fence_ledger(1, KEY)
        assert refusal.value.status == Status.READ_ONLY
        with pytest.raises(BookieError) as refusal:  # not yet, although it is fenced
            await bookie.fence_ledger(1, KEY)
        assert refusal.value.status == Status.READ_ONLY
        await bookie.checkpoint()  # its barrier does not wait for space
        machine.disk.free_bytes = None
        await wait_until(bookie.is_writable)
        await bookie.fence_ledger(1, KEY)
        add(bookie, 2, 0, sink)
        assert (await sink.wait_for(known + 2))[-1] == (0, 2, 0)
        machine.crash(random.Random(1))
    async with machine.running(**RESERVING) as bookie:
        for entry_id in range(known):
            assert await bookie.read_entry(1, entry_id) == whole(1, entry_id, b"x" * 100_000)
        assert await bookie.read_entry(2, 0) == whole(2, 0)
        sink = RecordingSink()
        add(bookie, 1, known, sink)
        assert (await sink.wait_for(1))[0][0] == Status.FENCED


async def test_a_refused_entry_that_could_be_read_survives_a_crash_with_what_came_later(machine):
    """A recovery may have counted it in, when it was read and the fence was taken."""
    async with machine.running(**RESERVING, dbStorage_writeCacheMaxSizeMb=64) as bookie:
        sink = RecordingSink()
        known = await fill_up(bookie, machine, sink)
        assert await bookie.read_entry(1, known) == whole(1, known, b"x" * 100_000)
        machine.disk.free_bytes = None
        await wait_until(bookie.is_writable)
        await bookie.fence_ledger(1, KEY)
        machine.crash(random.Random(6))
    async with machine.running(**RESERVING) as bookie:
        assert await bookie.read_entry(1, known) == whole(1, known, b"x" * 100_000)


async def test_a_start_on_a_full_disk_is_read_only_until_there_is_space(machine):
    """What is replayed stays in memory and in the old journals."""
    machine.disk.total_bytes = 1
    async with machine.running(**RESERVING) as bookie:
        sink = RecordingSink()
        for entry_id in range(20):
            add(bookie, 1, entry_id, sink, b"x" * 1000)
        await sink.wait_for(20)
        machine.crash(random.Random(2))
    for _ in range(2):
        machine.disk.total_bytes, machine.disk.free_bytes = 1, 0
        async with machine.running(**RESERVING) as bookie:
            assert not bookie.is_writable()
            for entry_id in range(20):
                assert await bookie.read_entry(1, entry_id) == whole(1, entry_id, b"x" * 1000)
            sink = RecordingSink()
            add(bookie, 1, 20, sink)
            assert (await sink.wait_for(1))[0][0] == Status.READ_ONLY
            await bookie.checkpoint()
            machine.crash(random.Random(3))
    machine.disk.total_bytes, machine.disk.free_bytes = 1, 0
    async with machine.running(**RESERVING) as bookie:
        machine.disk.free_bytes = None
        await wait_until(bookie.is_writable)
        sink = RecordingSink()
        add(bookie, 1, 20, sink)
        assert (await sink.wait_for(1))[0][0] == 0
        await bookie.checkpoint()
        await bookie.checkpoint()
        machine.crash(random.Random(4))
    async with machine.running(**RESERVING) as bookie:
        assert await bookie.read_entry(1, 19) == whole(1, 19, b"x" * 1000)
        assert await bookie.read_entry(1, 20) == whole(1, 20)


async def test_a_start_that_cannot_keep_what_it_replays_in_memory_names_the_directory(machine):
    async with machine.running(dbStorage_writeCacheMaxSizeMb=64) as bookie:
        sink = RecordingSink()
        for entry_id in range(20):  # a group each
            add(bookie, 1, entry_id, sink, b"x" * 100_000)
            await sink.wait_for(entry_id + 1)
        machine.crash(random.Random(5))
    machine.disk.free_bytes = 0
    with pytest.raises(DiskFull, match="/l/current: 0 bytes are free"):
        await machine.open()


def test_a_group_without_space_changes_nothing_and_can_be_tried_again():
    disk = SimDisk()
    writer = JournalWriter(disk, "/j", config_of(1, sync=True), 1, NewestJournal(disk, [], 0))
    first, bodies = bodies_of(0, 1000)
    writer.write_group(bodies, size_of(bodies))
    before, mark = disk.content(journal_path("/j", 1)), writer.mark
    disk.free_bytes = 0
    second, bodies = bodies_of(1, 2 * MB)
    for _ in range(2):
        with pytest.raises(JournalFull):
            writer.write_group(bodies, size_of(bodies))
        with pytest.raises(JournalFull):
            writer.reserve()
        assert disk.content(journal_path("/j", 1)) == before
        assert writer.mark == mark
    disk.free_bytes = None
    writer.reserve()
    writer.write_group(bodies, size_of(bodies))
    writer.close()
    assert records_in(disk.content(journal_path("/j", 1)))[0] == [first, second]


def test_a_next_file_without_space_is_made_later():
    disk = SimDisk()
    config = config_of(1, sync=True)
    writer = JournalWriter(disk, "/j", config, 1, NewestJournal(disk, [], 0))
    written = []
    while writer.mark[1] < config.journalMaxSizeMB * MB:
        record, bodies = bodies_of(len(written), 8 * MB)
        writer.write_group(bodies, size_of(bodies))
        written.append(record)
    mark = writer.mark
    disk.free_bytes = 100_000
    record, bodies = bodies_of(len(written), 1000)
    for _ in range(2):
        with pytest.raises(JournalFull):
            writer.write_group(bodies, size_of(bodies))
        assert disk.paths(".txn") == [journal_path("/j", 1)]
        assert writer.mark == mark
    disk.free_bytes = None
    writer.write_group(bodies, size_of(bodies))
    writer.close()
    header = fmt.decode_header(disk.content(journal_path("/j", 2))[: fmt.HEADER_SIZE], "f")
    assert header.previous is not None
    assert records_in(disk.content(journal_path("/j", 2)))[0] == [record]


def test_a_reservation_that_failed_gives_back_what_it_got(tmp_path, monkeypatch):
    """ext4 keeps the part that it could reserve."""
    file = RealDisk().create(str(tmp_path / "f"))
    file.write_at(0, b"x" * 1000)

    def fails_halfway(descriptor, offset, size):
        os.ftruncate(descriptor, offset + size // 2)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", fails_halfway)
    with pytest.raises(DiskFull, match="preallocating"):
        file.preallocate(1000, MB)
    assert file.size() == 1000
    file.close()
