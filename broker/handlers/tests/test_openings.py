"""Whoever subscribes while the subscription is being opened is answered, once, whatever happens."""

from __future__ import annotations

import pytest
import trio

from broker.handlers.openings import CALLS_PER_TURN, Openings
from broker.net.tests.harness import T, eventually, running
from protocol import client as c
from protocol import pulsar_api_pb2 as pb

COUNT = 300


async def test_those_who_wait_go_on_in_their_order_and_in_turns():
    openings = Openings()
    key = ("topic", "s")
    called, others = [], []
    assert not openings.call_after(key, lambda: called.append(-1))
    async with trio.open_nursery() as nursery:
        with openings.leading(key, nursery):
            for number in range(3 * CALLS_PER_TURN):
                assert openings.call_after(key, lambda number=number: called.append(number))
        assert len(openings) == 0

        async def other():
            while len(called) < 3 * CALLS_PER_TURN:
                others.append(len(called))
                await trio.lowlevel.checkpoint()

        nursery.start_soon(other)
    assert called == list(range(3 * CALLS_PER_TURN))
    assert any(0 < count < 3 * CALLS_PER_TURN for count in others)


async def test_those_who_wait_go_on_also_if_it_could_not_be_opened():
    openings = Openings()
    called = []
    async with trio.open_nursery() as nursery:

        def fail():
            with openings.leading(("topic", "s"), nursery):
                openings.call_after(("topic", "s"), lambda: called.append(1))
                raise ValueError("no")

        with pytest.raises(ValueError, match="no"):
            fail()
    assert called == [1]


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
        assert len(broker.service.openings) == 0
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
        (session,) = broker.service.sessions
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
