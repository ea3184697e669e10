"""Which ledgers of a topic may be deleted, and at which time they count as closed."""

import trio
from hypothesis import given
from hypothesis import strategies as st

from broker.ground.slices import STEPS_PER_SLICE
from broker.managed_ledger.config import LedgerPolicies, RetentionPolicy
from broker.managed_ledger.ledger_table import LedgerRow
from broker.managed_ledger.tests.world import World, append_and_wait, open_ledger
from broker.managed_ledger.trimming import trimmable_count

MIB = 1024 * 1024
HOUR_MS = 3_600_000
YEAR_MS = 365 * 24 * HOUR_MS


def rows_of(*sizes_kib):
    return [LedgerRow(number, 1, size * 1024, 1) for number, size in enumerate(sizes_kib)]


@given(st.lists(st.integers(1, 3000), min_size=1, max_size=12), st.integers(0, 8))
def test_retention_by_size_keeps_as_much_as_it_says_and_no_whole_ledger_more(sizes_kib, size_mb):
    rows = rows_of(*sizes_kib)
    retention = RetentionPolicy(time_minutes=-1, size_mb=size_mb)
    count = trimmable_count(rows, None, retention, 10)
    kept = sum(row.size_bytes for row in rows[count:])
    if count:
        assert kept >= size_mb * MIB
    if count < len(rows) - 1:
        assert kept - rows[count].size_bytes < size_mb * MIB


def test_retention_of_2_mb_keeps_2_mb():
    rows = rows_of(500, 500, 500, 500, 500)
    retention = RetentionPolicy(time_minutes=-1, size_mb=2)
    assert trimmable_count(rows, None, retention, 10) == 0
    rows = rows_of(500, 500, 500, 500, 500, 100)
    assert trimmable_count(rows, None, retention, 10) == 1


def hourly_retention():
    return World(
        max_entries_per_ledger=2,
        policies=LedgerPolicies(retention=RetentionPolicy(time_minutes=60, size_mb=-1)),
        retention_check_interval_s=60.0,
    )


async def test_ledgers_that_a_clock_closed_which_was_a_year_ahead_are_freed(autojump_clock):
    async with hourly_retention().broker() as factory:
        ledger = await open_ledger(factory)
        factory.clock.set_by_ms = YEAR_MS
        await append_and_wait(ledger, b"1", b"2", b"3", b"4")
        factory.clock.set_by_ms = 0
        assert ledger.entries == 4
        await trio.sleep(119 * 60)  # an hour of doubt about the clock, and one of retention
        assert ledger.entries == 4
        await trio.sleep(5 * 60)
        assert ledger.entries == 0


async def test_a_clock_that_is_days_behind_for_a_while_makes_no_ledger_older(autojump_clock):
    async with hourly_retention().broker() as factory:
        ledger = await open_ledger(factory)
        await append_and_wait(ledger, b"1", b"2", b"3", b"4")
        factory.clock.set_by_ms = -3 * 24 * HOUR_MS
        await trio.sleep(30 * 60)
        factory.clock.set_by_ms = 0
        await trio.sleep(25 * 60)
        assert ledger.entries == 4
        await trio.sleep(9 * 60)
        assert ledger.entries == 0


async def test_a_clock_that_is_set_back_and_forward_again_frees_nothing_early(autojump_clock):
    async with hourly_retention().broker() as factory:
        ledger = await open_ledger(factory)
        await append_and_wait(ledger, b"1", b"2", b"3", b"4")
        factory.clock.set_by_ms = -HOUR_MS
        await trio.sleep(5 * 60)
        factory.clock.set_by_ms = 0
        await trio.sleep(50 * 60)
        assert ledger.entries == 4
        await trio.sleep(8 * 60)
        assert ledger.entries == 0


class ManyLedgers:
    """Ledgers whose trimming tells how often other tasks ran since the first of them."""

    def __init__(self, nursery):
        self.name = ""
        self.appender = self
        self.turns = []
        self.turn = 0
        self.all_asked = trio.Event()
        self._nursery = nursery

    def roll_if_too_old(self, now):
        if not self.turns:
            self._nursery.start_soon(self._count)

    def request_trim(self):
        self.turns.append(self.turn)
        if len(self.turns) == 640:
            self.all_asked.set()

    async def _count(self):
        while True:
            self.turn += 1
            await trio.lowlevel.checkpoint()


async def test_retention_of_many_topics_is_checked_in_slices(autojump_clock):
    world = World(retention_check_interval_s=10.0)
    async with world.broker() as factory, trio.open_nursery() as nursery:
        many = ManyLedgers(nursery)
        factory.ledgers = _Same(many, 640)
        await many.all_asked.wait()
        nursery.cancel_scope.cancel()
    assert many.turns[-1] >= 640 // STEPS_PER_SLICE - 2


class _Same:
    """One ledger under many names."""

    def __init__(self, ledger, count):
        self._ledger = ledger
        self._count = count

    def values(self):
        return [self._ledger] * self._count

    def get(self, name):
        return self._ledger
