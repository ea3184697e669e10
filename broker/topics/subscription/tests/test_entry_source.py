"""Reading for redelivery: runs, gaps, what the cache has in part."""

from __future__ import annotations

from broker.topics.subscription.entry_source import EntrySource, ReplaySource, runs
from broker.topics.subscription.tests.fakes import FakeLedger, make_data


class PatchyLedger(FakeLedger):
    """Has single entries in memory, and reads at most two at once."""

    def __init__(self, cached):
        super().__init__()
        self.cached = cached

    def read_nowait(self, position, count_max, bytes_max):
        run = []
        for entry in self._slice(position, count_max, bytes_max):
            if entry.position not in self.cached:
                break
            run.append(entry)
        return run or None

    async def read(self, position, count_max, bytes_max):
        return (await super().read(position, count_max, bytes_max))[:2]


def positions_of(entries):
    return [None if entry is None else entry.position for entry in entries]


def test_runs_join_neighbours_and_leave_out_what_is_apart():
    positions = [(1, 1), (1, 2), (1, 4), (2, 5), (2, 6), (2, 7)]
    assert runs(positions, {}) == [((1, 1), 2), ((1, 4), 1), ((2, 5), 3)]
    assert runs(positions, {(2, 6): None})[2:] == [((2, 5), 1), ((2, 6), 1), ((2, 7), 1)]


async def test_entries_cached_in_part_are_completed_in_one_fill():
    ledger = PatchyLedger({(1, 2), (1, 3)})
    ledger.append(*[make_data() for _ in range(12)])
    wanted = [(1, n) for n in range(2, 9)] + [(2, 1)]
    source = ReplaySource(ledger, 1 << 20)
    assert source.get(wanted) is None
    await source.fill()
    assert positions_of(source.get(wanted)) == wanted


async def test_what_was_in_memory_is_taken_from_there_once_although_others_were_not():
    class NotedLedger(PatchyLedger):
        taken = ()

        def read_nowait(self, position, count_max, bytes_max):
            found = super().read_nowait(position, count_max, bytes_max)
            self.taken = (*self.taken, *positions_of(found or ()))
            return found

        async def read(self, position, count_max, bytes_max):
            found = self.read_nowait(position, count_max, bytes_max)
            return found or await super().read(position, count_max, bytes_max)

    ledger = NotedLedger({(1, 0), (1, 1), (1, 5)})
    ledger.append(*[make_data() for _ in range(12)])
    wanted = [(1, n) for n in (0, 1, 3, 5, 6, 9)]
    source = ReplaySource(ledger, 1 << 20)
    assert source.get(wanted) is None
    await source.fill()
    assert positions_of(source.get(wanted)) == wanted
    assert ledger.taken == ((1, 0), (1, 1), (1, 5))  # each counts as one hit of the cache


async def test_scattered_entries_that_lie_close_together_are_read_at_once():
    """As those of one slow consumer of Key_Shared among others."""
    ledger = FakeLedger(entries_per_ledger=10_000)
    ledger.append(*[make_data() for _ in range(1_500)])
    ledger.cached_from = (9, 0)
    wanted = [(1, n) for n in range(0, 1_000, 20)]
    wanted += [(1, 1_400), (1, 1_401), (1, 1_410)]
    source = ReplaySource(ledger, 1 << 20)
    assert source.get(wanted) is None
    await source.fill()
    assert ledger.reads == 2
    assert positions_of(source.get(wanted)) == wanted


async def test_scattered_entries_are_read_within_the_size_of_a_read():
    ledger = FakeLedger(entries_per_ledger=10_000)
    ledger.append(*[make_data(payload=bytes(1000)) for _ in range(100)])
    ledger.cached_from = (9, 0)
    wanted = [(1, n) for n in range(0, 100, 3)]
    source = ReplaySource(ledger, 5_000)
    seen = []
    while wanted:
        assert source.get(wanted) is None
        await source.fill()
        got = positions_of(source.get(wanted))
        assert 0 < len(got) <= 6
        seen += got
        wanted = wanted[len(got) :]
    assert seen == [(1, n) for n in range(0, 100, 3)]


class CountingLedger(FakeLedger):
    """Counts the bytes that reads give."""

    read_bytes = 0

    async def read(self, position, count_max, bytes_max):
        entries = await super().read(position, count_max, bytes_max)
        self.read_bytes += sum(len(entry.data) for entry in entries)
        return entries


async def test_large_entries_between_scattered_ones_are_read_once_at_most():
    ledger = CountingLedger(entries_per_ledger=10_000)
    ledger.append(*[make_data(payload=bytes(1000)) for _ in range(100)])
    ledger.cached_from = (9, 0)
    wanted = [(1, n) for n in range(0, 100, 25)]
    source = ReplaySource(ledger, 10_000)
    assert source.get(wanted) is None
    await source.fill()
    assert positions_of(source.get(wanted)) == wanted
    assert ledger.read_bytes < 10_000 + 5 * 1_100


async def test_what_no_longer_exists_is_told_as_none():
    ledger = FakeLedger()
    ledger.append(*[make_data() for _ in range(12)])
    source = ReplaySource(ledger, 1 << 20)
    assert positions_of(source.get([(0, 5), (1, 3), (1, 99)])) == [None, (1, 3), None]


async def test_a_fill_is_bounded_and_gives_a_prefix():
    ledger = PatchyLedger(set())
    ledger.append(*[make_data(payload=bytes(1000)) for _ in range(10)])
    wanted = [(1, n) for n in range(10)]
    source = ReplaySource(ledger, 3000)
    seen = []
    while wanted:
        assert source.get(wanted) is None
        await source.fill()
        got = positions_of(source.get(wanted))
        assert 0 < len(got) <= 4
        seen += got
        wanted = wanted[len(got) :]
    assert seen == [(1, n) for n in range(10)]


async def test_a_rewind_forgets_a_read_under_way(nursery):
    ledger = FakeLedger()
    ledger.append(*[make_data() for _ in range(5)])
    ledger.cached_from = (9, 0)
    source = EntrySource(ledger, (1, 3))
    assert source.take(10, 1 << 20) is None
    nursery.start_soon(source.fill)
    source.rewind((1, 0))
    await source.fill()
    assert positions_of(source.take(10, 1 << 20)) == [(1, n) for n in range(5)]


def test_what_is_given_back_comes_first():
    ledger = FakeLedger()
    ledger.append(*[make_data() for _ in range(5)])
    source = EntrySource(ledger, (1, 0))
    entries = source.take(4, 1 << 20)
    source.give_back(entries[1:])
    assert source.position == (1, 1)
    assert positions_of(source.take(2, 1 << 20)) == [(1, 1), (1, 2)]
    assert positions_of(source.take(9, 1 << 20)) == [(1, 3)]
    assert positions_of(source.take(9, 1 << 20)) == [(1, 4)]
