"""Reads of entry logs give way to records of the journal, and are never stopped by them."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookie import read_turns
from bookie.memory_disk import MemoryDisk
from bookie.read_turns import (
    PIECE_BYTES,
    READS_AT_ONCE_MAX,
    REST_SECONDS_MAX,
    REST_SECONDS_MIN,
    REST_SHARE,
    YIELDING_READS,
    JournalWrites,
    ReadTurns,
)
from bookie.tests.conftest import KEY, RecordingSink, entry, whole
from runtime.testing.conditions import SECONDS_MAX

LONG_SECONDS = 60.0
"""A bound of a wait that no test reaches."""


class SeenFile:
    """Notes the sizes that are asked for, and tells when each read begins."""

    def __init__(self, content, during=lambda: None):
        disk = MemoryDisk()
        self._file = disk.create("/log")
        self._file.write_at(0, content)
        self._during = during
        self.sizes = []
        self.begun = threading.Semaphore(0)

    def read_at(self, offset, size):
        self.sizes.append(size)
        self.begun.release()
        self._during()
        return self._file.read_at(offset, size)


@pytest.fixture
def patient(monkeypatch):
    monkeypatch.setattr(read_turns, "WAIT_SECONDS_MAX", LONG_SECONDS)


def in_thread(call):
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    return thread


def ended(thread):
    thread.join(SECONDS_MAX)
    return not thread.is_alive()


def test_a_read_is_whole_while_nothing_is_written():
    file = SeenFile(bytes(4 * PIECE_BYTES))
    ReadTurns(JournalWrites()).read(file, 0, 4 * PIECE_BYTES)
    assert file.sizes == [4 * PIECE_BYTES]


def test_a_read_waits_for_the_record_that_is_being_written(patient):
    writes, file = JournalWrites(), SeenFile(b"entry")
    turns = ReadTurns(writes)
    writes.begin("journal")
    reader = in_thread(lambda: turns.read(file, 0, 5))
    assert not file.begun.acquire(timeout=0.05)
    writes.end("journal")
    assert file.begun.acquire(timeout=SECONDS_MAX)
    assert ended(reader)


def test_a_record_waits_for_one_piece_of_a_read_at_most(patient):
    """A record that comes during a read is written before its next piece."""
    writes = JournalWrites()
    turns = ReadTurns(writes)
    writes.begin("journal")
    writes.end("journal")
    file = SeenFile(bytes(2 * PIECE_BYTES), during=lambda: writes.begin("journal"))
    reader = in_thread(lambda: turns.read(file, 0, 2 * PIECE_BYTES))
    assert file.begun.acquire(timeout=SECONDS_MAX)
    assert not file.begun.acquire(timeout=0.05)
    assert file.sizes == [PIECE_BYTES]
    writes.end("journal")
    assert ended(reader)
    assert file.sizes == [PIECE_BYTES, PIECE_BYTES]


def test_a_read_waits_for_all_journals(patient):
    writes, file = JournalWrites(), SeenFile(b"entry")
    turns = ReadTurns(writes)
    writes.begin("one")
    writes.begin("other")
    reader = in_thread(lambda: turns.read(file, 0, 5))
    writes.end("one")
    assert not file.begun.acquire(timeout=0.05)
    writes.end("other")
    assert ended(reader)


def test_a_journal_that_never_stops_holds_up_a_read_once_and_not_for_each_piece():
    writes, file = JournalWrites(), SeenFile(bytes(4 * PIECE_BYTES))
    turns = ReadTurns(writes)
    writes.begin("journal")
    assert len(turns.read(file, 0, 4 * PIECE_BYTES)) == 4 * PIECE_BYTES
    assert file.sizes == [4 * PIECE_BYTES]


def test_one_read_at_a_time_while_records_are_written():
    writes = JournalWrites()
    may_end = threading.Semaphore(0)
    file = SeenFile(b"entry", during=lambda: may_end.acquire(timeout=SECONDS_MAX))
    turns = ReadTurns(writes)
    writes.begin("journal")
    writes.end("journal")
    readers = [in_thread(lambda: turns.read(file, 0, 5)) for _ in range(READS_AT_ONCE_MAX)]
    assert file.begun.acquire(timeout=SECONDS_MAX)
    assert not file.begun.acquire(timeout=0.05)
    for _ in readers:
        may_end.release()
    assert all(ended(reader) for reader in readers)


def test_reads_are_whole_again_some_time_after_the_last_record():
    writes, file = JournalWrites(), SeenFile(bytes(2 * PIECE_BYTES))
    turns = ReadTurns(writes)
    writes.begin("journal")
    writes.end("journal")
    for _ in range(YIELDING_READS):
        turns.read(file, 0, 1)
    file.sizes.clear()
    turns.read(file, 0, 2 * PIECE_BYTES)
    assert file.sizes == [2 * PIECE_BYTES]


def test_a_failed_read_lets_the_next_one_in():
    writes = JournalWrites()
    turns = ReadTurns(writes)
    writes.begin("journal")

    def fail():
        raise OSError("no")

    for _ in range(READS_AT_ONCE_MAX + 1):
        with pytest.raises(OSError, match="no"):
            turns.read(SeenFile(b"entry", during=fail), 0, 5)


@given(
    size=st.integers(0, 3 * PIECE_BYTES),
    offset=st.integers(0, 3 * PIECE_BYTES),
    length=st.sampled_from([0, 1, PIECE_BYTES - 1, PIECE_BYTES, 2 * PIECE_BYTES, 700_001]),
)
def test_the_bytes_are_those_of_one_read(size, offset, length):
    content = bytes(range(251)) * (length // 251 + 1)
    file = SeenFile(content[:length])
    writes = JournalWrites()
    turns = ReadTurns(writes)
    writes.begin("journal")
    writes.end("journal")
    assert turns.read(file, offset, size) == content[:length][offset : offset + size]


async def test_a_bookie_at_rest_has_nothing_under_way(machine, patient):
    """Each group that a journal begins also ends for the readers, whoever writes it."""
    async with machine.running() as bookie:
        sink = RecordingSink()
        for number in range(20):
            bookie.add_entry(1, number, entry(1, number), KEY, 0, sink)
            bookie.kick()
            await sink.wait_for(number + 1)
        await bookie.fence_ledger(1, KEY)
        await bookie.checkpoint()
        assert await bookie.read_batch(1, 0, 1, 1 << 20) == [whole(1, 0)]


class Clock:
    """A time that only reads and rests take."""

    def __init__(self):
        self.now = 0.0
        self.rests = []

    def take(self, seconds):
        self.now += seconds

    def rest(self, seconds):
        self.rests.append(seconds)
        self.now += seconds

    def turns(self, writes):
        return ReadTurns(writes, self.rest, lambda: self.now)


def begin_and_end(writes):
    writes.begin("journal")
    writes.end("journal")


def test_a_directory_rests_between_pieces_while_records_are_written():
    """A millisecond for each piece: a rest of one, its bound."""
    clock, writes = Clock(), JournalWrites()
    file = SeenFile(bytes(3 * PIECE_BYTES), during=lambda: clock.take(0.001))
    turns = clock.turns(writes)
    turns.read(file, 0, 3 * PIECE_BYTES)
    assert clock.rests == []
    begin_and_end(writes)
    turns.read(file, 0, 3 * PIECE_BYTES)
    assert clock.rests == [pytest.approx(REST_SECONDS_MAX)] * 2


def test_a_reader_has_its_bytes_before_the_directory_rests_from_them():
    clock, writes = Clock(), JournalWrites()
    file = SeenFile(b"entry", during=lambda: clock.take(0.001))
    turns = clock.turns(writes)
    begin_and_end(writes)
    turns.read(file, 0, 5)
    assert clock.rests == []
    turns.read(file, 0, 5)
    assert clock.rests == [pytest.approx(REST_SECONDS_MAX)]


def test_time_in_which_nobody_reads_is_part_of_the_rest():
    clock, writes = Clock(), JournalWrites()
    file = SeenFile(b"entry", during=lambda: clock.take(0.001))
    turns = clock.turns(writes)
    begin_and_end(writes)
    turns.read(file, 0, 5)
    clock.take(REST_SECONDS_MAX / 2)
    turns.read(file, 0, 5)
    assert clock.rests == [pytest.approx(REST_SECONDS_MAX / 2)]
    clock.take(REST_SECONDS_MAX)
    turns.read(file, 0, 5)
    assert len(clock.rests) == 1


@given(st.lists(st.floats(0.0, 0.01), max_size=200))
def test_rests_are_never_shorter_than_a_sleep_can_be_and_never_longer_than_is_due(took):
    """A read from the page cache takes microseconds: its rest is saved up."""
    clock, writes = Clock(), JournalWrites()
    seconds = iter(took)
    file = SeenFile(b"entry", during=lambda: clock.take(next(seconds)))
    turns = clock.turns(writes)
    for _ in took:
        begin_and_end(writes)
        turns.read(file, 0, 5)
    assert all(
        REST_SECONDS_MIN <= rest <= REST_SECONDS_MIN + REST_SECONDS_MAX for rest in clock.rests
    )
    due = sum(min(each * REST_SHARE, REST_SECONDS_MAX) for each in took)
    assert sum(clock.rests) <= due + 1e-9


def test_rests_from_reads_of_microseconds_are_saved_up():
    clock, writes = Clock(), JournalWrites()
    file = SeenFile(b"entry", during=lambda: clock.take(10e-6))
    turns = clock.turns(writes)
    for _ in range(1_000):
        begin_and_end(writes)
        turns.read(file, 0, 5)
    rested = sum(clock.rests)
    assert 0.9 * REST_SHARE * 0.01 < rested <= REST_SHARE * 0.01
    assert len(clock.rests) < 200
