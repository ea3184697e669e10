"""A flush gives way to records of the journal, and is never so late that adds wait for it."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import wait_all_tasks_blocked

from bookie.flush_pace import PIECE_BYTES, PIECE_BYTES_IN_A_HURRY, FlushPace, in_a_hurry, is_ahead
from bookie.index_memory import MemoryIndex
from bookie.ledger_state import LedgerState
from bookie.ledger_storage import LedgerStorage
from bookie.memory_disk import MemoryDisk
from bookie.read_turns import JournalWrites
from bookie.testing.watched_disk import WatchedDisk

HALF_BYTES = 64 * PIECE_BYTES


class Other:
    """The other half of the write cache, and how often a flush has rested."""

    def __init__(self, filled=0.0):
        self.filled = filled
        self.rests = []

    def pace(self, size_bytes=HALF_BYTES):
        return FlushPace(JournalWrites(), size_bytes, lambda: self.filled, self.rests.append)


def write(pace):
    size = pace.piece_bytes
    pace.begin()
    pace.wrote(size)
    return size


def test_a_flush_with_time_writes_small_pieces_and_rests_after_each():
    other = Other()
    pace = other.pace()
    assert [write(pace) for _ in range(64)] == [PIECE_BYTES] * 64
    assert len(other.rests) == 64


def test_a_flush_that_adds_catch_up_with_does_not_rest():
    other = Other()
    pace = other.pace()
    write(pace)
    other.filled = 0.9
    other.rests.clear()
    assert [write(pace) for _ in range(15)] == [PIECE_BYTES_IN_A_HURRY] * 15
    assert other.rests == []


@given(st.integers(1, HALF_BYTES), st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_a_flush_gives_way_only_while_the_other_half_has_room_for_its_rest(size, share, filled):
    written = int(share * size)
    if is_ahead(written, size, filled):
        assert filled <= 0.5
    assert is_ahead(written, size, 0.0)
    assert is_ahead(size, size, 0.5)


def test_recovery_and_compaction_give_way_to_nobody():
    pace = in_a_hurry()
    assert [write(pace) for _ in range(3)] == [PIECE_BYTES_IN_A_HURRY] * 3


@pytest.mark.parametrize(
    ("gives_way", "filled", "piece"),
    [
        (True, 0.0, PIECE_BYTES),
        (True, 1.0, PIECE_BYTES_IN_A_HURRY),
        (False, 0.0, PIECE_BYTES_IN_A_HURRY),
    ],
)
def test_a_flush_through_the_page_cache_makes_as_much_durable_at_once(gives_way, filled, piece):
    synced = []

    def note(file, name, _arguments):
        if name == "sync":
            synced.append(file.size())

    disk = WatchedDisk(MemoryDisk(), note)
    storage = LedgerStorage(disk, "/l", MemoryIndex(), 64 << 20, 64 << 20)
    storage.recover()
    handle = LedgerState(1)
    for entry in range(160):
        head = (1).to_bytes(8, "big") + entry.to_bytes(8, "big")
        storage.cache.put(handle, entry, (head, bytes(100_000)))
    storage.gives_way = gives_way
    half = storage.cache.swap()
    storage.cache.size_bytes = int(filled * (28 << 20))
    synced.clear()
    storage.flush(half)
    sizes = [0, *synced]
    steps = [after - before for before, after in pairwise(sizes)]
    assert len(steps) > 2
    assert all(piece <= step < piece + PIECE_BYTES + 200_000 for step in steps[1:-1])


async def test_flushes_give_way_while_a_bookie_serves_but_not_while_it_stops(machine):
    async with machine.running() as bookie:
        storages = bookie._storages
        await wait_all_tasks_blocked()
        assert all(storage.gives_way for storage in storages)
    assert not any(storage.gives_way for storage in storages)
