"""Time to live of messages, and expiration of subscriptions that are not used."""

from __future__ import annotations

import pytest

from broker.ground.config import DEFAULT_CONFIG
from broker.net.tests.harness import T, running
from broker.topics.topic.message_expiry import LOOK_AGAIN_SECONDS, MessageExpiry
from protocol import client as c
from protocol.topic_name import TopicName
from runtime.testing.conditions import eventually

TOPIC = "persistent://public/default/t"
MINUTE = 60.0


class Moved:
    """A clock that is moved by hand. Tasks sleep by the real one."""

    def __init__(self):
        self.seconds = 1_000_000.0
        self.set_by_ms = 0

    def now(self):
        return self.seconds

    def wall_ms(self):
        return int(self.seconds * 1000) + self.set_by_ms


class Looks:
    """A topic, with the times at which it was looked at."""

    closing = ""

    def __init__(self, topic, clock):
        self.name = topic.name
        self._topic = topic
        self._clock = clock
        self.at_seconds = []

    async def expire_messages(self):
        self.at_seconds.append(self._clock.now())
        return await self._topic.expire_messages()


async def set_policy(broker, **fields):
    await broker.service.namespaces.change_policies(
        "public/default", lambda policies: policies.with_fields(**fields)
    )


async def publish(connection, clock, count, *, start=0):
    for number in range(start, start + count):
        message = c.message(b"x", sequence_id=number, publish_time=clock.wall_ms())
        await connection.send(c.send(1, number, message))
        await connection.expect(T.SEND_RECEIPT)


async def test_old_messages_expire_for_every_durable_subscription():
    clock = Moved()
    async with running(clock=clock) as broker:
        connection = await broker.connect()
        await connection.subscribe(TOPIC, "a", consumer_id=1)
        await connection.subscribe(TOPIC, "b", consumer_id=2)
        await connection.producer(TOPIC)
        await publish(connection, clock, 5)
        clock.seconds += 40
        await publish(connection, clock, 3, start=5)
        topic = broker.topic(TOPIC)
        await topic.subscriptions["b"].skip(2)
        expiry = broker.service.services.message_expiry
        clock.seconds += 30
        await expiry.check()
        assert [each.backlog_entries for each in topic.subscriptions.values()] == [8, 6]
        await set_policy(broker, message_ttl_in_seconds=60)
        await expiry.check()
        assert [each.backlog_entries for each in topic.subscriptions.values()] == [3, 3]
        assert [each.expirations.total for each in topic.subscriptions.values()] == [5, 3]
        assert topic.subscriptions["a"].expirations.last_ms == clock.wall_ms()
        await connection.send(c.flow(1, 10))
        message, _ = await connection.expect(T.MESSAGE)
        assert message.message_id.entryId == 5


async def test_what_a_reader_has_not_read_yet_does_not_expire_for_it():
    clock = Moved()
    async with running(clock=clock, ttlDurationDefaultInSeconds=60) as broker:
        connection = await broker.connect()
        await connection.subscribe(TOPIC, "s", consumer_id=1)
        await connection.subscribe(TOPIC, "reader", consumer_id=2, durable=False)
        await connection.producer(TOPIC)
        await publish(connection, clock, 3)
        clock.seconds += 61
        await broker.service.services.message_expiry.check()
        kept = {
            name: (each.backlog_entries, each.expirations.total)
            for name, each in broker.topic(TOPIC).subscriptions.items()
        }
        assert kept == {"s": (0, 3), "reader": (3, 0)}
        await connection.send(c.flow(2, 10))
        message, _ = await connection.expect(T.MESSAGE)
        assert message.message_id.entryId == 0


