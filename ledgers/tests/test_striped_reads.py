"""A striped ledger, whose bookies each lack some entries, is not read entry by entry."""

from __future__ import annotations

import random

import pytest
import trio
import trio.testing

from bookie.api import BookieError, Status
from ledgers.client import LedgerClient, LedgerClientConfig
from ledgers.errors import EntryUnknown
from ledgers.tests.fake_bookie import FakeBookie
from metadata.memory_store import MemoryStore
from runtime.clock import SystemClock

ENTRIES = 120


class DistantBookie(FakeBookie):
    """Each answer takes a second."""

    def __init__(self):
        super().__init__()
        self.lost = -1
        self.bytes_given = 0

    async def read_batch(self, ledger_id, first, count, size_bytes_max):
        await trio.sleep(1.0)
        if first == self.lost:
            raise BookieError(Status.IO_ERROR, "a damaged disk")
        bodies = await super().read_batch(ledger_id, first, count, size_bytes_max)
        self.bytes_given += sum(map(len, bodies))
        return bodies


class Nobody:
    def on_entries_confirmed(self, writer, entry_id, length):
        pass


def payload(number):
    return b"%d" % number * (1 + number % 7)


ALL = [payload(number) for number in range(ENTRIES)]


async def striped(entries=ALL):
    bookies = {f"b{number}": DistantBookie() for number in range(3)}
    config = LedgerClientConfig(ensemble_size=3, write_quorum_size=2, ack_quorum_size=2)
    client = LedgerClient(MemoryStore(), bookies, config, SystemClock())
    writer = await client.create_ledger({}, Nobody())
    writer.add_run(entries)
    await trio.testing.wait_all_tasks_blocked()
    await writer.close()
    return bookies.values(), await client.reader(writer.ledger_id)


SMALL = bytes(10)
LARGE = bytes(50_000)
SIZE_MAX = 100_000


async def most_given(entries):
    """The most bytes that bookies gave for one read of all entries, and how long all reads took."""
    bookies, reader = await striped(entries)
    begun = trio.current_time()
    found: list[bytes] = []
    most = given = 0
    while len(found) < len(entries):
        part = await reader.read(len(found), len(entries) - 1, SIZE_MAX)
        assert len(part) == 1 or sum(map(len, part)) <= SIZE_MAX
        found += part
        before, given = given, sum(each.bytes_given for each in bookies)
        most = max(most, given - before)
    assert found == entries
    return most, trio.current_time() - begun


async def read_all(reader, last=ENTRIES - 1, **limits):
    found = []
    while len(found) <= last:
        found += await reader.read(len(found), last, **limits)
    return found


async def test_it_is_read_many_entries_at_a_time(autojump_clock):
    _, reader = await striped()
    begun = trio.current_time()
    assert await read_all(reader) == ALL
    assert trio.current_time() - begun < ENTRIES / 8


async def test_no_more_is_read_than_was_asked_for(autojump_clock):
    bookies, reader = await striped()
    assert await reader.read(5, 11) == ALL[5:12]
    assert sum(each.batch_reads for each in bookies) == 7


async def test_its_size_is_bounded(autojump_clock):
    _, reader = await striped([bytes(1000)] * ENTRIES)
    for limit in (1, 1000, 2500, 10_000):
        found = await reader.read(0, ENTRIES - 1, size_bytes_max=limit)
        assert len(found) == max(1, limit // 1000)
    assert await read_all(reader, size_bytes_max=3000) == [bytes(1000)] * ENTRIES


async def test_an_entry_that_cannot_be_read_ends_the_run_before_it(autojump_clock):
    bookies, reader = await striped()
    for each in bookies:
        each.lost = 7
    assert await reader.read(0, ENTRIES - 1) == ALL[:7]
    with pytest.raises(EntryUnknown, match="damaged disk"):
        await reader.read(7, ENTRIES - 1)


@pytest.mark.parametrize("small", [1, 30, 64, 65, 200])
async def test_large_entries_after_small_ones_are_not_all_on_their_way_at_once(
    autojump_clock, small
):
    most, _ = await most_given([SMALL] * small + [LARGE] * 100)
    assert most < SIZE_MAX + 4 * len(LARGE)


async def test_small_entries_after_large_ones_are_read_many_at_a_time_again(autojump_clock):
    large = [LARGE] * 20
    _, without = await most_given(large)
    _, duration = await most_given(large + [SMALL] * 400)
    assert duration - without < 400 / 8


async def test_a_large_entry_now_and_then_does_not_end_reading_at_the_same_time(autojump_clock):
    entries = ([SMALL] * 30 + [LARGE * 3]) * 10
    most, duration = await most_given(entries)
    assert most < SIZE_MAX + 4 * len(LARGE * 3)
    assert duration < len(entries) / 2


@pytest.mark.parametrize("seed", range(20))
async def test_entries_of_any_sizes_are_read_within_the_size(autojump_clock, seed):
    rng = random.Random(seed)
    entries: list[bytes] = []
    for _ in range(8):
        largest = rng.choice([0, 1, 100, 10_000, len(LARGE)])
        entries += [bytes(rng.randint(0, largest)) for _ in range(rng.randint(1, 60))]
    most, _ = await most_given(entries)
    assert most < SIZE_MAX + 5 * len(LARGE)
