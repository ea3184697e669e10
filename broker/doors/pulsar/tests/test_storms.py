"""A client that subscribes while the subscription is being opened is answered exactly once."""

from __future__ import annotations

import trio

from broker.net.tests.harness import T, running
from protocol import client as c
from protocol import pulsar_api_pb2 as pb
from runtime.testing.conditions import eventually

COUNT = 300


def storm(connection, topic="t", **fields):
    """SUBSCRIBEs of consumers 1 to COUNT in one piece, and their request ids."""
    requests = [connection.rid() for _ in range(COUNT)]
    frames = [
        c.subscribe(topic, "s", number, request, pb.CommandSubscribe.Shared, **fields)
        for number, request in enumerate(requests, start=1)
    ]
    return requests, b"".join(frames)


async def answers(connection, kind, count=COUNT):
    return [(await connection.expect(kind)) for _ in range(count)]


async def test_all_are_attached_to_a_subscription_that_nobody_had_opened():
    async with running() as broker:
        connection = await broker.connect()
        requests, frames = storm(connection)
        await connection.send(frames)
        got = await answers(connection, T.SUCCESS)
        assert sorted(answer.request_id for answer in got) == requests
        assert len(broker.topic("t").subscriptions["s"].consumers) == COUNT
        await eventually(lambda: len(broker.service.operations) == 0)
        await connection.nothing_more()


async def test_all_are_refused_once_when_it_cannot_be_opened():
    async with running(allowAutoTopicCreation=False) as broker:
        connection = await broker.connect()
        requests, frames = storm(connection)
        await connection.send(frames)
        got = await answers(connection, T.ERROR)
        assert sorted(answer.request_id for answer in got) == requests
        assert {answer.error for answer in got} == {pb.ServerError.TopicNotFound}
        await connection.nothing_more()
        (session,) = broker.service.connections.open
        assert not session.consumers


async def test_who_closes_while_it_waits_is_not_attached():
    async with running() as broker:
        connection = await broker.connect()
        _, frames = storm(connection)
        closed = [connection.rid() for _ in range(COUNT // 2)]
        closes = [c.close_consumer(number, rid) for number, rid in enumerate(closed, start=1)]
        await connection.send(frames + b"".join(closes))
        got = await answers(connection, T.SUCCESS)
        assert {answer.request_id for answer in got} >= set(closed)
        assert len(broker.topic("t").subscriptions["s"].consumers) == COUNT - COUNT // 2
        await connection.nothing_more()


async def test_who_opens_it_may_go_and_the_others_are_attached():
    async with running() as broker:
        first, second = await broker.connect(), await broker.connect()
        await first.send(storm(first)[1])
        requests, frames = storm(second)
        await second.send(frames)
        await trio.aclose_forcefully(first.stream)
        got = await answers(second, T.SUCCESS)
        assert sorted(answer.request_id for answer in got) == requests
        await eventually(lambda: len(broker.topic("t").subscriptions["s"].consumers) == COUNT)


async def test_no_topic_is_loaded_for_requests_that_were_closed_while_they_waited():
    async with running() as broker:
        connection, gate = await broker.connect(), trio.Event()
        name = "persistent://public/default/t"
        broker.service.operations.begin(name, gate.wait)
        (session,) = broker.service.connections.open
        opened = [
            c.subscribe(name, "s", 1, connection.rid()),
            c.producer(name, 1, connection.rid()),
        ]
        closed = [c.close_consumer(1, connection.rid()), c.close_producer(1, connection.rid())]
        await connection.send(*opened, *closed)
        await answers(connection, T.SUCCESS, 2)
        gate.set()
        await eventually(lambda: len(broker.service.operations) == 0)
        assert name not in broker.service.topics
        assert not session.consumers
        assert not session.producers
        await connection.nothing_more()
