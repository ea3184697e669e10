"""What reads of entry logs may ask of the device, which the journal waits for."""

from __future__ import annotations

import os
import threading

import pytest

from bookie import entry_log_format as fmt
from bookie.disk import RealDisk
from bookie.entry_log import EntryLogs
from bookie.memory_disk import MemoryDisk
from bookie.read_turns import READS_AT_ONCE_MAX
from bookie.tests.conftest import KEY, RecordingSink, entry

SECONDS_MAX = 10.0


class HeldFile:
    """Each read waits to be let go."""

    def __init__(self, file, disk):
        self._file = file
        self._disk = disk

    def __getattr__(self, name):
        return getattr(self._file, name)

    def read_at(self, offset, size):
        self._disk.begun.release()
        assert self._disk.may_end.acquire(timeout=SECONDS_MAX)
        return self._file.read_at(offset, size)


class HeldDisk:
    def __init__(self):
        self._disk = MemoryDisk()
        self.begun = threading.Semaphore(0)
        self.may_end = threading.Semaphore(0)

    def __getattr__(self, name):
        return getattr(self._disk, name)

    def open(self, path):
        return HeldFile(self._disk.open(path), self)


def test_a_third_read_begins_when_one_has_ended():
    disk = HeldDisk()
    logs = EntryLogs(disk, "/ledgers", 1 << 20)
    _, offset = fmt.split_location(logs.append([b"record"], 6, {1: 6}))
    threads = [threading.Thread(target=logs.read, args=(0, offset, 6)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(READS_AT_ONCE_MAX):
        assert disk.begun.acquire(timeout=SECONDS_MAX)
    assert not disk.begun.acquire(timeout=0.05)
    disk.may_end.release()
    assert disk.begun.acquire(timeout=SECONDS_MAX)
    disk.may_end.release(2)
    for thread in threads:
        thread.join(SECONDS_MAX)


@pytest.mark.skipif(not hasattr(os, "RWF_NOWAIT"), reason="the page cache cannot be asked")
def test_the_system_reads_no_more_of_an_entry_log_than_was_asked_for(tmp_path):
    path = tmp_path / "0.log"
    path.write_bytes(bytes(16 << 20))
    file = RealDisk().open(str(path))
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        if is_cached(descriptor, 0):
            pytest.skip("this file system keeps what it has")
        file.expect_runs()
        for offset in range(0, 1 << 20, 1 << 16):
            file.read_at(offset, 1 << 16)
        assert is_cached(descriptor, 0)
        assert not is_cached(descriptor, 8 << 20)
        assert not is_cached(descriptor, 2 << 20)
    finally:
        os.close(descriptor)
        file.close()


def is_cached(descriptor, offset):
    try:
        return os.preadv(descriptor, [bytearray(1)], offset, os.RWF_NOWAIT) == 1
    except BlockingIOError:
        return False
    except OSError:
        return True


class CountedFile:
    """Notes what is read of entry logs."""

    def __init__(self, file, reads):
        self._file = file
        self._reads = reads

    def __getattr__(self, name):
        return getattr(self._file, name)

    def read_at(self, offset, size):
        if self._file.path.endswith(".log"):
            self._reads.append(size)
        return self._file.read_at(offset, size)


class CountedDisk:
    def __init__(self, disk):
        self._disk = disk
        self.reads = []

    def __getattr__(self, name):
        return getattr(self._disk, name)

    def open(self, path):
        return CountedFile(self._disk.open(path), self.reads)


LARGE = 100_000
RUN_BYTES = 1 << 20


@pytest.mark.parametrize("entries", [10, 25])
async def test_a_run_of_large_entries_reads_none_that_it_has_no_room_for(machine, entries):
    """A message of 100 KB, ten of which fit, was read twice in vain after each run."""
    disk = machine.disk = CountedDisk(machine.disk)
    large = {"dbStorage_writeCacheMaxSizeMb": 16, "logSizeLimit": 64 << 20}
    async with machine.running(**large, dbStorage_readAheadCacheMaxSizeMb=0) as bookie:
        sink = RecordingSink()
        for number in range(entries):
            bookie.add_entry(1, number, entry(1, number, bytes(LARGE)), KEY, 0, sink)
        bookie.kick()
        await sink.wait_for(entries)
        await bookie.checkpoint()
        disk.reads.clear()
        run = await bookie.read_batch(1, 0, 100, RUN_BYTES)
    assert len(run) == 10
    assert sum(map(len, run)) <= RUN_BYTES < sum(map(len, run)) + LARGE
    assert sum(disk.reads) < RUN_BYTES + LARGE
