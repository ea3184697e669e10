"""A managed ledger on the real bookie and the real metadata store, in a directory.

Run as a program it appends and acknowledges for ever and prints what it was told is durable, until
it is killed: `python -m broker.managed_ledger.tests.on_disk <directory> <first number> [names]`.
"""

from __future__ import annotations

import sys
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from bookie.bookie import Bookie
from bookie.config import BookieConfig
from broker.ground.entry import Entry
from broker.managed_ledger.config import LedgerPolicies, ManagedLedgerConfig
from broker.managed_ledger.factory import ManagedLedgerFactory
from ledgers.client import LedgerClient, LedgerClientConfig
from metadata.rocks_store import RocksStore
from protocol.position import EARLIEST
from runtime.clock import SystemClock

NAME = "public/default/persistent/topic"
CONFIG = ManagedLedgerConfig(
    max_entries_per_ledger=1000,
    min_rollover_time_s=0.0,
    policies=LedgerPolicies(mark_delete_rate_max=0),
)


@asynccontextmanager
async def factory_on(directory: Path, config=CONFIG, **bookie_keys):
    store = await RocksStore.open(directory / "metadata")
    bookie = await Bookie.open(
        BookieConfig(
            journalPreAllocSizeMB=1,
            **{
                "journalDirectories": (str(directory / "journal"),),
                "ledgerDirectories": (str(directory / "ledgers"),),
                **bookie_keys,
            },
        )
    )
    clock = SystemClock()
    client = LedgerClient(store, {"b": bookie}, LedgerClientConfig(), clock)
    bookie.set_live_ledgers(client.live_ledgers)
    factory = ManagedLedgerFactory(store, client, config, clock)
    factory.bookie = bookie
    async with trio.open_nursery() as nursery:
        await nursery.start(bookie.run)
        await nursery.start(factory.run)
        yield factory
        await factory.aclose()
        await bookie.aclose()
        nursery.cancel_scope.cancel()
    await store.aclose()


class PrintingListener:
    """Prints the last payload of each group once it is durable; acks every third entry."""

    def __init__(self, cursor):
        self.cursor = cursor
        self.pending = 0
        self.room = trio.Event()

    def on_appended(self, entries, contexts):
        self.pending -= len(entries)
        self.room.set()
        for entry in entries:
            if int(entry.data[:12]) % 3 == 0:
                self.cursor.ack_individual(entry.position)
        print(int(entries[-1].data[:12]), flush=True)

    def on_append_failed(self, context, error):
        raise error

    def on_fenced(self):
        raise AssertionError("the ledger is fenced")


def directories(directory: Path, names):
    """Keys for journals and ledgers in these directories; none: the usual ones."""
    if not names:
        return {}
    return {
        "journalDirectories": tuple(str(directory / f"journal-{name}") for name in names),
        "ledgerDirectories": tuple(str(directory / f"ledgers-{name}") for name in names),
    }


async def publish_for_ever(directory: Path) -> None:
    async with factory_on(directory, **directories(directory, sys.argv[3:])) as factory:
        ledger = await factory.open(NAME)
        cursor = await ledger.open_cursor("s", EARLIEST)
        listener = ledger.listener = PrintingListener(cursor)
        number = int(sys.argv[2])
        while True:
            for _ in range(100):
                ledger.append(Entry(b"%012d" % number + b"x" * 200, 1), None)
                number += 1
            listener.pending += 100
            while listener.pending > 3000:
                listener.room = trio.Event()
                await listener.room.wait()
            await trio.lowlevel.checkpoint()


if __name__ == "__main__":
    trio.run(publish_for_ever, Path(sys.argv[1]))