async def test_a_topic_is_looked_at_when_its_oldest_message_expires_and_not_before():
    clock = Moved()
    async with running(clock=clock, ttlDurationDefaultInSeconds=60) as broker:
        connection = await broker.connect()
        await connection.subscribe(TOPIC)
        await connection.producer(TOPIC)
        await publish(connection, clock, 1)
        topic = broker.topic(TOPIC)
        looks = Looks(topic, clock)
        start = clock.seconds
        expiry = MessageExpiry(broker.service.config, clock)
        expiry.watch(looks)
        for _ in range(13):
            await expiry.check()
            clock.seconds += 10
        assert [each - start for each in looks.at_seconds] == [0, 60, 70]
        assert topic.subscriptions["s"].backlog_entries == 0


@pytest.mark.parametrize("set_by_ms", [-3_600_000, 3_600_000])
async def test_messages_expire_in_time_whatever_the_wall_clock_is_set_to(set_by_ms):
    clock = Moved()
    async with running(clock=clock, ttlDurationDefaultInSeconds=60) as broker:
        connection = await broker.connect()
        await connection.subscribe(TOPIC)
        await connection.producer(TOPIC)
        expiry = broker.service.services.message_expiry
        await expiry.check()
        clock.set_by_ms = set_by_ms
        await publish(connection, clock, 3)
        clock.seconds += LOOK_AGAIN_SECONDS + 1
        await expiry.check()
        assert broker.topic(TOPIC).subscriptions["s"].backlog_entries == 0


async def test_a_time_to_live_of_0_of_a_topic_is_none():
    clock = Moved()
    async with running(clock=clock, ttlDurationDefaultInSeconds=60) as broker:
        connection = await broker.connect()
        await connection.subscribe(TOPIC)
        await connection.producer(TOPIC)
        await publish(connection, clock, 2)
        name = TopicName.parse(TOPIC)
        set_own = broker.service.namespaces.set_topic_policy
        await set_own(name, "message_ttl_in_seconds", 0)
        clock.seconds += 600
        expiry = broker.service.services.message_expiry
        await expiry.check()
        topic = broker.topic(TOPIC)
        assert topic.subscriptions["s"].backlog_entries == 2
        await set_own(name, "message_ttl_in_seconds", None)
        await expiry.check()
        assert topic.subscriptions["s"].backlog_entries == 0


async def test_every_virtual_cursor_of_a_broadcast_passes_what_expired():
    clock = Moved()
    async with running(clock=clock, ttlDurationDefaultInSeconds=60) as broker:
        connection = await broker.connect()
        metadata = {"vela.broadcast": "true"}
        for number, name in enumerate(("one", "two"), 1):
            await connection.subscribe(
                TOPIC, consumer_id=number, consumer_name=name, metadata=metadata
            )
        await connection.producer(TOPIC)
        await publish(connection, clock, 4)
        clock.seconds += 61
        await publish(connection, clock, 1, start=4)
        await broker.service.services.message_expiry.check()
        subscription = broker.topic(TOPIC).subscriptions["s"]
        assert subscription.statistics().type_name == "Broadcast"
        assert subscription.backlog_entries == 1
        assert subscription.cursors.minimum == subscription.cursors.maximum
        await connection.send(c.flow(2, 10))
        message, _ = await connection.expect(T.MESSAGE)
        assert message.message_id.entryId == 4


async def test_topics_that_are_not_loaded_are_not_looked_at():
    clock = Moved()
    async with running(clock=clock, ttlDurationDefaultInSeconds=60) as broker:
        connection = await broker.connect()
        await connection.subscribe(TOPIC)
        await broker.service.unload_topic(TopicName.parse(TOPIC))
        expiry = broker.service.services.message_expiry
        await eventually(lambda: TOPIC not in broker.service.topics or len(expiry._order) == 1)
        await expiry.check()
        assert len(expiry._order) == len(broker.service.topics)


