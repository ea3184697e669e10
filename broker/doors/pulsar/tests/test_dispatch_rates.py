"""Rates of dispatch of subscriptions, topics and the broker, and rates of subscribing."""

from __future__ import annotations

from functools import partial

import pytest

from broker.doors.pulsar.tests.test_publish_rates import set_namespace
from broker.net.tests.clocks import TrioClock
from broker.net.tests.harness import T, running
from broker.topics.broadcast.tests.peer import BROADCAST
from protocol import client as c
from protocol import pulsar_api_pb2 as pb
from protocol.topic_name import TopicName

SUB = pb.CommandSubscribe


def limited(**settings):
    """A broker whose entries stay in memory, since storage does not follow the clock of a test."""
    return running(
        clock=TrioClock(), managedLedgerCacheEvictionTimeThresholdMillis=3_600_000, **settings
    )


def rate(messages=0, size_bytes=0, period=1):
    return {
        "dispatchThrottlingRateInMsg": messages,
        "dispatchThrottlingRateInByte": size_bytes,
        "relativeToPublishRate": False,
        "ratePeriodInSecond": period,
    }


def by_cluster(value):
    return {"standalone": value}


class Reading:
    """A consumer with permits for everything. It counts what has come to it."""

    def __init__(self, broker, topic, sub_type=SUB.Shared, name="s", consumer_id=1):
        self.broker = broker
        self.topic = topic
        self.name = name
        self.consumer_id = consumer_id
        self.sub_type = sub_type

    async def start(self, **fields):
        self.connection = await self.broker.in_memory()
        await self.connection.handshake()
        await self.connection.subscribe(
            self.topic,
            self.name,
            consumer_id=self.consumer_id,
            permits=100_000,
            subType=self.sub_type,
            **fields,
        )
        return self

    @property
    def subscription(self):
        return self.broker.topic(self.topic).subscriptions[self.name]

    @property
    def sent(self):
        return self.subscription.delivered()[0]

    @property
    def why(self):
        return self.subscription.why_not_dispatching()


async def publish(broker, topic, count, batch=0, first=0):
    connection = await broker.in_memory()
    await connection.handshake()
    await connection.producer(topic)
    for number in range(first, first + count):
        fields = {"num_messages_in_batch": batch} if batch else {}
        payload = c.message(b"x" * max(6 * batch, 10), sequence_id=number, **fields)
        await connection.send(c.send(1, number, payload, num_messages=batch or 1))
    for _ in range(count):
        await connection.expect(T.SEND_RECEIPT)


async def set_topic(broker, topic, field, value):
    await broker.service.namespaces.set_topic_policy(TopicName.parse(topic), field, value)


@pytest.mark.parametrize("sub_type", [SUB.Exclusive, SUB.Failover, SUB.Shared, SUB.Key_Shared])
async def test_a_subscription_of_any_type_gets_its_rate(mock_clock, sub_type):
    async with limited() as broker:
        await set_namespace(broker, subscriptionDispatchRate=by_cluster(rate(10)))
        reading = await Reading(broker, "t", sub_type).start()
        other = await Reading(broker, "t", sub_type, name="other").start()
        await publish(broker, "t", 45)
        await broker.settled()
        assert (reading.sent, other.sent) == (10, 10)
        assert reading.why == "the dispatch rate of the subscription is used up"
        await broker.let_pass(mock_clock, 1)
        assert 19 <= reading.sent <= 20
        await broker.let_pass(mock_clock, 3)
        assert (reading.sent, other.sent) == (45, 45)
        numbers = [
            message.metadata.sequence_id for message in (await received(reading.connection, 45))
        ]
        assert numbers == list(range(45))
        shown = reading.subscription.statistics().as_json()
        assert shown["dispatchThrottledMsgEventsBySubscriptionLimit"] > 3
        assert shown["dispatchThrottledMsgEventsByTopicLimit"] == 0


async def received(connection, count):
    found = []
    while len(found) < count:
        command, payload = await connection.next()
        if command.type == T.MESSAGE:
            found += c.received_messages(command, payload)
    return found


