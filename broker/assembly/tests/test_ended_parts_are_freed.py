"""Memory of topics, subscriptions and ledgers that have ended is free at once.

A full collection of Python's stops the loop for as long as it takes to walk every object, so it is
rare (`runtime.tuning`). Parts that refer to each other in a circle would be kept until then.
"""

from __future__ import annotations

import gc
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from broker.ground.config import DEFAULT_CONFIG
from broker.net.tests.harness import running
from broker.tenancy.schemas.checker import SchemaChecker
from broker.topics.topic.persistent import PersistentTopic
from protocol import pulsar_api_pb2 as pb
from protocol.errors import IncompatibleSchema
from protocol.topic_name import TopicName
from runtime.testing.conditions import eventually

if TYPE_CHECKING:
    from broker.tenancy.schemas.budget import Budget

TOPIC = "persistent://public/default/t"
BROADCAST = {"metadata": {"vela.broadcast": "true"}, "consumer_name": "one"}


@pytest.fixture
def without_collections():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def loaded_topic(broker, sub_type, fields):
    connection = await broker.connect()
    await connection.producer(TOPIC)
    await connection.subscribe(TOPIC, permits=10, sub_type=sub_type, **fields)
    for number in range(3):
        await connection.publish(number)
    topic = broker.topic(TOPIC)
    (subscription,) = topic.subscriptions.values()
    await eventually(lambda: subscription.delivered()[0] == 3)
    return connection, topic, subscription


KINDS = [
    pytest.param(pb.CommandSubscribe.Exclusive, {}, id="exclusive"),
    pytest.param(pb.CommandSubscribe.Failover, {}, id="failover"),
    pytest.param(pb.CommandSubscribe.Shared, {}, id="shared"),
    pytest.param(pb.CommandSubscribe.Key_Shared, {}, id="key-shared"),
    pytest.param(pb.CommandSubscribe.Exclusive, BROADCAST, id="broadcast"),
]


@pytest.mark.parametrize(("sub_type", "fields"), KINDS)
@pytest.mark.usefixtures("without_collections")
async def test_a_deleted_subscription_is_freed(sub_type, fields):
    async with running() as broker:
        connection, topic, subscription = await loaded_topic(broker, sub_type, fields)
        freed = weakref.ref(subscription)
        del subscription
        await topic.delete_subscription("s", force=True)
        del connection
        await eventually(lambda: freed() is None)


@pytest.mark.parametrize(("sub_type", "fields"), KINDS)
@pytest.mark.usefixtures("without_collections")
async def test_an_unloaded_topic_is_freed(sub_type, fields):
    async with running() as broker:
        connection, topic, subscription = await loaded_topic(broker, sub_type, fields)
        parts = [weakref.ref(each) for each in (topic.ledger, subscription)]
        del topic, subscription, connection
        await broker.service.unload_topic(TopicName.parse(TOPIC))
        await eventually(lambda: [each() for each in parts] == [None] * 2)
        # A compiled object cannot be referred to weakly.
        assert not any(type(each) is PersistentTopic for each in gc.get_objects())


@pytest.mark.usefixtures("without_collections")
async def test_a_deleted_topic_is_freed():
    async with running() as broker:
        connection = await broker.connect()
        await connection.producer(TOPIC)
        freed = weakref.ref(broker.topic(TOPIC).ledger)
        del connection
        await broker.service.delete_topic(TopicName.parse(TOPIC), force=True)
        await eventually(lambda: freed() is None)


@pytest.mark.usefixtures("without_collections")
async def test_a_refused_schema_is_freed():
    class Definition:
        """Stands for the types of a schema."""

    checker = SchemaChecker(DEFAULT_CONFIG)
    freed = []

    def check(_budget: Budget) -> None:
        definition = Definition()
        freed.append(weakref.ref(definition))
        raise IncompatibleSchema("no")

    with suppress(IncompatibleSchema):  # pytest.raises would keep the error
        await checker.run(check)
    await eventually(lambda: freed[0]() is None)