@pytest.mark.parametrize("level", ["broker", "namespace"])
async def test_subscriptions_without_consumers_expire(level):
    clock = Moved()
    settings = {"subscriptionExpirationTimeMinutes": 2} if level == "broker" else {}
    async with running(clock=clock, **settings) as broker:
        if level == "namespace":
            await set_policy(broker, subscription_expiration_time_minutes=2)
        connection = await broker.connect()
        await connection.subscribe(TOPIC, "left", consumer_id=1)
        await connection.subscribe(TOPIC, "kept", consumer_id=2)
        clock.seconds += 10 * MINUTE
        check = broker.service.subscription_expiry.check
        await check()
        topic = broker.topic(TOPIC)
        assert topic.subscriptions.keys() == {"left", "kept"}
        await connection.send(c.close_consumer(1, connection.rid()))
        await connection.expect(T.SUCCESS)
        clock.seconds += 2 * MINUTE
        await check()
        assert topic.subscriptions.keys() == {"left", "kept"}
        clock.seconds += 1
        await check()
        assert topic.subscriptions.keys() == {"kept"}
        assert topic.ledger.cursors.keys() == {"kept"}


async def test_without_a_policy_subscriptions_stay():
    clock = Moved()
    async with running(clock=clock) as broker:
        connection = await broker.connect()
        await connection.subscribe(TOPIC)
        await connection.send(c.close_consumer(1, connection.rid()))
        await connection.expect(T.SUCCESS)
        clock.seconds += 10**6
        await broker.service.subscription_expiry.check()
        assert broker.topic(TOPIC).subscriptions.keys() == {"s"}


async def test_a_time_to_live_that_changes_while_its_topic_is_looked_at_is_looked_at_at_once():
    class Topic:
        name = TopicName.parse(TOPIC)
        closing = ""
        looks = 0

        async def expire_messages(self):
            self.looks += 1
            if self.looks == 1:
                expiry.watch(self)
            return 10**15

    topic = Topic()
    expiry = MessageExpiry(DEFAULT_CONFIG, Moved())
    expiry.watch(topic)
    await expiry.check()
    assert topic.looks == 2
    await expiry.check()
    assert topic.looks == 2


YEAR_SECONDS = 365 * 24 * 3600
SMALL_LEDGERS = {
    "managedLedgerMaxEntriesPerLedger": 4,
    "managedLedgerMinLedgerRolloverTimeMinutes": 0,
}


async def test_messages_with_publish_times_a_year_ahead_expire_after_their_ledger_was_closed():
    clock = Moved()
    async with running(clock=clock, ttlDurationDefaultInSeconds=60, **SMALL_LEDGERS) as broker:
        connection = await broker.connect()
        await connection.subscribe(TOPIC)
        await connection.producer(TOPIC)
        ahead = [c.message(b"x", publish_time=clock.wall_ms() + YEAR_SECONDS * 1000)] * 4
        for number, message in enumerate(ahead):
            await connection.send(c.send(1, number, message))
            await connection.expect(T.SEND_RECEIPT)
        await publish(connection, clock, 2, start=4)
        expiry = broker.service.services.message_expiry
        await expiry.check()
        subscription = broker.topic(TOPIC).subscriptions["s"]
        assert subscription.backlog_entries == 6
        clock.seconds += 61
        await expiry.check()
        assert subscription.backlog_entries == 0


@pytest.mark.parametrize("metadata", [{}, {"vela.broadcast": "true"}])
async def test_an_administrator_expires_what_was_stored_before_whatever_its_producer_says(metadata):
    clock = Moved()
    async with running(clock=clock, **SMALL_LEDGERS) as broker:
        connection = await broker.connect()
        await connection.subscribe(TOPIC, metadata=metadata)
        await connection.producer(TOPIC)
        for number in range(6):
            message = c.message(b"x", publish_time=clock.wall_ms() + YEAR_SECONDS * 1000)
            await connection.send(c.send(1, number, message))
            await connection.expect(T.SEND_RECEIPT)
        subscription = broker.topic(TOPIC).subscriptions["s"]
        assert await subscription.expire(clock.wall_ms() - 60_000) == 0
        clock.seconds += 61
        assert await subscription.expire(clock.wall_ms() - 60_000) == 4
        assert subscription.backlog_entries == 2
