"""Past the page cache or through it: what is written and synced is the same bytes."""

from __future__ import annotations

import mmap
import os
import random
import resource
import signal
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bookie import direct_io, journal_format
from bookie.disk import DIRECT_BYTES_MIN, RealDisk
from bookie.errors import DiskFailed
from bookie.journal_writer import JournalWriter, journal_path
from bookie.newest_journal import NewestJournal
from bookie.tests.conftest import SMALL, whole

PAGE = direct_io.ALIGNMENT


def part_sizes_of(total, rng):
    """Sizes of pieces that are `total` together, some of them empty."""
    sizes = []
    while total:
        size = min(total, rng.choice((0, 4, 36, 1000, 131_072, 1 << 20)))
        sizes.append(size)
        total -= size
    return sizes


def parts_of(total, rng):
    return [rng.randbytes(size) for size in part_sizes_of(total, rng)]


writes = st.lists(
    st.tuples(
        st.integers(0, 40),  # at which page
        st.sampled_from([0, 0, 0, 512, 7]),  # beside it
        st.one_of(
            st.sampled_from([PAGE, DIRECT_BYTES_MIN, DIRECT_BYTES_MIN + 3 * PAGE]),
            st.sampled_from([1, DIRECT_BYTES_MIN + 512, direct_io.STAGING_BYTES + 5 * PAGE]),
        ),
    ),
    min_size=1,
    max_size=6,
)


@settings(
    deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(writes=writes, seed=st.integers(0, 2**32), reserved=st.booleans())
def test_direct_and_buffered_writes_of_one_file_see_each_other(writes, seed, reserved, tmp_path):
    rng = random.Random(seed)
    path = tmp_path / f"{rng.randbytes(8).hex()}"
    file = RealDisk().create(str(path))
    expected = bytearray()
    if reserved:
        file.preallocate(0, 8 << 20)
        expected.extend(bytes(8 << 20))
    for page, beside, size in writes:
        offset = page * PAGE + beside
        parts = parts_of(size, rng)
        file.write_parts_synced_at(offset, parts)
        expected.extend(bytes(max(0, offset - len(expected))))
        expected[offset : offset + size] = b"".join(parts)
        assert file.read_at(0, len(expected) + 1) == expected
    file.close()
    assert path.read_bytes() == expected
    path.unlink()


@pytest.mark.parametrize("pieces", [1, 3], ids=["at-once", "in-pieces"])
def test_a_direct_write_that_the_kernel_refuses_is_reported_not_raised(pieces, tmp_path):
    """Memory that is not aligned is what file systems with O_DIRECT refuse."""
    path = str(tmp_path / "file")
    plain = os.open(path, os.O_RDWR | os.O_CREAT)
    writer = direct_io.open_direct(path, plain)
    if writer is None:
        pytest.skip("no O_DIRECT here")
    writer.close()
    staging = memoryview(mmap.mmap(-1, 4 * PAGE))[1 : 1 + 2 * PAGE]
    writer = direct_io.DirectWriter(os.open(path, os.O_WRONLY | os.O_DIRECT), staging)
    data = random.Random(pieces).randbytes(2 * PAGE * pieces)
    taken = writer.write_synced(0, [data], len(data))
    assert not taken or os.pread(plain, len(data), 0) == data
    writer.close()
    os.close(plain)


def test_where_there_is_no_direct_handle_the_usual_way_is_taken(tmp_path):
    path = tmp_path / "file"
    file = RealDisk().create(str(path))
    path.unlink()  # so it cannot be opened a second time
    data = random.Random(1).randbytes(2 * DIRECT_BYTES_MIN)
    file.write_parts_synced_at(0, [data])
    assert file.read_at(0, len(data)) == data
    file.close()


def test_a_name_that_is_another_file_by_now_is_not_written_to(tmp_path):
    path = str(tmp_path / "file")
    file = RealDisk().create(path)
    os.rename(path, path + ".old")
    other = RealDisk().create(path)
    data = random.Random(2).randbytes(2 * DIRECT_BYTES_MIN)
    file.write_parts_synced_at(0, [data])
    assert file.read_at(0, len(data)) == data
    assert other.size() == 0
    file.close()
    other.close()


def test_a_large_write_that_fails_is_an_error(tmp_path):
    path = str(tmp_path / "file")
    os.close(os.open(path, os.O_CREAT))
    descriptor = os.open(path, os.O_RDONLY)
    writer = direct_io.DirectWriter(descriptor, memoryview(mmap.mmap(-1, PAGE)))
    with pytest.raises(OSError, match="Bad file descriptor"):
        writer.write_synced(0, [bytes(PAGE)], PAGE)
    writer.close()


def test_a_large_write_beyond_the_space_there_is_says_so(tmp_path):
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    file = RealDisk().create(str(tmp_path / "file"))
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2 * PAGE, limit[1]))
    try:
        with pytest.raises(DiskFailed, match="writing"):
            file.write_parts_synced_at(PAGE, [bytes(DIRECT_BYTES_MIN)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, before)
    file.close()


@settings(
    deadline=None, max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    sizes=st.lists(
        st.sampled_from([10, 3000, 70_000, DIRECT_BYTES_MIN, 3 << 20, 5 << 20]),
        min_size=1,
        max_size=8,
    ),
    seed=st.integers(0, 2**32),
    alignment=st.sampled_from([512, 4096]),
    reserved_megabytes=st.sampled_from([0, 1, 16]),
)
def test_groups_of_any_size_are_read_back_from_a_real_journal(
    sizes, seed, alignment, reserved_megabytes, tmp_path
):
    rng = random.Random(seed)
    directory = str(tmp_path / rng.randbytes(8).hex())
    disk = RealDisk()
    disk.make_directories(directory)
    config = replace(
        SMALL,
        journalAlignmentSize=alignment,
        journalPreAllocSizeMB=reserved_megabytes,
        journalMaxSizeMB=64,
        journalSyncData=True,
    )
    writer = JournalWriter(disk, directory, config, 1, NewestJournal(disk, [], 0))
    path = journal_path(directory, 1)
    expected = []
    for entry_id, size in enumerate(sizes):
        record = whole(1, entry_id, rng.randbytes(size))
        expected.append(record)
        writer.write_group([(record[:36], record[36:])], 4 + len(record))
        # As after a kill: the file is read while its writer has closed nothing.
        assert records_of(disk, path) == expected
    writer.close()
    assert records_of(disk, path) == expected
    disk.remove(path)


def records_of(disk, path):
    file = disk.open(path)
    header = journal_format.decode_header(file.read_at(0, journal_format.HEADER_SIZE), path)
    scan = journal_format.JournalScan(path, file.read_at, file.size(), header, 0)
    found = [record for group in scan.groups() for record in group]
    file.close()
    assert scan.end is journal_format.ScanEnd.CLEAN
    return found
