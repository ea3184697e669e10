"""One metadata store, one fake bookie, and brokers that come and go on them."""

from __future__ import annotations

from contextlib import asynccontextmanager

import trio

from broker.ground.entry import Entry
from broker.managed_ledger.config import ManagedLedgerConfig
from broker.managed_ledger.factory import ManagedLedgerFactory
from ledgers.client import LedgerClient, LedgerClientConfig
from ledgers.tests.fake_bookie import FakeBookie
from metadata.memory_store import MemoryStore
from runtime.testing.conditions import SECONDS_MAX

NAME = "public/default/persistent/topic"


class SettableClock:
    """Trio's time (MockClock in tests), and a wall clock that starts in 2023 and can be set."""

    def __init__(self):
        self.set_by_ms = 0

    def now(self):
        return trio.current_time()

    def wall_ms(self):
        return 1_700_000_000_000 + int(trio.current_time() * 1000) + self.set_by_ms


class Listener:
    """Records what the topic would hear."""

    def __init__(self):
        self.appended = []
        self.failed = []
        self.fences = 0
        self.groups = 0
        self._grown = trio.Event()

    def on_appended(self, entries, contexts):
        self._grown.set()
        self.groups += 1
        self.appended.extend(
            (context, entry.position) for entry, context in zip(entries, contexts, strict=True)
        )

    def on_append_failed(self, context, error):
        self.failed.append((context, error))

    def on_fenced(self):
        self.fences += 1

    async def until(self, count):
        """Wait until so many entries were appended."""
        with trio.fail_after(SECONDS_MAX):
            while len(self.appended) < count:
                self._grown = trio.Event()
                await self._grown.wait()

    @property
    def positions(self):
        return [position for _, position in self.appended]

    @property
    def contexts(self):
        return [context for context, _ in self.appended]


class World:
    def __init__(self, **config):
        config.setdefault("min_rollover_time_s", 0.0)
        self.config = ManagedLedgerConfig(**config)
        self.store = MemoryStore()
        self.bookie = FakeBookie()

    @asynccontextmanager
    async def broker(self, readers=lambda _client: None):
        """A running factory; leaving the block is a crash unless `aclose` was called. `readers`
        makes LedgerReaders of a client."""
        clock = SettableClock()
        client = LedgerClient(self.store, {"b": self.bookie}, LedgerClientConfig(), clock)
        factory = ManagedLedgerFactory(self.store, client, self.config, clock, readers(client))
        factory.client = client
        factory.clock = clock
        async with trio.open_nursery() as nursery:
            await nursery.start(factory.run)
            yield factory
            nursery.cancel_scope.cancel()

    def crash_bookie(self):
        self.bookie = self.bookie.after_crash()


async def open_ledger(factory, name=NAME):
    ledger = await factory.open(name)
    ledger.listener = Listener()
    return ledger


def append(ledger, *payloads):
    for payload in payloads:
        ledger.append(Entry(payload, 1), payload)


def append_run(ledger, *payloads):
    ledger.append_run([Entry(payload, 1) for payload in payloads], list(payloads))


async def settle():
    """Let everything that needs no time to pass happen."""
    await trio.testing.wait_all_tasks_blocked()
    await trio.testing.wait_all_tasks_blocked()


async def append_and_wait(ledger, *payloads):
    before = len(ledger.listener.appended)
    append(ledger, *payloads)
    await settle()
    appended = ledger.listener.appended[before:]
    assert [context for context, _ in appended] == list(payloads)
    return [position for _, position in appended]


async def read_all(ledger, position=(-1, -1), count_max=100):
    """Payloads from a position on to the tail."""
    payloads = []
    while True:
        entries = await ledger.read(position, count_max, 1 << 20)
        if not entries:
            return payloads
        payloads += [entry.data for entry in entries]
        position = ledger.next_position(entries[-1].position)