async def test_the_subscriptions_of_a_topic_share_its_rate(mock_clock):
    async with limited(dispatchThrottlingRatePerTopicInMsg=10) as broker:
        readings = [await Reading(broker, "t", name=name).start() for name in "abc"]
        free = await Reading(broker, "other").start()
        await publish(broker, "t", 30)
        await publish(broker, "other", 10)
        await broker.settled()
        assert (sum(each.sent for each in readings), free.sent) == (10, 10)
        await broker.let_pass(mock_clock, 4)
        assert sum(each.sent for each in readings) == pytest.approx(50, abs=1)
        assert min(each.sent for each in readings) > 10
        await broker.let_pass(mock_clock, 5)
        assert [each.sent for each in readings] == [30, 30, 30]


async def test_the_topics_of_a_broker_share_its_rate(mock_clock):
    async with limited(dispatchThrottlingRateInMsg=10) as broker:
        readings = [await Reading(broker, name).start() for name in "ab"]
        for name in "ab":
            await publish(broker, name, 20)
        await broker.settled()
        assert sum(each.sent for each in readings) == 10
        await broker.let_pass(mock_clock, 2)
        assert sum(each.sent for each in readings) == pytest.approx(30, abs=1)
        assert min(each.sent for each in readings) >= 10


async def test_a_rate_in_bytes_and_a_longer_period(mock_clock):
    async with limited() as broker:
        reading = await Reading(broker, "t", SUB.Exclusive).start()
        await publish(broker, "t", 1)
        size = reading.subscription.delivered()[1]
        await set_topic(broker, "t", "topicDispatchRate", by_cluster(rate(0, 10 * size, period=5)))
        await publish(broker, "t", 30, first=1)
        await broker.settled()
        assert 10 <= reading.sent <= 12
        await broker.let_pass(mock_clock, 5)
        assert 19 <= reading.sent <= 23
        shown = reading.subscription.statistics().as_json()
        assert shown["dispatchThrottledBytesEventsByTopicLimit"] > 0


async def test_batches_count_as_their_messages_unless_configured(mock_clock):
    for counts_entries, after_first, after_second in ((False, 10, 20), (True, 50, 50)):
        async with limited(dispatchThrottlingOnBatchMessageEnabled=counts_entries) as broker:
            await set_namespace(broker, topicDispatchRate=by_cluster(rate(10)))
            reading = await Reading(broker, "t").start()
            await publish(broker, "t", 10, batch=5)
            await broker.settled()
            assert after_first <= reading.sent <= after_first + 45
            await broker.let_pass(mock_clock, 4.9)
            assert reading.sent >= after_second
            await broker.let_pass(mock_clock, 3)
            assert reading.sent == 50


async def test_the_nearest_level_decides_and_a_change_holds_at_once(mock_clock):
    async with limited(dispatchThrottlingRatePerSubscriptionInMsg=1) as broker:
        reading = await Reading(broker, "t").start()
        other = await Reading(broker, "t", name="other").start()
        await publish(broker, "t", 1_000)
        await broker.settled()
        assert reading.sent == 1
        await set_namespace(broker, subscriptionDispatchRate=by_cluster(rate(5)))
        await broker.settled()
        assert reading.sent == 6
        await set_topic(broker, "t", "subscriptionDispatchRate", by_cluster(rate(20)))
        await broker.settled()
        assert reading.sent == 26
        own = {"s": {"dispatchRate": rate(50)}}
        await set_topic(broker, "t", "subscriptionPolicies", own)
        await broker.settled()
        assert (reading.sent, other.sent) == (76, 26)
        # A rate that limits nothing says nothing, except the subscription's own.
        await set_topic(broker, "t", "subscriptionDispatchRate", by_cluster(rate(0)))
        await broker.settled()
        assert (reading.sent, other.sent) == (76, 31)
        await set_topic(broker, "t", "subscriptionPolicies", {"s": {"dispatchRate": rate(0)}})
        await broker.settled()
        assert (reading.sent, reading.why) == (1_000, "")
        assert other.sent == 31
        await set_namespace(broker, subscriptionDispatchRate=by_cluster(rate(0, 10**9)))
        await broker.settled()
        assert other.sent == 1_000


async def test_without_rates_a_step_asks_for_none(mock_clock):
    async with limited() as broker:
        reading = await Reading(broker, "t").start()
        subscription = reading.subscription
        assert subscription.gate.limits == ()
        assert subscription.pump._step == subscription._step
        await set_topic(broker, "t", "topicDispatchRate", by_cluster(rate(5)))
        assert subscription.pump._step == subscription._step_within_rates
        await set_topic(broker, "t", "topicDispatchRate", None)
        assert subscription.pump._step == subscription._step


