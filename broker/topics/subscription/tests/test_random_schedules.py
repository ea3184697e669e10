"""Any schedule of publish, join, leave, flow, ack, nack and blocked connections, for every type.

Checked after every step:
- permits granted - messages sent = permits left; unacked sums equal what is really out;
- no consumer is sent anything beyond its permits or limit by more than one entry;
- Key_Shared: a key is in flight at one consumer only, and a consumer sees a key's messages in
  order except where it asked for redelivery;
- no stuck state: an entry that some consumer can take has been sent.
At the end, with consumers that take and ack all, everything is delivered and the backlog is empty.
"""

from __future__ import annotations

import random

import trio
import trio.testing
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.managed_ledger.tests.world import World as StorageWorld
from broker.topics.subscription.api import AckId
from broker.topics.subscription.round_robin import can_take
from broker.topics.subscription.sub_types import EXCLUSIVE, FAILOVER, KEY_SHARED, SHARED
from broker.topics.subscription.tests.fakes import Bench, TrioClock, make_data, settled
from broker.topics.subscription.tests.ledger_bench import LedgerBench

KEYS = [f"k{n}" for n in range(6)]


class World:
    def __init__(self, bench, sub_type, rng):
        self.bench = bench
        self.sub_type = sub_type
        self.rng = rng
        self.flows = {}
        self.limit = bench.context.limits.max_unacked_messages_per_consumer
        self.keys = {}
        bench.on_entry = self.remember

    # what can happen

    async def publish(self):
        rng = self.rng
        datas = [
            make_data(key=rng.choice(KEYS), messages=rng.choice([None, None, 1, 3]))
            for _ in range(rng.randint(1, 6))
        ]
        bench = self.bench
        if isinstance(bench, LedgerBench):
            await bench.publish_data(*datas)
            return
        if rng.random() < 0.2:
            bench.ledger.cached_from = bench.ledger.last_confirmed
        bench.publish(*datas)

    def remember(self, entry):
        self.keys[entry.position] = entry

    def join(self):
        if self.sub_type == EXCLUSIVE and self.bench.subscription.consumers:
            return
        if len(self.bench.subscription.consumers) >= 5:
            return
        consumer = self.bench.consumer(self.sub_type, name=f"n{self.rng.randint(0, 9)}")
        self.flows[consumer] = 0
        consumer.session.on_message = lambda message: self.check_order(consumer, message)
        self.flow(consumer)

    def flow(self, consumer=None):
        consumer = consumer or self._any()
        if consumer is not None:
            permits = self.rng.choice([1, 1, 3, 10])
            self.flows[consumer] += permits
            self.bench.subscription.flow(consumer, permits)

    def leave(self):
        consumer = self._any()
        if consumer is not None:
            self.bench.subscription.remove_consumer(consumer)

    def ack(self):
        consumer = self._any()
        if consumer is None or not consumer.session.received:
            return
        received = consumer.session.received
        chosen = self.rng.sample(received, min(len(received), self.rng.randint(1, 4)))
        ids = [AckId(each.position) for each in chosen]
        if self.sub_type in (EXCLUSIVE, FAILOVER) and self.rng.random() < 0.5:
            self.bench.subscription.ack(consumer, ids[:1], cumulative=True)
        else:
            self.bench.subscription.ack(consumer, ids, cumulative=False)

    def ack_part(self):
        consumer = self._any()
        batches = (
            [each for each in consumer.session.received if b"\x58\x03" in each.data]
            if (consumer is not None)
            else []
        )
        if batches:
            each = self.rng.choice(batches)
            words = (self.rng.choice([0b011, 0b110, 0b100]),)
            self.bench.subscription.ack(consumer, [AckId(each.position, words)], cumulative=False)

    def nack(self):
        consumer = self._any()
        if consumer is None:
            return
        session = consumer.session
        received = session.positions()
        if self.rng.random() < 0.4 or not received:
            session.take()
            self.bench.subscription.redeliver(consumer, None, -1)
        else:
            chosen = self.rng.sample(received, min(len(received), 3))
            single = self.sub_type in (EXCLUSIVE, FAILOVER)
            kept = [each for each in session.take() if not single and each.position not in chosen]
            session.received = kept
            self.bench.subscription.redeliver(consumer, chosen, -1)

    async def evict(self):
        await trio.sleep(3)

    def clog(self):
        consumer = self._any()
        if consumer is not None:
            consumer.session.writable = not consumer.session.writable
            if consumer.session.writable:
                self.bench.subscription.on_writable(consumer)

    def _any(self):
        consumers = list(self.bench.subscription.consumers)
        return self.rng.choice(consumers) if consumers else None

    # what must hold

    def check_order(self, consumer, message):
        """Earlier messages of the key are acked or at this consumer already."""
        if self.sub_type == KEY_SHARED:
            cursor, key = self.bench.subscription.cursor, self.key(message.position)
            for position in self.keys:
                if position < message.position and self.key(position) == key:
                    assert cursor.is_acked(position) or position in consumer.pending

    def check(self):
        subscription = self.bench.subscription
        dispatcher = subscription.dispatcher
        total = 0
        key_holders = {}
        for consumer in subscription.consumers:
            sent = consumer.counters.messages_out
            assert consumer.permits.available == self.flows[consumer] - sent
            assert consumer.permits.available > -3
            held = sum(pending.messages for pending in consumer.pending.values())
            assert held == consumer.pending.messages
            total += held
            if self.limit:
                assert held < self.limit + 3
                assert not (consumer.blocked_on_unacked and held == 0)
            for position in consumer.pending:
                assert not subscription.cursor.is_acked(position)
                if self.sub_type == KEY_SHARED:
                    key = self.key(position)
                    assert key_holders.setdefault(key, consumer) is consumer, key
        if dispatcher is not None:
            assert dispatcher.unacked_messages == total
        self.check_not_stuck()

    def key(self, position):
        return self.keys[position].metadata.partition_key

    def check_not_stuck(self):
        """An entry neither acked nor in flight must have a reason to wait."""
        subscription = self.bench.subscription
        takers = [each for each in subscription.consumers if can_take(each)]
        if not takers or subscription.dispatcher.blocked_on_unacked:
            return
        cursor = subscription.cursor
        out = {position for each in subscription.consumers for position in each.pending}
        waiting = [
            position
            for position in self.keys
            if not cursor.is_acked(position) and position not in out
        ]
        if self.sub_type == SHARED:
            assert not waiting, subscription.why_not_dispatching()
        elif self.sub_type == KEY_SHARED:
            ranges = subscription.dispatcher.ranges
            in_flight = {}
            for each in subscription.consumers:
                for position in each.pending:
                    in_flight[self.key(position)] = each
            for position in waiting:
                key = self.key(position)
                owner = ranges.owner(ranges.slot(key.encode()))
                free = in_flight.get(key, owner) is owner
                assert not (free and can_take(owner)), (key, position)
        else:
            active = subscription.dispatcher.active
            if active in takers:
                source = subscription.dispatcher._source
                assert all(position < source.position for position in waiting)

    async def finish(self):
        subscription = self.bench.subscription
        for consumer in list(subscription.consumers):
            consumer.session.writable = True
            subscription.on_writable(consumer)
        if not subscription.consumers:
            self.join()
        for _ in range(400):
            await settled()
            for consumer in list(subscription.consumers):
                for each in consumer.session.take():
                    subscription.ack(consumer, [AckId(each.position)], cumulative=False)
                self.flows[consumer] += 10
                subscription.flow(consumer, 10)
            if not subscription.backlog_entries:
                break
            if self.sub_type == FAILOVER:
                await trio.sleep(1.1)
        assert subscription.backlog_entries == 0, subscription.why_not_dispatching()
        assert subscription.why_not_dispatching() == ""


