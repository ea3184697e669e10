"""A broadcast subscription over a ledger in memory, whose snapshots survive a crash."""

from __future__ import annotations

from contextlib import asynccontextmanager
from types import SimpleNamespace

import trio

from broker.ground.operations import Operations
from broker.ground.turn import Turns
from broker.limits.delayed_budget import DelayedBudget
from broker.topics.broadcast.selection import BroadcastKind
from broker.topics.broadcast.window_memory import WindowMemory
from broker.topics.subscription.api import AckId
from broker.topics.subscription.consumer import Consumer
from broker.topics.subscription.factory import TopicContext
from broker.topics.subscription.request import SubscriptionRequest
from broker.topics.subscription.sub_types import SHARED
from broker.topics.subscription.tests.fakes import (
    FakeClock,
    FakeCursor,
    FakeLedger,
    FakeSession,
    limits_among,
    make_data,
    settings,
)
from ledgers.errors import LedgerError, LedgerNotFound

PROPERTIES = {"vela.broadcast": "true"}


class SnapshotLedgers:
    """Ledgers that confirm when told to by the loop; `failing` makes appends fail, and
    `read_error` reads."""

    def __init__(self):
        self.ledgers = {}
        self.custom_metadata = {}
        self.failing = False
        self.read_error = None

    async def create_ledger(self, custom_metadata, listener):
        await trio.lowlevel.checkpoint()
        ledger_id = 100 + len(self.ledgers)
        self.ledgers[ledger_id] = []
        self.custom_metadata[ledger_id] = custom_metadata
        return SnapshotWriter(self, ledger_id, listener)

    async def metadata_of(self, ledger_id):
        if self.ledgers.get(ledger_id) is None:
            raise LedgerNotFound(f"ledger {ledger_id}")
        return SimpleNamespace(custom_metadata=self.custom_metadata[ledger_id])

    async def recover(self, ledger_id):
        if self.ledgers.get(ledger_id) is None:
            raise LedgerNotFound(f"ledger {ledger_id}")
        return SimpleNamespace(last_entry_id=len(self.ledgers[ledger_id]) - 1)

    def reader_of(self, ledger_id, metadata):
        return SnapshotReader(self.ledgers[ledger_id], self.read_error)

    async def delete(self, ledger_id):
        self.ledgers[ledger_id] = None


class SnapshotReader:
    def __init__(self, entries, error=None):
        self.entries = entries
        self.error = error

    async def read(self, first, last, size_bytes_max=1 << 20):
        if self.error is not None:
            raise self.error
        return self.entries[first : first + 1]


class SnapshotWriter:
    def __init__(self, owner, ledger_id, listener):
        self.owner = owner
        self.ledger_id = ledger_id
        self.listener = listener
        self.added = []
        self.length_sent = 0

    @property
    def next_entry_id(self):
        return len(self.owner.ledgers[self.ledger_id]) + len(self.added)

    def add_run(self, payloads):
        if self.owner.failing:
            raise LedgerError("no bookie")
        first = self.next_entry_id
        self.added += payloads
        self.length_sent += sum(map(len, payloads))
        trio.lowlevel.current_trio_token().run_sync_soon(self._store)
        return first

    def _store(self):
        entries = self.owner.ledgers[self.ledger_id]
        entries += self.added
        self.added = []
        self.listener.on_entries_confirmed(self, len(entries) - 1, 0)

    async def close(self):
        await trio.lowlevel.checkpoint()


class Cursor(FakeCursor):
    async def set_properties(self, properties):
        await trio.lowlevel.checkpoint()
        self.properties = dict(properties)


class Ledger(FakeLedger):
    """Also knows positions before its anchor, and holds the snapshot ledgers."""

    def __init__(self):
        super().__init__()
        self.client = SnapshotLedgers()

    def position_after_n(self, position, n):
        if n == 0:
            return position
        index = self.index((position[0], position[1] + 1)) + n - 1
        if index < 0:
            return (1, -1)
        return self.entries[min(index, len(self.entries) - 1)].position

    async def open_cursor(self, name, initial, properties, durable=True):
        if name not in self.cursors:
            self.cursors[name] = Cursor(self, name, initial, properties, durable)
        return self.cursors[name]


class World:
    """One topic; `restart` forgets everything that is not stored."""

    def __init__(self, nursery, **config):
        config.setdefault("acknowledgment_at_batch_index_level_enabled", True)
        config.setdefault("broadcast_virtual_cursor_retention_minutes", 1)
        self.limits = limits_among(config)
        self.config = settings(**config)
        self.nursery = nursery
        self.operations = Operations(lambda: nursery)
        self.ledger = Ledger()
        self.clock = FakeClock()
        self.subscription = None
        self.abandoned = []
        self.ids = 0
        self.handles = {}

    def on_subscription_abandoned(self, subscription):
        self.abandoned.append(subscription)

    def watch_publishes(self, stages, *, begin):
        self.stages = stages if begin else None

    def context(self):
        return TopicContext(
            delayed=DelayedBudget(1, 1),
            topic_name="persistent://public/default/t",
            partition=-1,
            ledger=self.ledger,
            clock=self.clock,
            config=self.config,
            nursery=self.nursery,
            operations=self.operations,
            owner=self,
            limits=self.limits,
            turns=Turns(),
        )

    async def open(self, *, earliest=False, durable=True):
        request = SubscriptionRequest(
            name="all", earliest=earliest, durable=durable, properties=PROPERTIES
        )
        self.subscription = await BroadcastKind(WindowMemory(64 << 20)).open(
            request, self.context()
        )
        return self.subscription

    async def crash(self):
        """Power is cut: sessions die unheard, and a new broker opens the topic."""
        former = self.subscription
        former.keeper._closed = True
        former.keeper._running = False
        former.keeper._store = None
        former.fanout.close()
        await self.open()

    def publish(self, count=1, **fields):
        positions = self.ledger.append(*(make_data(**fields) for _ in range(count)))
        self.subscription.tail_moved()
        return positions

    async def join(
        self, name, *, session=None, sub_type=SHARED, earliest=False, flow=1000, **fields
    ):
        self.ids += 1
        consumer = Consumer(self.ids, name, session or FakeSession(), sub_type, **fields)
        request = SubscriptionRequest(name="all", earliest=earliest)
        self.handles[consumer] = self.subscription.attach_consumer(consumer, request)
        if flow:
            self.subscription.flow(consumer, flow)
        return consumer

    def ack(self, consumer, *positions, cumulative=False, ack_set=()):
        ids = [AckId(position, ack_set) for position in positions]
        self.handles[consumer].ack(ids, cumulative=cumulative)


def received(consumer):
    """Positions this consumer was sent, in order."""
    return [
        message.position
        for message in consumer.session.received
        if message.consumer_id == consumer.consumer_id
    ]


async def settle():
    """Everything that can happen now has happened."""
    await trio.testing.wait_all_tasks_blocked()


@asynccontextmanager
async def opened(*, durable=True, **config):
    async with trio.open_nursery() as nursery:
        world = World(nursery, **config)
        await world.open(durable=durable)
        yield world
        nursery.cancel_scope.cancel()
