"""Publish rates of topics and of the broker: messages wait, none is refused, none is lost."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from broker.net.tests.clocks import TrioClock
from broker.net.tests.harness import T, running
from protocol import client as c
from protocol.topic_name import TopicName

if TYPE_CHECKING:
    from trio.testing import MockClock


def rate(messages=-1, size_bytes=-1):
    return {
        "publishMaxMessageRate": {
            "standalone": {
                "publishThrottlingRateInMsg": messages,
                "publishThrottlingRateInByte": size_bytes,
            }
        }
    }


def frames(numbers, producer_id=1):
    return b"".join(
        c.send(producer_id, number, c.message(b"m%d" % number, sequence_id=number))
        for number in numbers
    )


async def open_connection(broker, *topics):
    connection = await broker.in_memory()
    await connection.handshake()
    for producer_id, topic in enumerate(topics, 1):
        await connection.producer(topic, producer_id)
    return connection


def taken(broker, topic):
    return broker.topic(topic).published.messages()


async def set_namespace(broker, **fields):
    await broker.service.namespaces.change_policies(
        "public/default", lambda policies: policies.with_fields(**fields)
    )


async def receipts(connection, count):
    return [(await connection.expect(T.SEND_RECEIPT)).sequence_id for _ in range(count)]


async def test_messages_over_the_rate_wait_and_all_are_stored_in_order(mock_clock: MockClock):
    async with running(clock=TrioClock(), maxPublishRatePerTopicInMessages=10) as broker:
        connection = await open_connection(broker, "t")
        await connection.send(frames(range(35)))
        await broker.settled()
        assert taken(broker, "t") == 10
        await broker.let_pass(mock_clock, 1)
        assert 19 <= taken(broker, "t") <= 20
        await broker.let_pass(mock_clock, 2)
        assert taken(broker, "t") == 35
        assert await receipts(connection, 35) == list(range(35))


async def test_other_producers_of_the_connection_wait_and_other_connections_do_not(
    mock_clock: MockClock,
):
    async with running(clock=TrioClock()) as broker:
        limited = await open_connection(broker, "slow", "free")
        free = await open_connection(broker, "free")
        name = TopicName.parse("slow")
        field = rate(messages=1)
        await broker.service.namespaces.set_topic_policy(
            name, "publishMaxMessageRate", field["publishMaxMessageRate"]
        )
        await limited.send(frames([0, 1]) + frames([0], producer_id=2) + c.ping())
        await free.send(frames(range(5)))
        await receipts(free, 5)
        await broker.settled()
        assert (taken(broker, "slow"), taken(broker, "free")) == (1, 5)
        await broker.let_pass(mock_clock, 1.1)
        assert (taken(broker, "slow"), taken(broker, "free")) == (2, 6)
        kinds = [(await limited.next())[0].type for _ in range(4)]
        assert sorted(kinds) == sorted([T.SEND_RECEIPT] * 3 + [T.PONG])


async def test_a_rate_in_bytes_of_the_namespace_holds_for_each_topic(mock_clock: MockClock):
    async with running(clock=TrioClock()) as broker:
        size = len(c.message(b"m0", sequence_id=0))
        await set_namespace(broker, **rate(size_bytes=3 * size))
        connections = [await open_connection(broker, name) for name in ("a", "b")]
        for each in connections:
            await each.send(frames(range(9)))
        await broker.settled()
        assert [taken(broker, name) for name in "ab"] == [3, 3]
        await broker.let_pass(mock_clock, 2.2)
        assert [taken(broker, name) for name in "ab"] == [9, 9]


async def test_the_rate_of_the_broker_is_shared_by_its_topics(mock_clock: MockClock):
    async with running(clock=TrioClock(), brokerPublisherThrottlingMaxMessageRate=10) as broker:
        connections = [await open_connection(broker, name) for name in ("a", "b")]
        for each in connections:
            await each.send(frames(range(10)))
        await broker.settled()
        assert taken(broker, "a") + taken(broker, "b") == 10
        await broker.let_pass(mock_clock, 1.1)
        assert taken(broker, "a") + taken(broker, "b") == 20


async def test_a_rate_that_is_raised_or_removed_holds_at_once(mock_clock: MockClock):
    async with running(clock=TrioClock(), maxPublishRatePerTopicInMessages=1) as broker:
        connection = await open_connection(broker, "t")
        await connection.send(frames(range(20)))
        await broker.settled()
        assert taken(broker, "t") == 1
        await set_namespace(broker, **rate(messages=5))
        await broker.settled()
        assert taken(broker, "t") == 6
        # Of a level that limits nothing the next one decides.
        await set_namespace(broker, **rate(messages=0, size_bytes=0))
        await broker.settled()
        assert taken(broker, "t") == 7
        await set_namespace(broker, **rate(messages=10**6))
        await broker.settled()
        assert taken(broker, "t") == 20
        [producer] = broker.topic("t").access.producers.values()
        assert broker.session_of(producer).limited_producers == 1


async def test_connections_count_their_limited_producers(mock_clock: MockClock):
    async with running(clock=TrioClock()) as broker:
        connection = await open_connection(broker, "a", "b", "a")
        session = broker.session_of(next(iter(broker.topic("a").access.producers.values())))
        assert session.limited_producers == 0
        await set_namespace(broker, **rate(messages=5))
        assert session.limited_producers == 3
        await connection.send(c.close_producer(1, connection.rid()))
        await connection.expect(T.SUCCESS)
        assert session.limited_producers == 2
        await set_namespace(broker, publishMaxMessageRate={})
        assert session.limited_producers == 0


async def test_an_unload_does_not_wait_for_a_rate(mock_clock: MockClock):
    async with running(clock=TrioClock(), maxPublishRatePerTopicInMessages=1) as broker:
        connection = await open_connection(broker, "t")
        await connection.send(frames(range(3)))
        await broker.settled()
        await broker.service.unload_topic(TopicName.parse("t"))
        await receipts(connection, 1)
        await connection.expect(T.CLOSE_PRODUCER)
        await connection.producer("t")  # its late messages are dropped, and it is read again
        await connection.send(frames([1]))
        await receipts(connection, 1)


async def test_a_client_that_is_held_for_long_is_kept(mock_clock: MockClock):
    async with running(clock=TrioClock(), maxPublishRatePerTopicInMessages=1) as broker:
        connection = await open_connection(broker, "t")
        connection.answers_pings = False
        batch = c.send(1, 0, c.message(b"x" * 1200, sequence_id=0, num_messages_in_batch=200))
        await connection.send(batch + frames([1]))
        await broker.settled()
        [producer] = broker.topic("t").access.producers.values()

        async def heard():
            return [(await connection.next(timeout=400))[0].type for _ in range(3)]

        kinds = await broker.passing(mock_clock, heard)
        assert sorted(kinds) == sorted([T.SEND_RECEIPT, T.PING, T.PING])
        assert await broker.passing(mock_clock, partial(producer.session.is_alive, 1.0))
        assert producer.open


async def test_a_long_run_that_waits_for_each_of_its_messages_is_stored_in_order(
    mock_clock: MockClock,
):
    async with running(clock=TrioClock(), maxPublishRatePerTopicInMessages=10) as broker:
        connection = await open_connection(broker, "t")
        await connection.send(frames(range(1500)))
        for _ in range(1500):
            await broker.let_pass(mock_clock, 0.1)
        assert taken(broker, "t") == 1500
        assert await receipts(connection, 1500) == list(range(1500))
