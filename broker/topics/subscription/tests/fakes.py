"""A ledger, cursor, session and clock in memory, simple enough to be believed."""

from __future__ import annotations

from dataclasses import dataclass, replace

import trio
import trio.testing

from broker.ground.config import BrokerConfig
from broker.ground.entry import Entry
from broker.ground.operations import Operations
from broker.ground.turn import Turns
from broker.limits.delayed_budget import DelayedBudget
from broker.tenancy.policies.effective import resolve
from broker.tenancy.policies.record import Policies
from broker.topics.subscription.api import AckId
from broker.topics.subscription.config import SubscriptionConfig
from broker.topics.subscription.consumer import Consumer, ConsumerSession, KeySharedOptions
from broker.topics.subscription.factory import SubscriptionKinds, TopicContext
from broker.topics.subscription.limits import SubscriptionLimits
from broker.topics.subscription.request import SubscriptionRequest
from broker.topics.subscription.stock import STOCK
from broker.topics.subscription.sub_types import SHARED
from protocol import pulsar_api_pb2 as pb
from protocol.errors import BrokerError, ServerError
from security.caller import UNAUTHENTICATED


def make_data(
    key=None, messages=None, deliver_at=None, sequence_id=0, publish_time=1, payload=b"x", **fields
):
    metadata = pb.MessageMetadata(
        producer_name="p", sequence_id=sequence_id, publish_time=publish_time, **fields
    )
    if key is not None:
        metadata.partition_key = key
    if messages is not None:
        metadata.num_messages_in_batch = messages
        payload = payload.ljust(6 * messages)  # as many have room in it
    if deliver_at is not None:
        metadata.deliver_at_time = deliver_at
    encoded = metadata.SerializeToString()
    return b"\x0e\x01\0\0\0\0" + len(encoded).to_bytes(4, "big") + encoded + payload


class FakeClock:
    def __init__(self):
        self.ms = 1_000_000
        self.set_by_ms = 0

    def now(self):
        return self.ms / 1000

    def wall_ms(self):
        return self.ms + self.set_by_ms


class TrioClock:
    """Follows trio's clock, for runs under MockClock. Its wall clock can be set."""

    def __init__(self):
        self.set_by_ms = 0

    def now(self):
        return trio.current_time()

    def wall_ms(self):
        return 100_000_000 + round(trio.current_time() * 1000) + self.set_by_ms


