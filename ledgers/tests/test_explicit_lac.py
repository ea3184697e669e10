"""Bookies are told how far open ledgers are confirmed: what is new, and at a bounded rate."""

from __future__ import annotations

from itertools import pairwise

import pytest
import trio
import trio.testing

from bookie.api import Status
from ledgers.client import LedgerClient, LedgerClientConfig
from ledgers.cluster import FixedCluster
from ledgers.explicit_lac import WRITES_AT_ONCE
from ledgers.open_ledgers import OpenLedgers
from ledgers.placement import PlacementRules
from ledgers.tests.fake_bookie import FakeBookie
from metadata.memory_store import MemoryStore
from protocol.bookkeeper.digests import Digest, DigestType
from runtime.clock import SystemClock

INTERVAL_S = 1.0


class Ledger:
    def __init__(self):
        self.last_add_confirmed = -1
        self.is_stopped = False


def test_a_ledger_is_due_while_more_is_confirmed_than_was_told():
    ledgers = OpenLedgers()
    one, other = Ledger(), Ledger()
    ledgers.opened(one)
    ledgers.opened(other)
    assert ledgers.due() == []
    one.last_add_confirmed = 4
    assert ledgers.due() == [(one, 4)]
    assert ledgers.due() == [(one, 4)]  # it was not told
    one.last_add_confirmed = 6
    ledgers.told(one, 4)
    assert ledgers.due() == [(one, 6)]
    ledgers.told(one, 6)
    assert ledgers.due() == []


def test_a_ledger_that_is_not_written_any_more_is_forgotten():
    ledgers = OpenLedgers()
    ledger = Ledger()
    ledgers.opened(ledger)
    ledger.last_add_confirmed = 4
    assert len(ledgers) == 1
    ledger.is_stopped = True
    assert ledgers.due() == []
    ledgers.told(ledger, 4)  # the end of a write that was under way
    assert len(ledgers) == 0


class Recorder:
    def on_entries_confirmed(self, writer, entry_id, length):
        pass

    def on_writer_failed(self, writer, status):
        raise AssertionError(Status(status))


class World:
    def __init__(self, nursery, interval_s, sizes, spare):
        self.bookies = {f"b{number}": FakeBookie() for number in range(sizes[0] + spare)}
        config = LedgerClientConfig(
            ensemble_size=sizes[0],
            write_quorum_size=sizes[1],
            ack_quorum_size=sizes[2],
            explicit_lac_interval_s=interval_s,
        )
        rules = PlacementRules(is_rack_aware=False)
        self.cluster = FixedCluster(self.bookies, nursery.start_soon, rules)
        self.client = LedgerClient(MemoryStore(), self.bookies, config, SystemClock(), self.cluster)

    async def writer(self):
        return await self.client.create_ledger({}, Recorder())

    async def confirm(self, writer, count):
        writer.add_run([b"x"] * count)
        await trio.testing.wait_all_tasks_blocked()
        assert writer.last_add_confirmed == writer.next_entry_id - 1

    def told(self, writer):
        """What each bookie of the ensemble was told of a ledger."""
        digest = Digest(DigestType.CRC32C, b"")
        return [
            [
                digest.verify_explicit_lac(body, ledger_id)
                for _at, ledger_id, body in self.bookies[bookie_id].explicit_lacs
                if ledger_id == writer.ledger_id
            ]
            for bookie_id in writer.metadata.last_ensemble[1]
        ]


@pytest.fixture
async def world(autojump_clock):
    async with trio.open_nursery() as nursery:

        def make(interval_s=INTERVAL_S, sizes=(2, 2, 2), spare=0):
            return World(nursery, interval_s, sizes, spare)

        yield make
        nursery.cancel_scope.cancel()


async def test_an_idle_ledger_is_told_once(world, autojump_clock):
    world = world()
    writer = await world.writer()
    await world.confirm(writer, 5)
    await trio.sleep(INTERVAL_S / 2)
    assert world.told(writer) == [[], []]
    await trio.sleep(10 * INTERVAL_S)
    assert world.told(writer) == [[4], [4]]
    await world.confirm(writer, 1)
    await trio.sleep(10 * INTERVAL_S)
    assert world.told(writer) == [[4, 5], [4, 5]]


