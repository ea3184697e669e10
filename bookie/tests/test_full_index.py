"""The index finds no space for a write: the bookie is read-only, loses nothing, and goes on when
there is space again. A failed sync of the index ends it."""

from __future__ import annotations

import random
import shutil
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
import trio

from bookie.api import Status
from bookie.bookie import Bookie
from bookie.errors import DiskFailed
from bookie.index_rocksdb import RocksIndex
from bookie.ledger_storage import SPARE_BYTES
from bookie.testing.sim_disk import SimDisk
from bookie.tests.conftest import KEY, SMALL, RecordingSink, entry, whole

NO_SPACE = "IO error: No space left on device: While appending to file: 000012.log"
PAYLOAD = b"x" * 500


class FullDisk:
    """A database without room for a write, as rocksdict reports it."""

    def __init__(self, database):
        self._database = database
        self.error = NO_SPACE

    def __getattr__(self, name):
        return getattr(self._database, name)

    def write(self, batch, options):
        raise Exception(self.error)

    def delete_range(self, first, end):
        raise Exception(self.error)

    def close(self):
        self._database.close()
        raise Exception("IO error: Writer has previous error.")


class AlmostFull:
    """A disk with space for about ten entries."""

    def free_and_total_bytes(self, path):
        return SPARE_BYTES + 5_000, 1 << 40


class FailedSync:
    """A database whose log cannot be synced, for lack of space that was promised before."""

    def __init__(self, database):
        self._database = database

    def __getattr__(self, name):
        return getattr(self._database, name)

    def flush_wal(self, sync):
        raise Exception(NO_SPACE)


def config_of(directory):
    return replace(
        SMALL,
        journalDirectories=(f"{directory}/j",),
        ledgerDirectories=(f"{directory}/l",),
        diskCheckInterval=3_600_000,
    )


async def put(bookie, entry_ids, ledger_id=1):
    sink = RecordingSink()
    for entry_id in entry_ids:
        body = entry(ledger_id, entry_id, PAYLOAD)
        bookie.add_entry(ledger_id, entry_id, body, KEY, 0, sink)
    await sink.wait_for(len(entry_ids))
    return set(sink.statuses())


async def check(bookie, count):
    for entry_id in range(count):
        assert await bookie.read_entry(1, entry_id) == whole(1, entry_id, PAYLOAD)


@asynccontextmanager
async def running(directory):
    bookie = await Bookie.open(config_of(directory))
    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(bookie.run)
            yield bookie
            nursery.cancel_scope.cancel()
    finally:
        await bookie.aclose()


def swap(bookie, name, kind):
    """Replace the RocksDB of one of the databases. Returns what puts it back."""
    database = getattr(bookie._storages[0].index, name)
    rocks = database._rocks
    database._rocks = kind(rocks)

    def undo():
        database._rocks = rocks

    return undo


@pytest.mark.parametrize("name", ["_locations", "_ledgers"])
async def test_an_index_without_space_is_read_only_and_loses_nothing(tmp_path, name):
    async with running(tmp_path) as bookie:
        assert await put(bookie, range(20)) == {Status.OK}
        undo = swap(bookie, name, FullDisk)
        await bookie.checkpoint()
        assert not bookie.is_writable()
        assert bookie.statistics().checkpoints == 0
        assert await put(bookie, range(20, 22)) == {Status.READ_ONLY}
        await check(bookie, 20)
        if name == "_locations":
            size = bookie.statistics().entry_log_bytes
            await bookie.checkpoint()
            assert bookie.statistics().entry_log_bytes == size, "each attempt takes more space"
        undo()
        await bookie.checkpoint()
        bookie._monitor.check_now()
        assert bookie.is_writable()
        assert await put(bookie, range(20, 40)) == {Status.OK}
        await bookie.checkpoint()
        assert bookie.statistics().checkpoints == 1
        await check(bookie, 40)
    async with running(tmp_path) as bookie:
        await check(bookie, 40)


class Forgotten(random.Random):
    """A power loss that keeps nothing but what was synced."""

    def choice(self, choices):
        return choices[0]

    def randint(self, first, _last):
        return first

    def random(self):
        return 1.0


async def test_attempts_without_space_do_not_run_ahead_of_the_entry_log(tmp_path):
    """The end row that an attempt writes covers only synced bytes of the log."""
    disk = SimDisk()

    def open_index(directory):
        return RocksIndex(str(tmp_path / "running") + directory)

    config = replace(SMALL, logSizeLimit=1 << 30)
    bookie = await Bookie.open(config, disk, open_index=open_index)
    try:
        assert await put(bookie, range(600)) == {Status.OK}
        undo = swap(bookie, "_locations", FullDisk)
        await bookie.checkpoint()
        undo()
        disk.free_and_total_bytes = lambda _path: (1 << 40, 1 << 40)  # and then others filled it
        disk.free_bytes = 200_000  # for one slice of three
        await bookie.checkpoint()
        disk.free_bytes = 0
        await bookie.checkpoint()
        shutil.copytree(tmp_path / "running", tmp_path / "lost")
        lost = disk.restart(Forgotten())
    finally:
        disk.free_bytes = None
        await bookie.aclose()
    again = await Bookie.open(
        config, lost, open_index=lambda directory: RocksIndex(str(tmp_path / "lost") + directory)
    )
    try:
        await check(again, 600)
    finally:
        await again.aclose()


async def test_entries_that_do_not_fit_leave_the_rest_of_the_disk_to_others(tmp_path):
    """The metadata and the indexes need it, and the attempts would only repeat the same bytes."""
    async with running(tmp_path) as bookie:
        await put(bookie, range(20))
        storage = bookie._storages[0]
        real, storage._disk = storage._disk, AlmostFull()
        end = storage.logs.end_of_logs()
        await bookie.checkpoint()
        assert not storage.writable
        assert storage.logs.end_of_logs() == end
        assert storage.logs.count() == 0
        await check(bookie, 20)
        storage._disk = real
        await bookie.checkpoint()
        assert storage.logs.count() == 1


async def test_a_bookie_that_ends_without_space_has_everything_afterwards(tmp_path):
    async with running(tmp_path) as bookie:
        await put(bookie, range(20))
        swap(bookie, "_locations", FullDisk)
        await bookie.checkpoint()
    async with running(tmp_path) as bookie:
        await check(bookie, 20)


async def test_a_deletion_without_space_does_not_end_the_bookie(tmp_path):
    async with running(tmp_path) as bookie:
        await put(bookie, range(20), ledger_id=2)
        await put(bookie, range(20))
        await bookie.checkpoint()

        async def live_ledgers():
            return {1}

        bookie.set_live_ledgers(live_ledgers)
        undo = swap(bookie, "_locations", FullDisk)
        await bookie.collect_garbage()
        undo()
        assert await put(bookie, range(20, 40)) == {Status.OK}
        await check(bookie, 40)


async def without_sync(directory):
    async with running(directory) as bookie:
        await put(bookie, range(20))
        undo = swap(bookie, "_locations", FailedSync)
        await bookie.checkpoint()
        undo()
        await trio.sleep_forever()


async def test_a_failed_sync_of_the_index_ends_the_bookie(tmp_path):
    with pytest.raises(ExceptionGroup) as ended:
        await without_sync(tmp_path)
    assert ended.group_contains(DiskFailed, match="the index cannot be synced")
    async with running(tmp_path) as bookie:
        await check(bookie, 20)