class FakeLedger:
    """`cached_from` is the first position served by read_nowait."""

    def __init__(self, entries_per_ledger=10):
        self.entries = []
        self.per_ledger = entries_per_ledger
        self.terminated = False
        self.cursors = {}
        self.cached_from = (0, 0)
        self.reads = 0
        self.read_error = None
        self.read_gate = None
        """An event that a read waits for."""
        self.client = None

    def append(self, *datas):
        for data in datas:
            index = len(self.entries)
            position = (1 + index // self.per_ledger, index % self.per_ledger)
            entry = Entry(data, -1, position)
            entry.messages()
            self.entries.append(entry)
        return [entry.position for entry in self.entries[len(self.entries) - len(datas) :]]

    def index(self, position):
        """How many entries lie before it."""
        return sum(entry.position < position for entry in self.entries)

    @property
    def last_confirmed(self):
        return self.entries[-1].position if self.entries else (1, -1)

    @property
    def first_position(self):
        return (1, 0)

    def next_position(self, position):
        index = self.index((position[0], position[1] + 1))
        if index < len(self.entries):
            return self.entries[index].position
        last = self.last_confirmed
        return (last[0], last[1] + 1)

    def previous_position(self, position):
        index = self.index(position) - 1
        return self.entries[index].position if index >= 0 else (1, -1)

    def position_after_n(self, position, n):
        index = self.index((position[0], position[1] + 1)) + n - 1
        return self.entries[min(index, len(self.entries) - 1)].position

    def entries_between(self, after, up_to):
        return sum(after < entry.position <= up_to for entry in self.entries)

    def _slice(self, position, count_max, bytes_max):
        start = self.index(position)
        taken, size = [], 0
        for entry in self.entries[start : start + count_max]:
            size += len(entry.data)
            if taken and size > bytes_max:
                break
            taken.append(entry)
        return taken

    def read_nowait(self, position, count_max, bytes_max):
        assert count_max > 0
        taken = self._slice(position, count_max, bytes_max)
        if taken and taken[0].position < self.cached_from:
            return None
        return taken

    async def read(self, position, count_max, bytes_max):
        self.reads += 1
        await trio.lowlevel.checkpoint()
        if self.read_gate is not None:
            await self.read_gate.wait()
        if self.read_error is not None:
            raise BrokerError(ServerError.PersistenceError, self.read_error)
        return self._slice(position, count_max, bytes_max)

    async def find_expired(self, before_ms):
        return await self.find_by_publish_time(before_ms)

    async def find_by_publish_time(self, publish_time_ms):
        found = (1, -1)
        for entry in self.entries:
            if entry.metadata.publish_time < publish_time_ms:
                found = entry.position
        return found

    async def open_cursor(self, name, initial, properties, durable=True):
        if name not in self.cursors:
            self.cursors[name] = FakeCursor(self, name, initial, properties, durable)
        return self.cursors[name]


class FakeCursor:
    def __init__(self, ledger, name, initial, properties, durable):
        self.ledger = ledger
        self.name = name
        self.mark_delete = initial
        self.properties = properties
        self.durable = durable
        self.is_replicated = False
        self.acked = set()
        self.partial = {}
        self.gate = None
        """An event that a reset waits for."""
        self.reset_error = None

    @property
    def individually_acked_count(self):
        return len(self.acked)

    @property
    def acked_range_count(self):
        return sum(self.ledger.previous_position(each) not in self.acked for each in self.acked)

    @property
    def backlog_entries(self):
        ledger = self.ledger
        between = ledger.entries_between(self.mark_delete, ledger.last_confirmed)
        return between - len(self.acked)

    def _known(self, position):
        return any(entry.position == position for entry in self.ledger.entries)

    def set_replicated(self, is_wanted):
        self.is_replicated = is_wanted

    async def flush(self):
        pass

    def ack_individual(self, position):
        if position > self.mark_delete and self._known(position):
            self.acked.add(position)
            self.partial.pop(position, None)
            self._advance()

    def ack_entries(self, ledger_id, entry_ids):
        for entry_id in entry_ids:
            self.ack_individual((ledger_id, entry_id))

    def _advance(self):
        following = self.ledger.next_position(self.mark_delete)
        while following in self.acked:
            self.acked.remove(following)
            self.mark_delete = following
            following = self.ledger.next_position(following)

    def ack_cumulative(self, position):
        if position > self.mark_delete and position <= self.ledger.last_confirmed:
            known = [e.position for e in self.ledger.entries if e.position <= position]
            if known and known[-1] > self.mark_delete:
                self.mark_delete = known[-1]
            self.acked = {each for each in self.acked if each > self.mark_delete}
            self.partial = {k: v for k, v in self.partial.items() if k > self.mark_delete}
            self._advance()

    def ack_batch_index(self, position, remaining):
        if self.is_acked(position) or not self._known(position):
            return True
        left = self.partial.get(position, remaining) & remaining
        if not left:
            self.ack_individual(position)
            return True
        self.partial[position] = left
        return False

    def is_acked(self, position):
        return position <= self.mark_delete or position in self.acked

    def batch_remaining(self, position):
        return self.partial.get(position)

    async def reset(self, position):
        await trio.lowlevel.checkpoint()
        if self.gate is not None:
            await self.gate.wait()
        if self.reset_error is not None:
            raise self.reset_error
        self.mark_delete = position
        self.acked.clear()
        self.partial.clear()


@dataclass
class Received:
    position: tuple
    consumer_id: int
    redelivery_count: int
    ack_set: tuple
    data: bytes
    epoch: int | None
    partition: int


class FakeSession(ConsumerSession):
    """Keeps what it is told."""

    def __init__(self, *, writable=True, on_message=None):
        super().__init__("127.0.0.1:50000", "test", UNAUTHENTICATED)
        self.is_writable = writable
        self.on_message = on_message
        self.received = []
        self.told = []
        """(kind, consumer, more) of what is no message."""
        self.writes = []
        """Messages in each write: as with an outbox, what comes before another task runs."""
        self._is_writing = False
        self.disconnected = []
        self.full_after = None

    @property
    def writable(self):
        return self.is_writable

    @writable.setter
    def writable(self, writable):
        self.is_writable = writable

    def _write(self, count):
        if self._is_writing and self.writes:
            self.writes[-1] += count
            return
        self.writes.append(count)
        self._is_writing = True
        trio.lowlevel.current_trio_token().run_sync_soon(self._end_write)

    def _end_write(self):
        self._is_writing = False

    def deliver(self, consumer, delivery):
        self._write(len(delivery.entry_ids))
        assert delivery.size_bytes == sum(map(len, delivery.payloads))
        nothing = [0] * len(delivery.entry_ids)
        counts = delivery.redelivery_counts or nothing
        ack_sets = delivery.ack_sets or [()] * len(nothing)
        columns = (delivery.entry_ids, delivery.payloads, counts, ack_sets)
        for entry_id, payload, count, ack_set in zip(*columns, strict=True):
            self.received.append(
                Received(
                    (delivery.ledger_id, entry_id),
                    consumer.consumer_id,
                    count,
                    ack_set,
                    payload,
                    consumer.epoch if consumer.epoch >= 0 else None,
                    delivery.partition,
                )
            )
            if self.on_message is not None:
                self.on_message(self.received[-1])
        if self.full_after is not None and len(self.received) >= self.full_after:
            self.is_writable = False

    def deliver_to_many(self, slots, consumers, consumer_ids, entry, payload, epoch):
        assert all(consumers[slot].epoch in (epoch, -1) for slot in slots)
        assert all(consumers[slot].consumer_id == consumer_ids[slot] for slot in slots)
        super().deliver_to_many(slots, consumers, consumer_ids, entry, payload, epoch)

    def active(self, consumer, *, is_active):
        self.told.append(("active", consumer, is_active))

    def ended(self, consumer):
        self.told.append(("ended", consumer))

    def closed(self, consumer):
        self.disconnected.append(consumer)

    def positions(self):
        return [each.position for each in self.received]

    def take(self):
        taken, self.received = self.received, []
        return taken

    def kinds(self):
        return [each[0] for each in self.told]


class FakeOwner:
    def __init__(self):
        self.abandoned = []
        self.ended = []

    async def end_subscription(self, subscription, *, force):
        self.ended.append((subscription, force))

    def on_subscription_abandoned(self, subscription):
        self.abandoned.append(subscription)

    def watch_publishes(self, stages, *, begin):
        self.stages = stages if begin else None


KINDS = SubscriptionKinds(STOCK)


def limits_among(changes):
    """The limits in force, taken out of changes of the settings."""
    limits = SubscriptionLimits(resolve(BrokerConfig(), Policies({})))
    for name in limits.__slots__:
        if name in changes:
            setattr(limits, name, changes.pop(name))
    return limits


def settings(**changes):
    """The settings of a broker without a configuration file, apart from these."""
    return replace(SubscriptionConfig.from_broker_config(BrokerConfig()), **changes)


class Bench:
    """A topic with one subscription."""

    def __init__(
        self, nursery, clock=None, partition=-1, broker_unacked=None, delayed=None, **config
    ):
        limits = limits_among(config)
        self.ledger = FakeLedger()
        self.clock = clock or FakeClock()
        self.owner = FakeOwner()
        self.operations = Operations(lambda: nursery)
        self.context = TopicContext(
            topic_name="persistent://public/default/t",
            partition=partition,
            ledger=self.ledger,
            clock=self.clock,
            config=settings(**config),
            nursery=nursery,
            operations=self.operations,
            owner=self.owner,
            limits=limits,
            turns=Turns(),
            delayed=delayed or DelayedBudget(10_000, 10_000),
            broker_unacked=broker_unacked,
        )
        self.subscription = None
        self.consumer_count = 0
        self.handles = {}
        self.on_entry = lambda entry: None

    async def open(self, name="s", **request):
        request.setdefault("earliest", True)
        self.request = SubscriptionRequest(name=name, **request)
        self.subscription = await KINDS.open(self.request, self.context)
        return self.subscription

    def consumer(self, sub_type=SHARED, permits=0, name=None, session=None, **fields):
        self.consumer_count += 1
        consumer = Consumer(
            consumer_id=self.consumer_count,
            name=name or f"c{self.consumer_count}",
            session=session or FakeSession(),
            sub_type=sub_type,
            **fields,
        )
        handle = self.subscription.attach_consumer(consumer, self.request)
        self.handles[consumer] = handle
        handle.announce()
        if permits:
            self.subscription.flow(consumer, permits)
        return consumer

    def publish(self, *datas):
        positions = self.ledger.append(*datas)
        for entry in self.ledger.entries[-len(datas) :]:
            self.on_entry(entry)
        if self.subscription is not None:
            self.subscription.tail_moved()
        return positions

    def ack(self, consumer, *positions, cumulative=False):
        ids = [AckId(position) for position in positions]
        self.subscription.ack(consumer, ids, cumulative=cumulative)


def sticky(*ranges):
    return KeySharedOptions(sticky=True, ranges=tuple(ranges))


async def settled():
    """Until every task waits for something outside."""
    await trio.testing.wait_all_tasks_blocked()