async def test_a_busy_ledger_is_told_once_per_interval(world, autojump_clock):
    world = world()
    writer = await world.writer()
    for _ in range(100):
        await world.confirm(writer, 1)
        await trio.sleep(INTERVAL_S / 10)
    (bookie, _) = world.bookies.values()
    times = [at for at, _ledger_id, _body in bookie.explicit_lacs]
    assert 8 <= len(times) <= 10
    assert all(later - at >= INTERVAL_S for at, later in pairwise(times))


async def test_without_an_interval_nothing_is_told(world, autojump_clock):
    world = world(interval_s=0.0)
    writer = await world.writer()
    await world.confirm(writer, 5)
    await trio.sleep(100)
    assert world.told(writer) == [[], []]


async def test_a_closed_ledger_is_not_told(world, autojump_clock):
    world = world()
    writer = await world.writer()
    await world.confirm(writer, 5)
    await writer.close()
    await trio.sleep(10 * INTERVAL_S)
    assert world.told(writer) == [[], []]


async def test_what_too_few_bookies_have_is_told_again(world, autojump_clock):
    world = world()
    writer = await world.writer()
    await world.confirm(writer, 5)
    failing = world.bookies[writer.metadata.last_ensemble[1][0]]
    failing.lac_status = lambda: Status.READ_ONLY
    await trio.sleep(2.5 * INTERVAL_S)
    assert world.told(writer) == [[], [4, 4]]
    failing.lac_status = lambda: Status.OK
    await trio.sleep(10 * INTERVAL_S)
    assert world.told(writer) == [[4], [4, 4, 4]]


async def test_an_ack_quorum_is_enough(world, autojump_clock):
    world = world(sizes=(3, 3, 2))
    writer = await world.writer()
    await world.confirm(writer, 5)
    world.bookies[writer.metadata.last_ensemble[1][0]].lac_status = lambda: Status.IO_ERROR
    await trio.sleep(10 * INTERVAL_S)
    assert world.told(writer) == [[], [4], [4]]


async def test_the_bookies_of_the_last_confirmed_entry_are_told(world, autojump_clock):
    world = world(sizes=(3, 2, 2))
    writer = await world.writer()
    await world.confirm(writer, 5)  # the last is entry 4: places 1 and 2
    await trio.sleep(2 * INTERVAL_S)
    assert world.told(writer) == [[], [4], [4]]


async def test_a_bookie_that_took_the_place_of_a_failed_one_is_told(world, autojump_clock):
    world = world(spare=1)
    writer = await world.writer()
    await world.confirm(writer, 5)
    failing_id = writer.metadata.last_ensemble[1][0]
    world.bookies[failing_id].add_status = lambda ledger_id, entry_id: Status.IO_ERROR
    writer.add_run([b"x"])
    await trio.sleep(2 * INTERVAL_S)
    assert failing_id not in writer.metadata.last_ensemble[1]
    assert world.told(writer) == [[5], [5]]


async def test_many_ledgers_are_told_in_a_bounded_number_of_writes_at_once(world, autojump_clock):
    world = world(sizes=(2, 2, 2))
    under_way = most = 0

    def counting(bookie):
        write = bookie.write_explicit_lac

        async def counted(*request):
            nonlocal under_way, most
            under_way += 1
            most = max(most, under_way)
            await trio.sleep(0.001)
            await write(*request)
            under_way -= 1

        bookie.write_explicit_lac = counted

    counting(world.bookies["b0"])
    writers = [await world.writer() for _ in range(3 * WRITES_AT_ONCE)]
    for writer in writers:
        await world.confirm(writer, 2)
    await trio.sleep(2 * INTERVAL_S)
    assert all(world.told(writer)[0] == [1] for writer in writers)
    assert most == WRITES_AT_ONCE
