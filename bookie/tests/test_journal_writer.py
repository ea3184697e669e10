"""With any preallocation, a journal file consists of its groups and then zeros."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bookie import journal_format as fmt
from bookie.direct_io import STAGING_BYTES
from bookie.journal_writer import SMALL_GROUP_BYTES, ZEROED_AHEAD_BYTES, JournalWriter, journal_path
from bookie.newest_journal import NewestJournal
from bookie.testing.sim_disk import Power, PowerLost, SimDisk
from bookie.tests.conftest import SMALL, whole

group_sizes = st.lists(
    st.one_of(st.integers(0, 3000), st.integers(SMALL_GROUP_BYTES - 100, 2 * SMALL_GROUP_BYTES)),
    min_size=1,
    max_size=8,
)


def bodies_of(entry_id, size):
    record = whole(1, entry_id, random.Random(entry_id).randbytes(size))
    return record, [(record[:36], record[36:])]


def size_of(bodies):
    return sum(4 + len(head) + len(payload) for head, payload in bodies)


def records_in(content):
    header = fmt.decode_header(content[: fmt.HEADER_SIZE], "f")
    scan = fmt.JournalScan("f", lambda at, n: content[at : at + n], len(content), header, 0)
    return [record for group in scan.groups() for record in group], scan


def write_for_ever(writer, sizes, synced):
    for entry_id in itertools.count():
        record, bodies = bodies_of(entry_id, sizes[entry_id % len(sizes)])
        writer.write_group(bodies, size_of(bodies))
        synced.append(record)


def config_of(megabytes, sync):
    return replace(
        SMALL, journalPreAllocSizeMB=megabytes, journalMaxSizeMB=64, journalSyncData=sync
    )


@settings(deadline=None, max_examples=30)
@given(group_sizes, st.sampled_from([0, 1]), st.booleans())
def test_a_file_is_its_groups_and_then_zeros(sizes, megabytes, sync):
    disk = SimDisk()
    writer = JournalWriter(disk, "/j", config_of(megabytes, sync), 1, NewestJournal(disk, [], 0))
    path = journal_path("/j", 1)
    written = b""
    expected = []
    for entry_id, size in enumerate(sizes):
        record, bodies = bodies_of(entry_id, size)
        expected.append(record)
        writer.write_group(bodies, size_of(bodies))
        content = disk.content(path)
        end = writer.mark[1]
        assert content.startswith(written)
        assert not any(content[end:])
        written = content[:end]
        assert records_in(content)[0] == expected
    writer.close()
    closed = disk.content(path)
    assert closed.startswith(written)
    assert records_in(closed)[0] == expected
    assert len(closed) <= len(written) + SMALL.journalAlignmentSize


@settings(deadline=None, max_examples=30)
@given(group_sizes, st.integers(0, 2**32), st.data())
def test_a_synced_group_survives_a_power_loss_in_any_later_write(sizes, seed, data):
    power = Power()
    disk = SimDisk(power)
    writer = JournalWriter(disk, "/j", config_of(1, sync=True), 1, NewestJournal(disk, [], 0))
    power.crash_after = power.operations + data.draw(st.integers(1, 2 * len(sizes)))
    synced = []
    with pytest.raises(PowerLost):
        write_for_ever(writer, sizes, synced)
    survivor = disk.restart(random.Random(seed))
    found, scan = records_in(survivor.content(journal_path("/j", 1)))
    assert found[: len(synced)] == synced
    assert len(found) <= len(synced) + 1
    assert scan.end in (fmt.ScanEnd.CLEAN, fmt.ScanEnd.TORN)


def test_small_groups_go_to_space_that_was_written_before():
    """Only one group in many makes the file system note newly written space."""
    disk = SimDisk()
    writer = JournalWriter(disk, "/j", config_of(1, sync=True), 1, NewestJournal(disk, [], 0))
    sizes = WriteSizes(writer)
    for entry_id in range(100):
        _, bodies = bodies_of(entry_id, 100)
        writer.write_group(bodies, size_of(bodies))
    fresh = [size for size in sizes.seen if size > ZEROED_AHEAD_BYTES // 2]
    assert 1 <= len(fresh) <= 2


def test_large_groups_bring_no_zeros():
    disk = SimDisk()
    writer = JournalWriter(disk, "/j", config_of(1, sync=True), 1, NewestJournal(disk, [], 0))
    sizes = WriteSizes(writer)
    for entry_id in range(5):
        _, bodies = bodies_of(entry_id, SMALL_GROUP_BYTES)
        writer.write_group(bodies, size_of(bodies))
    assert max(sizes.seen) < 2 * SMALL_GROUP_BYTES


def test_a_small_group_between_large_ones_brings_no_zeros():
    disk = SimDisk()
    writer = JournalWriter(disk, "/j", config_of(1, sync=True), 1, NewestJournal(disk, [], 0))
    sizes = WriteSizes(writer)
    for entry_id in range(6):
        _, bodies = bodies_of(entry_id, 100 if entry_id % 2 else SMALL_GROUP_BYTES)
        writer.write_group(bodies, size_of(bodies))
    assert max(sizes.seen) < 2 * SMALL_GROUP_BYTES


def test_submitted_groups_bring_zeros_only_while_they_are_small():
    disk = SimDisk()
    writer = JournalWriter(disk, "/j", config_of(1, sync=True), 1, NewestJournal(disk, [], 0))
    submissions = SubmittedSizes()
    sizes = [100, SMALL_GROUP_BYTES, 100, 100, SMALL_GROUP_BYTES, SMALL_GROUP_BYTES]
    for entry_id, size in enumerate(sizes):
        _, bodies = bodies_of(entry_id, size)
        assert writer.submit_group(submissions, bodies, size_of(bodies))
        writer.group_is_durable()
    with_zeros = [size > ZEROED_AHEAD_BYTES for size in submissions.seen]
    assert with_zeros == [True, False, False, False, False, False]


class SubmittedSizes:
    """Takes every write, and notes how much it brings."""

    def __init__(self):
        self.seen = []

    def submit(self, file, offset, parts, size):
        assert sum(map(len, parts)) == size
        self.seen.append(size)
        return True


class WriteSizes:
    """Notes how much each write of a journal writer's file brings."""

    def __init__(self, writer):
        self.seen = []
        self._file = writer._file
        writer._file = self

    def write_parts_synced_at(self, offset, parts):
        self.seen.append(sum(map(len, parts)))
        self._file.write_parts_synced_at(offset, parts)

    def preallocate(self, offset, size):
        self._file.preallocate(offset, size)

    def size(self):
        return self._file.size()


@given(
    st.lists(
        st.integers(0, 3) | st.integers(STAGING_BYTES - 9000, STAGING_BYTES + 9000), max_size=4
    )
)
@settings(deadline=None, max_examples=15)
def test_groups_larger_than_the_buffer_are_written_like_others(sizes):
    disk = SimDisk()
    writer = JournalWriter(disk, "/j", config_of(1, sync=True), 1, NewestJournal(disk, [], 0))
    expected = []
    for entry_id, size in enumerate([*sizes, 100, 20 << 20, 100]):
        record, bodies = bodies_of(entry_id, size)
        expected.append(record)
        # Empty bodies are answered in their turn, and write nothing.
        writer.write_group([(b"", b""), *bodies, (b"", b"")], size_of(bodies) + 8)
    assert records_in(disk.content(journal_path("/j", 1)))[0] == expected
