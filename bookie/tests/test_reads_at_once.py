"""What reads of entry logs may ask of the device, which the journal waits for."""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
import time

import pytest

from bookie import entry_log_format as fmt
from bookie.disk import RealDisk
from bookie.entry_log import EntryLogs
from bookie.memory_disk import MemoryDisk
from bookie.read_turns import READS_AT_ONCE_MAX
from bookie.testing.watched_disk import WatchedDisk
from runtime.testing.conditions import SECONDS_MAX

LIBC = ctypes.CDLL(None, use_errno=True)


def test_a_third_read_begins_when_one_has_ended():
    begun, may_end = threading.Semaphore(0), threading.Semaphore(0)

    def hold(_file, name, _arguments):
        if name == "read_at":
            begun.release()
            assert may_end.acquire(timeout=SECONDS_MAX)

    disk = WatchedDisk(MemoryDisk(), hold)
    logs = EntryLogs(disk, "/ledgers", 1 << 20)
    _, offset = fmt.split_location(logs.append([b"record"], 6, {1: 6}))
    threads = [threading.Thread(target=logs.read, args=(0, offset, 6)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(READS_AT_ONCE_MAX):
        assert begun.acquire(timeout=SECONDS_MAX)
    assert not begun.acquire(timeout=0.05)
    may_end.release()
    assert begun.acquire(timeout=SECONDS_MAX)
    may_end.release(2)
    for thread in threads:
        thread.join(SECONDS_MAX)


@pytest.mark.skipif(not hasattr(LIBC, "mincore"), reason="the page cache cannot be asked")
def test_the_system_reads_no_more_of_an_entry_log_than_was_asked_for(tmp_path):
    path = tmp_path / "0.log"
    path.write_bytes(bytes(16 << 20))
    file = RealDisk().open(str(path))
    descriptor = os.open(path, os.O_RDWR)  # ctypes wants memory that may be written to
    try:
        if not is_dropped_from_the_cache(descriptor, 16 << 20):
            pytest.skip("this file system keeps what it has")
        file.expect_runs()
        for offset in 2 * tuple(range(0, 1 << 20, 1 << 16)):  # once past the page cache
            file.read_at(offset, 1 << 16)
        assert is_cached(descriptor, 0)
        assert not is_cached(descriptor, 8 << 20)
        assert not is_cached(descriptor, 2 << 20)
    finally:
        os.close(descriptor)
        file.close()


def is_dropped_from_the_cache(descriptor, size):
    """Pages that another processor has just touched stay when they are dropped at once."""
    end = time.monotonic() + SECONDS_MAX
    while time.monotonic() < end:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        if not any(is_cached(descriptor, offset) for offset in range(0, size, 1 << 16)):
            return True
    return False


def is_cached(descriptor, offset):
    """Asked by mincore(2): a read that must not wait begins to read ahead on some kernels."""
    present = ctypes.c_ubyte()
    with mmap.mmap(descriptor, mmap.PAGESIZE, mmap.MAP_PRIVATE, offset=offset) as page:
        view = (ctypes.c_ubyte * mmap.PAGESIZE).from_buffer(page)
        done = LIBC.mincore(ctypes.byref(view), ctypes.c_size_t(1), ctypes.byref(present))
        del view
    assert done == 0
    return bool(present.value & 1)
