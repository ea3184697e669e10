"""A topic or a subscription that closes while others still refer to it."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from itertools import islice

import pytest
import trio
from structlog.testing import capture_logs

from broker.ground.slices import STEPS_PER_SLICE
from broker.http.topics.internal_json import internal_stats
from broker.http.topics.topic_json import TopicStats
from broker.net.tests.harness import T, running
from broker.topics.service import CLOSINGS_PER_ROUND, BrokerService
from broker.topics.subscription.consumer import Consumer
from broker.topics.subscription.request import SubscriptionRequest
from broker.topics.subscription.sub_types import EXCLUSIVE, FAILOVER, KEY_SHARED, SHARED
from broker.topics.subscription.tests.fakes import FakeSession
from metadata.store import MetadataUnavailable
from protocol.errors import ServiceNotReady
from protocol.topic_name import TopicName

NAME = TopicName.parse("persistent://public/default/t")
MANY = 130
"""More than one step of the statistics of any kind of subscription."""
BROADCAST = {"vela.broadcast": "true"}
KINDS = [
    pytest.param(EXCLUSIVE, 1, {}, id="exclusive"),
    pytest.param(FAILOVER, MANY, {}, id="failover"),
    pytest.param(SHARED, MANY, {}, id="shared"),
    pytest.param(KEY_SHARED, MANY, {}, id="key-shared"),
    pytest.param(SHARED, MANY, BROADCAST, id="broadcast"),
]


async def crowded(broker, sub_type=SHARED, count=1, properties=None):
    """A topic with a subscription that has some consumers."""
    topic = await broker.service.get_or_load_topic(NAME, create=True)
    request = SubscriptionRequest(name="s", properties=properties or {})
    subscription = await topic.open_subscription(request)
    for at in range(count):
        consumer = Consumer(at, f"c{at}", FakeSession(), sub_type)
        subscription.attach_consumer(consumer, request).flow(10)
    return topic, subscription


@pytest.mark.parametrize(("sub_type", "count", "properties"), KINDS)
async def test_statistics_that_are_being_sent_survive_the_close_of_their_topic(
    sub_type, count, properties
):
    async with running() as broker:
        for steps in (0, 1, 2, 40, MANY, 2 * MANY):
            topic, _ = await crowded(broker, sub_type, count, properties)
            answers = [TopicStats(topic, "b").pieces(), internal_stats(topic, {})]
            begun = ["".join(islice(answer, steps)) for answer in answers]
            await broker.service.unload_topic(NAME)
            for text, answer in zip(begun, answers, strict=True):
                json.loads(text + "".join(answer))


@pytest.mark.parametrize(("sub_type", "count", "properties"), KINDS)
async def test_a_subscription_may_be_closed_twice(sub_type, count, properties):
    """By its topic, and because its last reader leaves meanwhile."""
    async with running() as broker:
        _, subscription = await crowded(broker, sub_type, count, properties)
        await subscription.close()
        await subscription.close()


class LateToClose:
    """A subscription that closes when it may."""

    def __init__(self, subscription):
        self._subscription = subscription
        self.begun = trio.Event()
        self.may_close = trio.Event()

    def __getattr__(self, name):
        return getattr(self._subscription, name)

    async def close(self):
        self.begun.set()
        await self.may_close.wait()
        await self._subscription.close()


async def test_no_one_is_told_that_a_subscription_is_gone_which_its_closed_topic_still_has():
    """The cursor was closed with the topic, and comes back with it."""
    async with running() as broker:
        topic, subscription = await crowded(broker)
        late = topic.subscriptions["s"] = LateToClose(subscription)
        deletion = topic.delete_subscription("s", force=True)
        await late.begun.wait()
        await broker.service.unload_topic(NAME)
        late.may_close.set()
        with pytest.raises(ServiceNotReady, match="look it up again"):
            await deletion
        topic, _ = await crowded(broker)
        assert await topic.delete_subscription("s", force=True) is None
        await broker.service.unload_topic(NAME)
        topic = await broker.service.get_or_load_topic(NAME, create=True)
        assert not topic.subscriptions


async def of_a_bundle(service):
    await service.close_topics(lambda _name: True, "it is being unloaded")


@pytest.mark.parametrize("close", [of_a_bundle, BrokerService.close])
async def test_a_round_begins_to_close_a_few_of_many_topics(close):
    """3,000 topics of a bundle that was unloaded held the event loop up for 0.2 s."""
    async with running() as broker:
        for number in range(MANY):
            name = TopicName.parse(f"{NAME.full}-{number}")
            await broker.service.get_or_load_topic(name, create=True)
        async with watched(lambda: broker.service.operations.keys) as most:
            await close(broker.service)
        assert not broker.service.topics
    assert 0 < most[0] <= 2 * CLOSINGS_PER_ROUND, "the order of tasks in a round is random"


@asynccontextmanager
async def watched(things):
    """Gives the most things that were new in one round of the event loop, in a list."""
    most = [0]

    async def watch():
        before = set(things())
        while True:
            await trio.lowlevel.checkpoint()
            now = set(things())
            most[0] = max(most[0], len(now - before))
            before = now

    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch)
        await trio.lowlevel.checkpoint()
        yield most
        nursery.cancel_scope.cancel()


async def with_subscriptions(broker, count):
    """A topic with so many, each with a consumer."""
    topic = await broker.service.get_or_load_topic(NAME, create=True)
    for number in range(count):
        request = SubscriptionRequest(name=f"s{number}", properties={})
        subscription = await topic.open_subscription(request)
        consumer = Consumer(number, f"c{number}", FakeSession(), SHARED)
        subscription.attach_consumer(consumer, request)
    return topic


async def test_a_round_closes_a_few_of_many_subscriptions_of_a_topic():
    """4,000 of them held the event loop up for 0.1 s."""
    async with running() as broker:
        topic = await with_subscriptions(broker, 4 * STEPS_PER_SLICE)
        subscriptions = list(topic.subscriptions.values())

        def without_consumers():
            return [each.name for each in subscriptions if not each.consumers]

        async with watched(without_consumers) as most:
            await broker.service.unload_topic(NAME)
        assert len(without_consumers()) == 4 * STEPS_PER_SLICE
        assert 0 < most[0] <= 2 * STEPS_PER_SLICE


async def test_a_round_opens_a_few_of_many_subscriptions_of_a_topic():
    """4,000 of them held the event loop up for 0.2 s."""
    async with running() as broker:
        topic = await with_subscriptions(broker, 4 * STEPS_PER_SLICE)

        def opened():
            return map(id, list(topic.subscriptions.values()))

        before = list(topic.subscriptions.values())
        async with watched(opened) as most:
            await topic.recover()
        assert not set(map(id, before)) & set(opened())
        assert 0 < most[0] <= 2 * STEPS_PER_SLICE


async def test_a_round_begins_to_restore_a_few_of_many_cursors():
    async with running() as broker:
        await with_subscriptions(broker, 4 * STEPS_PER_SLICE)
        await broker.service.unload_topic(NAME)

        def tasks():
            return range(trio.lowlevel.current_statistics().tasks_living)

        async with watched(tasks) as most:
            await broker.service.get_or_load_topic(NAME, create=False)
        assert 0 < most[0] <= 2 * STEPS_PER_SLICE


async def refused(*_arguments, **_options):
    raise MetadataUnavailable("the metadata store cannot be written")


@pytest.mark.parametrize("properties", [{}, BROADCAST], ids=["shared", "broadcast"])
async def test_metadata_that_cannot_be_written_do_not_end_the_broker_when_a_topic_closes(
    monkeypatch, properties
):
    """The ledger of a broadcast's positions could not be closed, and that ended the broker."""
    async with running(brokerDeduplicationEnabled=True) as broker:
        topic, _ = await crowded(broker, properties=properties)
        connection = await broker.connect()
        await connection.producer(NAME.full)
        await connection.publish(0)
        await connection.expect(T.SEND_RECEIPT)
        await topic.subscriptions["s"].seek((-1, -1))  # stores the positions
        with monkeypatch.context() as patch, capture_logs() as logs:
            patch.setattr(broker.store, "put", refused)
            await broker.service.close()
        assert not [line for line in logs if "exc_info" in line]
        assert not broker.factory.ledgers
        assert (await broker.connect()) is not None