async def test_each_copy_of_a_broadcast_counts(mock_clock):
    async with limited() as broker:
        await set_namespace(broker, topicDispatchRate=by_cluster(rate(100)))

        async def start(number):
            reading = Reading(broker, "t", name="all", consumer_id=number)
            return await reading.start(consumer_name=f"c{number}", metadata=BROADCAST)

        # A consumer is answered when its position is stored.
        readings = [await broker.passing(mock_clock, partial(start, n)) for n in range(1, 9)]
        await publish(broker, "t", 50)
        await broker.settled()
        assert readings[0].sent == 100
        assert readings[0].why == "the dispatch rate of the topic is used up"
        await broker.let_pass(mock_clock, 1)
        assert readings[0].sent == pytest.approx(200, abs=10)
        await broker.let_pass(mock_clock, 2.5)
        assert readings[0].sent == 400
        for each in readings:
            assert len(await received(each.connection, 50)) == 50
        await publish(broker, "t", 50, first=50)
        await broker.settled()
        assert readings[0].sent < 600
        await set_namespace(broker, topicDispatchRate={})
        await broker.settled()
        assert readings[0].sent == 800


async def test_a_topic_that_stores_nothing_is_not_limited(mock_clock):
    async with limited(
        dispatchThrottlingRatePerTopicInMsg=1,
        subscribeThrottlingRatePerConsumer=1,
    ) as broker:
        topic = "non-persistent://public/default/t"
        reading = await Reading(broker, topic).start()
        await publish(broker, topic, 20)
        await broker.settled()
        assert reading.sent == 20


async def test_those_without_a_backlog_may_be_free(mock_clock):
    async with limited(
        dispatchThrottlingRatePerTopicInMsg=10,
        dispatchThrottlingOnNonBacklogConsumerEnabled=False,
        managedLedgerCursorBackloggedThreshold=30,
    ) as broker:
        reading = await Reading(broker, "t").start()
        await publish(broker, "t", 29)
        await broker.settled()
        assert reading.sent == 29
        await publish(broker, "t", 20, first=29)
        await broker.settled()
        assert reading.sent == 39
        await reading.subscription.clear_backlog()
        await publish(broker, "t", 20, first=49)
        await broker.settled()
        assert reading.sent == 59


async def test_a_consumer_that_comes_back_too_often_is_refused(mock_clock):
    async with limited(
        subscribeThrottlingRatePerConsumer=2,
        subscribeRatePeriodPerConsumerInSecond=10,
    ) as broker:
        connection = await broker.in_memory()
        await connection.handshake()

        async def subscribe(name="a"):
            await connection.send(
                c.subscribe("t", "s", 1, connection.rid(), consumer_name=name, subType=SUB.Shared)
            )
            answer = await connection.expect(T.SUCCESS, T.ERROR)
            if hasattr(answer, "error"):
                return answer.error, answer.message
            await connection.send(c.close_consumer(1, connection.rid()))
            await connection.expect(T.SUCCESS)
            return None

        refused = (
            pb.ServerError.NotAllowedError,
            "Subscribe limited by subscribe rate limit per consumer.",
        )
        assert [await subscribe() for _ in range(3)] == [None, None, refused]
        assert await subscribe("b") is None
        mock_clock.jump(5)
        assert [await subscribe() for _ in range(2)] == [None, refused]
        await set_topic(
            broker,
            "t",
            "clusterSubscribeRate",
            by_cluster({"subscribeThrottlingRatePerConsumer": 100, "ratePeriodInSecond": 1}),
        )
        assert [await subscribe() for _ in range(20)] == [None] * 20


async def test_a_subscription_that_waits_for_its_rate_can_go(mock_clock):
    async with limited(dispatchThrottlingRatePerTopicInMsg=1) as broker:
        readings = [await Reading(broker, "t", name=name).start() for name in "ab"]
        await publish(broker, "t", 30)
        await broker.settled()
        assert sum(each.sent for each in readings) == 1
        await broker.topic("t").delete_subscription("a", force=True)
        await broker.let_pass(mock_clock, 5)
        sent = readings[1].sent
        assert 4 <= sent <= 6
        await broker.service.unload_topic(TopicName.parse("t"))
        kinds = [(await readings[1].connection.next())[0].type for _ in range(sent + 1)]
        assert kinds == [T.MESSAGE] * sent + [T.CLOSE_CONSUMER]
