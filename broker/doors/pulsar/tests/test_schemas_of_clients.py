"""Which consumers and producers may come with which schema, given what is there already."""

from __future__ import annotations

import pytest

from broker.net.tests.harness import T, running
from protocol import client as c
from protocol import pulsar_api_pb2 as pb
from protocol.topic_name import TopicName

E = pb.ServerError
DOMAINS = ("persistent", "non-persistent")
JSON = pb.Schema(
    name="",
    type=pb.Schema.Json,
    schema_data=b'{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}',
)
AUTO_CONSUME = pb.Schema(name="", type=pb.Schema.AutoConsume, schema_data=b"")
STRATEGY = "schema_compatibility_strategy"


def topic_in(domain):
    return f"{domain}://public/default/t"


async def registered(broker, topic):
    return await broker.service.schemas.newest(TopicName.parse(topic))


async def set_strategy(broker, strategy):
    await broker.service.namespaces.change_policies(
        "public/default", lambda policies: policies.with_fields(**{STRATEGY: strategy})
    )


async def refused(connection, frame):
    await connection.send(frame)
    return (await connection.error()).error


@pytest.mark.parametrize("domain", DOMAINS)
async def test_a_consumer_brings_its_schema_beside_consumers_that_take_any(domain):
    topic = topic_in(domain)
    async with running() as broker:
        connection = await broker.connect()
        await connection.subscribe(topic, "a", 1, schema=AUTO_CONSUME)
        await connection.subscribe(topic, "b", 2, schema=AUTO_CONSUME)
        await connection.subscribe(topic, "c", 3, schema=JSON)
        assert (await registered(broker, topic)).schema.type_name == "JSON"


@pytest.mark.parametrize("domain", DOMAINS)
async def test_a_consumer_without_a_schema_may_have_got_anything(domain):
    topic = topic_in(domain)
    async with running() as broker:
        connection = await broker.connect()
        await connection.subscribe(topic, "a", 1, schema=AUTO_CONSUME)
        await connection.subscribe(topic, "b", 2)
        frame = c.subscribe(topic, "c", 3, connection.rid(), schema=JSON)
        assert await refused(connection, frame) == E.IncompatibleSchema


@pytest.mark.parametrize("domain", DOMAINS)
async def test_a_consumer_with_a_schema_comes_to_data_without_one_if_all_is_compatible(domain):
    topic = topic_in(domain)
    async with running() as broker:
        connection = await broker.connect()
        await connection.producer(topic)
        await connection.publish(0)
        await connection.expect(T.SEND_RECEIPT)
        frame = c.subscribe(topic, "a", 1, connection.rid(), schema=JSON)
        assert await refused(connection, frame) == E.IncompatibleSchema
        await set_strategy(broker, "ALWAYS_COMPATIBLE")
        await connection.subscribe(topic, "a", 1, schema=JSON)
        assert await registered(broker, topic) is None


@pytest.mark.parametrize("domain", DOMAINS)
async def test_messages_without_a_schema_forbid_one_when_their_producer_has_left(domain):
    topic = topic_in(domain)
    async with running() as broker:
        connection = await broker.connect()
        await connection.subscribe(topic, "a", 1, schema=AUTO_CONSUME)  # the topic stays
        await connection.producer(topic)
        await connection.publish(0)
        await connection.expect(T.SEND_RECEIPT)
        await connection.send(c.close_producer(1, connection.rid()))
        await connection.expect(T.SUCCESS)
        frame = c.subscribe(topic, "b", 2, connection.rid(), schema=JSON)
        assert await refused(connection, frame) == E.IncompatibleSchema


@pytest.mark.parametrize("strategy", ["ALWAYS_COMPATIBLE", "FULL"])
async def test_no_producer_and_no_message_has_the_schema_of_consumers_that_take_any(strategy):
    topic = topic_in("persistent")
    async with running() as broker:
        connection = await broker.connect()
        await set_strategy(broker, strategy)
        frame = c.producer(topic, 1, connection.rid(), schema=AUTO_CONSUME)
        assert await refused(connection, frame) == E.IncompatibleSchema
        await connection.send(c.get_or_create_schema(topic, connection.rid(), AUTO_CONSUME))
        answer = await connection.expect(T.GET_OR_CREATE_SCHEMA_RESPONSE, T.ERROR)
        code = getattr(answer, "error_code", None) or answer.error
        assert code == E.IncompatibleSchema
        assert await registered(broker, topic) is None
