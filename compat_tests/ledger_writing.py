"""Ledgers for tests of autorecovery: a client of Vela writes them and looks at every copy."""

from contextlib import asynccontextmanager

import trio

from autorecovery.copies import CopyReader
from autorecovery.election import current_auditor
from autorecovery.fragments import CopyState, bookies_of, fragments_of
from autorecovery.marks import Marks
from bookie.adds import NoTurn
from ledgers.client import LedgerClient, LedgerClientConfig
from ledgers.placement import PlacementRules
from ledgers.remote.bookie_pool import BookiePool
from ledgers.remote.config import RemoteConfig
from metadata.zookeeper_access import OPEN
from metadata.zookeeper_address import zookeeper_address
from metadata.zookeeper_store import ZooKeeperStore
from protocol.bookkeeper.ledger_metadata import decode_ledger_metadata
from protocol.bookkeeper.paths import ledger_path
from runtime.clock import SystemClock

ENTRIES = 40
"""In each ledger."""
WAIT_SECONDS_MAX = 180.0


class Recorder:
    def __init__(self):
        self.confirmed = -1
        self.changed = trio.Event()

    def on_entries_confirmed(self, writer, entry_id, length):
        self.confirmed = entry_id
        self.changed.set()

    def on_writer_failed(self, writer, status):
        raise AssertionError(status)

    def on_adds_refused(self, writer, delay_s):
        raise AssertionError("nothing here fills a bookie")


class Side:
    """A client that writes ledgers and looks at every copy."""

    def __init__(self, store, pool):
        self.store = store
        self.pool = pool

    async def a_ledger(self, *, close=True, sizes=(3, 2, 2)):
        config = LedgerClientConfig(
            ensemble_size=sizes[0], write_quorum_size=sizes[1], ack_quorum_size=sizes[2]
        )
        client = LedgerClient(self.store, self.pool.bookies, config, SystemClock(), self.pool)
        recorder = Recorder()
        writer = await client.create_ledger({"application": b"pulsar"}, recorder)
        writer.add_run([b"payload of %d" % each for each in range(ENTRIES)])
        with trio.fail_after(WAIT_SECONDS_MAX):
            while recorder.confirmed < ENTRIES - 1:
                recorder.changed = trio.Event()
                await recorder.changed.wait()
        if close:
            await writer.close()
        return writer.ledger_id

    async def metadata(self, ledger_id):
        await self.store.sync()
        return decode_ledger_metadata((await self.store.get(ledger_path(ledger_id)))[0])

    async def is_complete(self, ledger_id, without):
        """Whether no copy of a closed ledger is on the bookie, and every other one is there."""
        metadata = await self.metadata(ledger_id)
        if without in bookies_of(metadata) or not metadata.is_closed:
            return False
        assert metadata.last_entry_id == ENTRIES - 1
        reader = CopyReader(self.pool.bookies, ledger_id, metadata, 30.0)
        for fragment in fragments_of(metadata):
            for place, bookie_id in enumerate(fragment.ensemble):
                for first, last in fragment.runs_at(place):
                    for entry_id in range(first, last + 1):
                        body, state, detail = await reader.read(bookie_id, entry_id)
                        assert state is CopyState.PRESENT, (ledger_id, bookie_id, entry_id, detail)
                        assert body.endswith(b"payload of %d" % entry_id)
        return True

    async def until_complete(self, ledger_ids, without):
        with trio.fail_after(WAIT_SECONDS_MAX):
            for ledger_id in ledger_ids:
                while not await self.is_complete(ledger_id, without):  # noqa: ASYNC110
                    await trio.sleep(0.2)
            while [each async for each in Marks(self.store, "test").ledger_ids()]:  # noqa: ASYNC110
                await trio.sleep(0.2)


@asynccontextmanager
async def a_side(hosts, secured=None, access=OPEN):
    """Of the cluster whose ZooKeeper is there. `secured`: see BookiePool."""
    store = await ZooKeeperStore.open(zookeeper_address(hosts, 30.0, access))
    try:
        async with trio.open_nursery() as nursery:
            pool = BookiePool(
                store,
                NoTurn(),
                RemoteConfig(channels=2),
                PlacementRules(is_rack_aware=False),
                secured=secured,
            )
            await nursery.start(pool.run)
            yield Side(store, pool)
            nursery.cancel_scope.cancel()
    finally:
        await store.aclose()


def until_auditor_is(hosts, name):
    """Wait until the process of this name is the auditor."""

    async def look():
        store = await ZooKeeperStore.open(zookeeper_address(hosts, 30.0))
        try:
            with trio.fail_after(WAIT_SECONDS_MAX):
                while await current_auditor(store) != name:  # noqa: ASYNC110
                    await trio.sleep(0.2)
        finally:
            await store.aclose()

    trio.run(look)
