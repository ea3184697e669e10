"""Frames that come in part: what they may hold, and that nothing stays."""

from __future__ import annotations

import gc
import struct
from contextlib import contextmanager

import pytest
from structlog.testing import capture_logs

from broker.net.session import Session
from broker.net.tests.harness import T, running
from protocol import client as c
from runtime.testing.conditions import eventually

MB = 1024 * 1024


@contextmanager
def without_collector():
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def sessions_alive():
    return sum(type(each) is Session for each in gc.get_objects())


async def break_within_a_frame(broker):
    connection = await broker.connect()
    await connection.producer("t")
    await connection.subscribe("t", permits=10)
    frame = c.send(1, 0, c.message(bytes(MB)))
    await connection.send(frame[: MB // 2])
    await eventually(lambda: broker.service.connections.unfinished_frames.held_bytes >= MB // 2)
    await connection.stream.aclose()


async def violate_the_protocol(broker):
    connection = await broker.connect()
    await connection.producer("t")
    await connection.send(c.ping(), struct.pack(">II", 2**30, 10), bytes(1000))
    assert "limit" in await connection.closed()
    await connection.stream.aclose()


async def be_refused_by_a_handler(broker):
    connection = await broker.connect()
    await connection.subscribe("t")
    await connection.send(c.flow(1, 0), c.send(1, 0, c.message(bytes(MB)))[:1000])
    assert "must grant" in await connection.closed()
    await connection.stream.aclose()


async def leave_properly(broker):
    connection = await broker.connect()
    await connection.producer("t")
    await connection.publish(0)
    await connection.expect(T.SEND_RECEIPT)
    await connection.stream.aclose()


@pytest.mark.parametrize(
    "end",
    [break_within_a_frame, violate_the_protocol, be_refused_by_a_handler, leave_properly],
    ids=lambda end: end.__name__,
)
async def test_a_closed_connection_goes_without_the_garbage_collector(end):
    async with running() as broker:
        await end(broker)  # what is made once and kept, is made now
        await eventually(lambda: not broker.service.connections.open)
        with without_collector():
            before = sessions_alive()
            for _ in range(5):
                await end(broker)
                await eventually(lambda: not broker.service.connections.open)
            await eventually(lambda: sessions_alive() <= before)
        assert broker.service.connections.unfinished_frames.held_bytes == 0


async def test_all_unfinished_frames_together_are_bounded_and_a_neighbour_is_served():
    async with running(limits={"unfinished_frames_bytes_max": 4 * MB}) as broker:
        frames = broker.service.connections.unfinished_frames
        neighbour = await broker.connect()
        await neighbour.producer("neighbour")
        large = c.send(1, 0, c.message(bytes(3 * MB)))
        greedy = []
        with capture_logs() as logs:
            for number in range(6):
                connection = await broker.connect()
                await connection.producer("t", producer_name=f"greedy-{number}")
                await connection.send(large[: 2 * MB])
                await eventually(lambda: frames.held_bytes > 0)
                greedy.append(connection)
                # One that sends at its own pace gets through all the same.
                await neighbour.send(large)
                await neighbour.expect(T.SEND_RECEIPT)
                assert frames.held_bytes <= 4 * MB
            await eventually(lambda: len(broker.service.connections.open) <= 1 + 2)
        assert await greedy[0].next() is not None
        reasons = [line["reason"] for line in logs if line["event"] == "closing connection"]
        assert reasons
        assert all("maxUnfinishedFramesSizeInMB" in reason for reason in reasons)


async def test_before_connect_a_frame_is_small():
    async with running() as broker:
        connection = await broker.raw()
        await connection.send(struct.pack(">I", MB))
        assert "first frame" in await connection.closed()
        # Large ones may follow at once.
        other = await broker.raw()
        ping = c.ping()
        await other.send(c.connect(), ping)
        await other.expect(T.CONNECTED)
        await other.expect(T.PONG)
        await other.producer("t")
        await other.send(c.send(1, 0, c.message(bytes(MB))))
        await other.expect(T.SEND_RECEIPT)