ACTIONS = ["publish", "publish", "join", "flow", "flow", "leave", "ack", "ack", "ack_part"]
ACTIONS += ["nack", "clog", "evict"]


def config_of(rng, seed, limits):
    return {
        "partition": 0,
        "acknowledgment_at_batch_index_level_enabled": seed % 2 == 0,
        "dispatcher_max_read_batch_size": rng.choice([2, 7, 1000]),
        "active_consumer_failover_delay_time_millis": rng.choice([0, 1000]),
        "max_unacked_messages_per_consumer": limits[0],
        "max_unacked_messages_per_subscription": limits[1],
    }


async def play(bench, sub_type, rng, actions):
    await bench.open()
    world = World(bench, sub_type, rng)
    world.join()
    for action in actions:
        done = getattr(world, action)()
        if done is not None:
            await done
        await settled()
        if sub_type == FAILOVER:
            await trio.sleep(1.1)
        world.check()
    await world.finish()
    await bench.subscription.close()


async def run_in_memory(sub_type, seed, actions, limits):
    rng = random.Random(seed)
    async with trio.open_nursery() as nursery:
        bench = Bench(nursery, TrioClock(), **config_of(rng, seed, limits))
        await play(bench, sub_type, rng, actions)
        nursery.cancel_scope.cancel()


async def run_on_a_managed_ledger(sub_type, seed, actions, limits):
    rng = random.Random(seed)
    storage = StorageWorld(max_entries_per_ledger=5)
    async with storage.broker() as factory, trio.open_nursery() as nursery:
        ledger = await factory.open("t")
        bench = LedgerBench(nursery, ledger, **config_of(rng, seed, limits))
        await play(bench, sub_type, rng, actions)
        nursery.cancel_scope.cancel()


SCHEDULES = given(
    sub_type=st.sampled_from([EXCLUSIVE, FAILOVER, SHARED, KEY_SHARED, SHARED, KEY_SHARED]),
    seed=st.integers(0, 10**6),
    actions=st.lists(st.sampled_from(ACTIONS), min_size=5, max_size=50),
    limits=st.sampled_from([(0, 0), (1, 0), (4, 0), (0, 1), (0, 6), (3, 5), (50_000, 200_000)]),
)
CHECKS = list(HealthCheck)


def simulate(run, *arguments):
    trio.run(run, *arguments, clock=trio.testing.MockClock(autojump_threshold=0))


@settings(max_examples=120, deadline=None, suppress_health_check=CHECKS)
@SCHEDULES
def test_every_schedule_delivers_everything(sub_type, seed, actions, limits):
    simulate(run_in_memory, sub_type, seed, actions, limits)


@settings(max_examples=40, deadline=None, suppress_health_check=CHECKS)
@SCHEDULES
def test_every_schedule_delivers_everything_from_storage(sub_type, seed, actions, limits):
    simulate(run_on_a_managed_ledger, sub_type, seed, actions, limits)
