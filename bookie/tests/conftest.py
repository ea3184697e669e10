"""Shared instruments: a sink that remembers answers, entry bodies, small configurations."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
import trio

from bookie.api import BookieError
from bookie.bookie import Bookie
from bookie.config import BookieConfig
from bookie.testing.sim_disk import Power, SimDisk
from bookie.testing.sim_index import SimIndexes
from protocol.bookkeeper.digests import Digest, DigestType
from runtime.readers import Readers
from runtime.testing.conditions import SECONDS_MAX

KEY = b"k" * 20
DIGEST = Digest(DigestType.CRC32C)


class RecordingSink:
    """Remembers every answer and lets a test wait for a number of them."""

    def __init__(self):
        self.replies = []
        self.ends = 0
        self._news = trio.Event()

    def on_add_replies(self, status, ledger_id, first_entry_id, count):
        for entry_id in range(first_entry_id, first_entry_id + count):
            self.replies.append((int(status), ledger_id, entry_id))

    def on_replies_end(self):
        self.ends += 1
        self._news.set()
        self._news = trio.Event()

    async def wait_for(self, count):
        with trio.fail_after(SECONDS_MAX):
            while len(self.replies) < count:
                await self._news.wait()
        return self.replies

    def statuses(self):
        return [status for status, _ledger_id, _entry_id in self.replies]


def entry(ledger_id, entry_id, payload=b"hello"):
    """(head, payload) as a ledger client builds it."""
    return DIGEST.head(ledger_id, entry_id, entry_id - 1, len(payload), payload), payload


def whole(ledger_id, entry_id, payload=b"hello"):
    return b"".join(entry(ledger_id, entry_id, payload))


async def body_or_status(bookie, ledger_id, entry_id):
    """The entry's bytes, or the status of the refusal."""
    try:
        return await bookie.read_entry(ledger_id, entry_id)
    except BookieError as error:
        return error.status


SMALL = BookieConfig(
    journalDirectories=("/j",),
    ledgerDirectories=("/l",),
    dbStorage_writeCacheMaxSizeMb=1,
    journalPreAllocSizeMB=0,
    journalAlignmentSize=512,
    logSizeLimit=64 << 10,
    flushInterval=3_600_000,
    gcWaitTime=3_600_000,
    compactionRateByEntries=10_000_000,
)


async def wait_until(condition):
    """Until something outside of the event loop made it true."""
    with trio.fail_after(SECONDS_MAX):
        while not condition():  # noqa: ASYNC110
            await trio.sleep(0.001)


class Machine:
    """A simulated machine: its disk and indexes, and bookies started on it one after another."""

    def __init__(self, config=SMALL):
        self.config = config
        self.power = Power()
        self.disk = SimDisk(self.power)
        self.indexes = SimIndexes(self.power)

    def crash(self, rng, crash_after=None):
        self.power.is_off = True
        power = Power(crash_after)
        self.disk = self.disk.restart(rng, power)
        self.indexes = self.indexes.restart(rng, power)
        self.power = power

    async def open(self, **changes):
        return await Bookie.open(
            replace(self.config, **changes), self.disk, open_index=self.indexes.open
        )

    @asynccontextmanager
    async def running(self, **changes):
        bookie = await self.open(**changes)
        try:
            async with trio.open_nursery() as nursery:
                readers = Readers()
                bookie.use_readers(readers)
                nursery.start_soon(readers.run)
                await nursery.start(bookie.run)
                yield bookie
                nursery.cancel_scope.cancel()
        finally:
            await bookie.aclose()


@pytest.fixture
def machine():
    return Machine()
