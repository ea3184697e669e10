"""Flushes past the page cache: the same entry logs, and a full disk loses nothing."""

from __future__ import annotations

import random
from struct import pack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bookie import entry_log_format as fmt
from bookie.direct_appends import DIRECT_FLUSH_BYTES_MIN, DirectAppends
from bookie.direct_io import ALIGNMENT, STAGING_BYTES
from bookie.disk import RealDisk
from bookie.entry_log import EntryLogs
from bookie.errors import DiskFull
from bookie.flush_pace import PIECE_BYTES, FlushPace, in_a_hurry
from bookie.index_memory import MemoryIndex
from bookie.ledger_state import LedgerState
from bookie.ledger_storage import LedgerStorage
from bookie.memory_disk import MemoryDisk
from bookie.read_turns import JournalWrites
from bookie.testing.sim_disk import SimDisk
from bookie.testing.watched_disk import WatchedDisk

sizes = st.one_of(
    st.integers(0, 9000),
    st.sampled_from([ALIGNMENT, 70_000, STAGING_BYTES - 1024, STAGING_BYTES, STAGING_BYTES + 5000]),
)


@settings(deadline=None, max_examples=40)
@given(
    header=st.integers(0, 9000),
    flushes=st.lists(st.lists(st.lists(sizes, max_size=3), max_size=4), max_size=4),
    is_real=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_a_file_has_what_was_appended_whatever_the_sizes(
    header, flushes, is_real, seed, tmp_path_factory
):
    rng = random.Random(seed)
    disk = RealDisk() if is_real else MemoryDisk()
    path = str(tmp_path_factory.mktemp("appends") / "log") if is_real else "log"
    file = disk.create(path)
    expected = rng.randbytes(header)
    file.write_at(0, expected)
    appends = DirectAppends()
    for flush in flushes:
        for part_sizes in flush:
            parts = [rng.randbytes(size) for size in part_sizes]
            appends.append(file, len(expected), parts)
            expected += b"".join(parts)
        appends.finish()
        assert file.size() == len(expected)
    assert file.read_at(0, len(expected) + 1) == expected
    file.close()
    if is_real:
        disk.remove(path)


def body(ledger_id, entry_id, size, rng):
    return pack(">qq", ledger_id, entry_id), rng.randbytes(size)


class LogReference:
    """Appends to logs, and what they must have in the end."""

    def __init__(self, disk):
        self.logs = EntryLogs(disk, "/l", 64 << 20)
        self.kept = []
        self._rng = random.Random(1)

    def append(self, ledger_id, entry_id, size):
        head, payload = body(ledger_id, entry_id, size, self._rng)
        record = pack(">I", len(head) + len(payload)) + head + payload
        location = self.logs.append([record], len(record), {ledger_id: len(record)}) + 4
        return location, ledger_id, entry_id, record

    def append_durably(self, ledger_id, entry_id, size):
        self.append(ledger_id, entry_id, size)
        self.logs.sync()

    def keep(self, ledger_id, entry_id, size):
        self.kept.append(self.append(ledger_id, entry_id, size))


@pytest.mark.parametrize("size", [STAGING_BYTES + 300, 100], ids=["in the append", "in the sync"])
def test_a_full_disk_undoes_a_flush_and_the_next_one_appends_it_again(size):
    disk = SimDisk()
    reference = LogReference(disk)
    logs = reference.logs
    reference.keep(1, 0, 5000)
    logs.sync()
    logs.begin_direct(in_a_hurry())
    reference.append(2, 0, 3000)
    disk.free_bytes = 0
    with pytest.raises(DiskFull):
        reference.append_durably(2, 1, size)
    assert logs.end_of_logs() == fmt.location_of(0, disk.open("/l/0.log").size())
    disk.free_bytes = None
    logs.begin_direct(in_a_hurry())
    reference.keep(2, 0, 3000)
    reference.keep(2, 1, 100)
    logs.sync()
    logs.seal_active()
    assert list(logs.records(0)) == reference.kept
    counted = {1: 5000 + 20, 2: 3000 + 100 + 2 * 20}
    assert logs.summaries[0].bytes_by_ledger == counted


def test_a_log_that_is_full_during_a_flush_is_complete_and_the_next_one_goes_on():
    disk = SimDisk()
    reference = LogReference(disk)
    logs = reference.logs
    logs.begin_direct(in_a_hurry())
    for entry_id in range(20):
        reference.keep(7, entry_id, 5_000_000)
    logs.sync()
    assert list(logs.records(0)) == reference.kept[: len(list(logs.records(0)))]
    logs.seal_active()
    assert [*logs.records(0), *logs.records(1)] == reference.kept
    assert logs.prove(0).bytes_by_ledger.keys() == {7}


@pytest.mark.parametrize("seed", range(5))
def test_no_direct_write_covers_a_block_that_the_file_had_before(seed):
    """A reader may have it in the page cache, and the system may fail to drop it from there, which
    it reports as a failed sync."""
    rng = random.Random(seed)
    file = MemoryDisk().create("log")
    covered = []

    class Recorded:
        def write_at(self, offset, data):
            file.write_at(offset, data)

        def write_parts_synced_at(self, offset, parts):
            covered.append((offset, sum(map(len, parts)), file.size()))
            file.write_parts_synced_at(offset, parts)

        def sync(self):
            file.sync()

    recorded = Recorded()
    expected = bytes(1024)
    file.write_at(0, expected)
    appends = DirectAppends()
    for _ in range(30):
        data = rng.randbytes(rng.choice((10, 5000, 700_000, STAGING_BYTES - 1, STAGING_BYTES + 9)))
        appends.append(recorded, len(expected), [data])
        expected += data
        if rng.random() < 0.4:
            appends.finish()
    appends.finish()
    assert file.read_at(0, len(expected) + 1) == expected
    assert len(covered) > 5
    for offset, size, size_before in covered:
        assert offset % ALIGNMENT == size % ALIGNMENT == 0
        assert offset >= size_before


def flush(storage, first_entry_id, total_bytes, rng):
    handle = LedgerState(5)
    size = 1_000_000
    for entry_id in range(first_entry_id, first_entry_id + -(-total_bytes // size)):
        storage.cache.put(handle, entry_id, body(5, entry_id, size, rng))
    storage.flush(storage.cache.swap())
    storage.cache.flushed()


def test_memory_is_told_from_a_device(tmp_path):
    assert not MemoryDisk().has_device("/l")
    with open("/proc/mounts", encoding="utf-8") as mounts:
        kinds = dict(line.split()[1:3] for line in mounts)
    shared = "/dev/shm"
    if kinds.get(shared) == "tmpfs":
        assert not RealDisk().has_device(shared)
    assert RealDisk().has_device("/proc/self/nothing")
    assert RealDisk().has_device("/proc")


def test_a_large_flush_leaves_the_page_cache_to_what_is_read(tmp_path):
    rng = random.Random(3)
    ways, written = [], []

    def note(_file, name, _arguments):
        if name.startswith("write_parts"):
            written.append(name)

    disk = WatchedDisk(RealDisk(), note)
    directory = str(tmp_path)
    if not disk.has_device(directory):
        pytest.skip("temporary files are in memory")
    storage = LedgerStorage(disk, directory, MemoryIndex(), 1 << 30, 128 << 20)
    for first_entry_id, size_bytes in enumerate(
        [DIRECT_FLUSH_BYTES_MIN // 2, DIRECT_FLUSH_BYTES_MIN, DIRECT_FLUSH_BYTES_MIN]
    ):
        flush(storage, first_entry_id * 1000, size_bytes, rng)
        ways.append(set(written))
        written.clear()
        if first_entry_id == 1:
            assert storage.read_run(5, 1000, 1, 1 << 20)
    assert ways == [{"write_parts_at"}, {"write_parts_synced_at"}, {"write_parts_at"}]
    for entry_id in (0, 1000, 1009, 2000):
        assert storage.read_run(5, entry_id, 1, 1 << 20)[0][:16] == pack(">qq", 5, entry_id)
    storage.close()


@pytest.mark.parametrize(("filled", "piece"), [(0.0, PIECE_BYTES), (1.0, STAGING_BYTES)])
def test_a_flush_past_the_page_cache_gives_way_while_it_has_time(filled, piece):
    sizes, rests = [], []

    class Log:
        """Notes what is written past the page cache at once."""

        def write_parts_synced_at(self, _offset, parts):
            sizes.append(sum(map(len, parts)))

    pace = FlushPace(JournalWrites(), 2 * STAGING_BYTES, lambda: filled, rests.append)
    appends = DirectAppends()
    appends.begin(pace)
    appends.append(Log(), 0, [bytes(STAGING_BYTES)])
    assert sizes == [piece] * (STAGING_BYTES // piece)
    assert len(rests) == (0 if filled else len(sizes))
