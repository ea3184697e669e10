"""Reads that are served around damage lead to a mark, and the mark to a repair."""

from __future__ import annotations

import pytest
import trio

from autorecovery.damage_reports import AGAIN_S, REPORTED_MAX, RETRY_S, DamageReports
from autorecovery.marks import Marks
from autorecovery.tests.test_damaged_copies import damage, work
from autorecovery.tests.worlds import ENTRIES, recovery_world
from ledgers.client import LedgerClient
from ledgers.tests.test_cluster_over_tcp import payload
from metadata.memory_store import MemoryStore
from metadata.store import MetadataUnavailable
from runtime.clock import SystemClock


async def lose(world, bookie_id, ledger_id, _entry_id):
    """An index was rebuilt without the log of the ledger: its entries are missing, and in limbo."""
    bookie = world.world.node(bookie_id).gate.bookie
    await bookie.checkpoint()
    for storage in bookie._storages:
        storage.index.remove_locations(ledger_id)
    bookie._handles[ledger_id].limbo = True


@pytest.mark.parametrize("hurt", [damage, lose])
async def test_reads_served_around_damage_lead_to_one_mark_and_a_repair(hurt):
    async with recovery_world(2, (2, 2, 2)) as world, trio.open_nursery() as nursery:
        writer, _ = await world.a_ledger()
        ensemble = (await world.metadata(writer.ledger_id)).ensembles[0]
        bookie_id = ensemble[writer.ledger_id % 2]  # is asked first
        await hurt(world, bookie_id, writer.ledger_id, 30)
        reports = DamageReports(Marks(world.store, "broker"))
        nursery.start_soon(reports.run)
        changed = []
        world.store.watch("/ledgers/underreplication/ledgers", changed.append)
        client = LedgerClient(
            world.store,
            world.pool.bookies,
            world.world.config,
            SystemClock(),
            world.pool,
            on_damage=reports.report,
        )
        reader = await client.reader(writer.ledger_id)

        for _ in range(20):
            assert (await reader.read(30, ENTRIES - 1))[0] == payload(30)
        await world.until(lambda: reports.marked)

        assert await world.marked() == [writer.ledger_id]
        mark = await world.marks.get(writer.ledger_id)
        assert (mark.replicas, mark.damaged) == ((bookie_id,), {bookie_id})
        assert mark.met == {(bookie_id, 30)}
        assert reports.marked == 1

        await work(world, 1)
        await world.require_all_copies(writer.ledger_id)
        assert await world.store.get("/ledgers/underreplication/damaged/0") is None
        nursery.cancel_scope.cancel()


async def test_a_ledger_that_is_intact_is_not_marked():
    async with recovery_world(2, (2, 2, 2)) as world:
        writer, _ = await world.a_ledger()
        reports = []
        client = LedgerClient(
            world.store,
            world.pool.bookies,
            world.world.config,
            SystemClock(),
            world.pool,
            on_damage=lambda *report: reports.append(report),
        )
        # A bookie that does not answer has no damaged copy.
        await world.nodes[0].kill()
        reader = await client.reader(writer.ledger_id)
        assert (await reader.read(0, ENTRIES - 1))[0] == payload(0)
        assert reports == []


class Unavailable:
    """A store that answers nothing until it `is_up`."""

    def __init__(self):
        self._store = MemoryStore()
        self.is_up = False

    def __getattr__(self, name):
        if not self.is_up:
            raise MetadataUnavailable("no connection")
        return getattr(self._store, name)


async def test_reports_wait_for_the_store_in_bounded_memory_and_come_again_later(autojump_clock):
    store = Unavailable()
    reports = DamageReports(Marks(store, "broker"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reports.run)
        for ledger_id in range(3 * REPORTED_MAX):
            reports.report(ledger_id, "a:1", 0)
        await trio.sleep(2 * RETRY_S)
        assert reports.marked == 0
        store.is_up = True
        await trio.sleep(2 * RETRY_S)
        assert reports.marked == REPORTED_MAX

        reports.report(0, "a:1", 0)
        await trio.sleep(1)
        assert reports.marked == REPORTED_MAX
        await trio.sleep(AGAIN_S)
        reports.report(0, "a:1", 0)
        await trio.sleep(1)
        assert reports.marked == REPORTED_MAX + 1
        nursery.cancel_scope.cancel()
