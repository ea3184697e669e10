"""Many who want the same subscription while it is being opened."""

from __future__ import annotations

import pytest
import trio

from broker.net.tests.harness import running
from broker.topics.subscription.consumer import Consumer
from broker.topics.subscription.request import SubscriptionRequest
from broker.topics.subscription.stock import STOCK
from broker.topics.subscription.sub_types import SHARED
from broker.topics.subscription.tests.fakes import FakeSession
from broker.topics.topic.errors import TopicBusy
from protocol.errors import PersistenceError
from protocol.topic_name import TopicName
from runtime.testing.conditions import SECONDS_MAX

TOPIC = "persistent://public/default/t"
WANTED = SubscriptionRequest(name="s", earliest=True)


async def load(broker):
    return await broker.service.get_or_load_topic(TopicName.parse(TOPIC), create=True)


class Turns:
    """Counts the turns of the event loop."""

    def __init__(self):
        self.count = 0

    async def run(self):
        while True:
            await trio.lowlevel.checkpoint()
            self.count += 1


async def test_those_who_came_first_do_not_wait_for_each_other():
    turns, at, opened = Turns(), [], set()

    async def want(topic):
        opened.add(await topic.open_subscription(WANTED))
        at.append(turns.count)

    async with running() as broker:
        topic = await load(broker)
        with trio.fail_after(SECONDS_MAX):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(turns.run)
                async with trio.open_nursery() as wanting:
                    for _ in range(500):
                        wanting.start_soon(want, topic)
                nursery.cancel_scope.cancel()

    assert len(opened) == 1
    assert len(at) == 500
    assert max(at) - min(at) <= 3


async def test_when_it_cannot_be_opened_everybody_hears_of_it_and_the_next_may_try(monkeypatch):
    failures = []

    async def failing(*_arguments):
        await trio.lowlevel.checkpoint()
        raise PersistenceError("no space")

    async def want(topic):
        with pytest.raises(PersistenceError) as failure:
            await topic.open_subscription(WANTED)
        failures.append(failure.value)

    async with running() as broker:
        topic = await load(broker)
        with monkeypatch.context() as patch, trio.fail_after(SECONDS_MAX):
            patch.setattr(STOCK.__class__, "open", failing)
            async with trio.open_nursery() as wanting:
                for _ in range(5):
                    wanting.start_soon(want, topic)
        assert (await topic.open_subscription(WANTED)).name == "s"

    assert len(failures) == 5


async def test_who_gives_up_while_it_is_opened_takes_nobody_along():
    async with running() as broker:
        topic = await load(broker)
        with trio.fail_after(SECONDS_MAX):
            async with trio.open_nursery() as nursery:
                with trio.CancelScope() as given_up:
                    given_up.cancel()
                    await topic.open_subscription(WANTED)
                opened = []

                async def want():
                    opened.append(await topic.open_subscription(WANTED))

                nursery.start_soon(want)
                nursery.start_soon(want)
    assert opened[0] is opened[1]


async def test_a_consumer_that_came_while_a_deletion_waited_keeps_its_subscription():
    async with running() as broker:
        topic = await load(broker)
        subscription = await topic.open_subscription(WANTED)
        consumer = Consumer(consumer_id=1, name="c", session=FakeSession(), sub_type=SHARED)
        earlier_ends = trio.Event()
        earlier = topic.operations.start("s", earlier_ends.wait)
        deletion = topic.delete_subscription("s")
        topic.attach_consumer(subscription, consumer, WANTED)
        earlier_ends.set()
        await earlier
        with pytest.raises(TopicBusy), trio.fail_after(SECONDS_MAX):
            await deletion
        assert topic.subscriptions["s"] is subscription
        await topic.delete_subscription("s", force=True)
        assert "s" not in topic.subscriptions
