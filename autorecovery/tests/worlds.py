"""A cluster for tests: bookies behind real ports, a metadata store in memory, parts that repair."""

from __future__ import annotations

import random
from contextlib import asynccontextmanager
from dataclasses import replace

import trio

from autorecovery.auditor import Auditor
from autorecovery.config import AutorecoveryConfig
from autorecovery.copies import CopyReader
from autorecovery.election import Election, Votes
from autorecovery.fragments import CopyState, bookies_of, fragments_of
from autorecovery.marks import Marks
from autorecovery.worker import Incomplete, Outcome, ReplicationWorker
from ledgers.tests.test_cluster_over_tcp import QUICK, payload, world_of
from protocol.bookkeeper.ledger_metadata import decode_ledger_metadata
from protocol.bookkeeper.paths import available_path, ledger_path, read_only_path
from runtime.testing.conditions import SECONDS_MAX, eventually, eventually_answered

CONFIG = AutorecoveryConfig(
    openLedgerRereplicationGracePeriod=200,
    addEntryTimeout=20,
    readEntryTimeout=20,
    rereplicationEntryBatchSize=7,
)
ENTRIES = 60
PATIENT = replace(QUICK, add_timeout_s=20.0, read_timeout_s=20.0)
"""What is killed refuses connections. Nothing here depends on a timeout."""


class RecoveryWorld:
    def __init__(self, world):
        self.world = world
        self.store = world.store
        self.pool = world.pool
        self.nodes = world.nodes
        self.marks = Marks(self.store, "worker-0")
        self.config = CONFIG
        self.chance = random.Random(5)

    def auditor(self, store=None):
        store = store or self.store
        return Auditor(store, Marks(store, "auditor"), self.pool, self.config, self.chance)

    def worker(self, store=None, holder="worker-0", **changes):
        store = store or self.store
        config = replace(self.config, **changes)
        return ReplicationWorker(store, Marks(store, holder), self.pool, config, self.chance)

    def election(self, store, name, audit=trio.sleep_forever):
        return Election(store, Votes(store, name), audit)

    async def metadata(self, ledger_id):
        stored = await self.store.get(ledger_path(ledger_id))
        return decode_ledger_metadata(stored[0])

    async def a_ledger(self, entries=ENTRIES, *, close=True):
        writer, recorder = await self.world.writer()
        if entries:
            writer.add_run([payload(each) for each in range(entries)])
            await recorder.wait_for(entries - 1)
            # The last copies, too: the writer replaces a bookie that does not answer at once.
            await self.until(lambda: self.pool.bytes_in_flight == 0)
        if close:
            await writer.close()
        return writer, recorder

    async def lose(self, bookie_id):
        """The bookie is killed, and its session ends."""
        await self.world.node(bookie_id).kill()
        await self.unregister(bookie_id)

    async def unregister(self, bookie_id):
        await self.store.delete(available_path(bookie_id))
        await self.until(lambda: bookie_id not in self.pool.writable)

    async def register(self, bookie_id):
        await self.store.put_ephemeral(available_path(bookie_id), b"")
        await self.until(lambda: bookie_id in self.pool.writable)

    async def become_read_only(self, bookie_id):
        await self.store.put_ephemeral(read_only_path(bookie_id), b"")
        await self.unregister(bookie_id)
        await self.until(lambda: bookie_id in self.pool.read_only)

    async def until(self, condition):
        await eventually(condition, 60)

    async def registered(self):
        return frozenset((*self.pool.writable, *self.pool.read_only))

    async def marked(self):
        return sorted([each async for each in self.marks.ledger_ids()])

    async def until_unmarked(self):
        async def is_unmarked():
            return not await self.marked()

        await eventually_answered(is_unmarked, 60)

    async def require_all_copies(self, ledger_id):
        """Every bookie that the metadata names has every entry that it should have."""
        metadata = await self.metadata(ledger_id)
        assert bookies_of(metadata) <= await self.registered()
        reader = CopyReader(self.pool.bookies, ledger_id, metadata, 20.0)
        for fragment in fragments_of(metadata):
            for place, bookie_id in enumerate(fragment.ensemble):
                for first, last in fragment.runs_at(place):
                    for entry_id in range(first, last + 1):
                        body, state, detail = await reader.read(bookie_id, entry_id)
                        assert state is CopyState.PRESENT, (bookie_id, entry_id, detail)
                        assert body.endswith(payload(entry_id))

    async def complete(self, worker, ledger_id):
        """Replicate until all copies are there: a bookie that has just started may not be reached
        at once, and a writer may still be replacing a bookie."""
        with trio.fail_after(SECONDS_MAX):
            while True:
                try:
                    if await worker.replicate(ledger_id) is Outcome.COMPLETE:
                        return
                except Incomplete:
                    pass
                await trio.sleep(0.02)


@asynccontextmanager
async def recovery_world(count, sizes):
    async with world_of(count, sizes, PATIENT) as world:
        yield RecoveryWorld(world)
