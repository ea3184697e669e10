"""Workers that end anywhere, bookies that fail in between: no copy that is named is missing."""

from __future__ import annotations

import random

import pytest
import trio

from autorecovery.fragments import bookies_of, fragments_of
from autorecovery.tests.worlds import ENTRIES, recovery_world
from bookie.api import Status
from ledgers.tests.test_cluster_over_tcp import payload


async def require_named_copies(world, ledger_id, lost):
    """Every bookie that is named and not lost has every entry that it should have."""
    metadata = await world.metadata(ledger_id)
    for fragment in fragments_of(metadata):
        if fragment.last is None:
            continue
        for place, bookie_id in enumerate(fragment.ensemble):
            if bookie_id in lost:
                continue
            bookie = world.world.node(bookie_id).gate.bookie
            for first, last in fragment.runs_at(place):
                for entry_id in range(first, last + 1):
                    body = await bookie.read_entry(ledger_id, entry_id)
                    assert body.endswith(payload(entry_id))


@pytest.mark.parametrize("seed", range(12))
async def test_a_worker_that_ends_anywhere_leaves_no_named_copy_missing(seed):
    chance = random.Random(seed)
    async with recovery_world(6, chance.choice([(3, 2, 2), (3, 3, 2), (2, 2, 2)])) as world:
        ledgers = []
        for number in range(4):
            writer, _ = await world.a_ledger(ENTRIES + number, close=number > 0)
            ledgers.append(writer.ledger_id)
        lost = set()
        for _ in range(2):
            alive = [each.bookie_id for each in world.nodes if each.bookie_id not in lost]
            gone = chance.choice(alive)
            await world.lose(gone)
            lost.add(gone)
            if chance.random() < 0.5:
                # A target that takes some entries and refuses others.
                refused = chance.randrange(ENTRIES)
                node = chance.choice([each for each in world.nodes if each.bookie_id not in lost])

                def status(ledger_id, entry_id, refused=refused):
                    return Status.IO_ERROR if entry_id == refused else Status.OK

                node.gate.add_status = status
            for _ in range(3):
                await world.auditor().mark_lost(await world.registered())
                worker = world.worker(openLedgerRereplicationGracePeriod=50)
                with trio.move_on_after(chance.random() * 0.3):
                    await worker.run()
                for ledger_id in ledgers:
                    await require_named_copies(world, ledger_id, lost)
            for node in world.nodes:
                node.gate.add_status = lambda ledger_id, entry_id: Status.OK
            await world.auditor().mark_lost(await world.registered())
            worker = world.worker(openLedgerRereplicationGracePeriod=50)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(worker.run)
                await world.until_unmarked()
                nursery.cancel_scope.cancel()
            for ledger_id in ledgers:
                metadata = await world.metadata(ledger_id)
                assert not bookies_of(metadata) & lost
                await require_named_copies(world, ledger_id, lost)
                if metadata.is_closed:
                    assert metadata.last_entry_id >= ENTRIES - 1
