"""A topic or a subscription that closes while others still refer to it."""

from __future__ import annotations

import json
from itertools import islice

import pytest
import trio
from structlog.testing import capture_logs

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
    most = 0

    async def watch(service):
        nonlocal most
        before = set()
        while True:
            closing = set(service.operations.keys)
            most = max(most, len(closing - before))
            before = closing
            await trio.lowlevel.checkpoint()

    async with running() as broker, trio.open_nursery() as nursery:
        for number in range(MANY):
            name = TopicName.parse(f"{NAME.full}-{number}")
            await broker.service.get_or_load_topic(name, create=True)
        nursery.start_soon(watch, broker.service)
        await close(broker.service)
        nursery.cancel_scope.cancel()
        assert not broker.service.topics
    assert 0 < most <= 2 * CLOSINGS_PER_ROUND, "the order of tasks in a round is random"


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
