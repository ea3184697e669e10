"""Strips of frames in the output of a connection: partial sends, order, bounds, the end."""

from __future__ import annotations

import socket
from array import array
from contextlib import contextmanager

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.ground.turn import Turns
from broker.limits.connection_limits import NetLimits
from broker.net.outbox import SEND_BYTES_MAX, STRIP_REST_SHARE, Outbox
from broker.net.strip import FrameStrip
from broker.net.tests.test_outbox import FakeTransport, budget_of
from native.broadcast import message_frames, message_heads
from runtime.readers import Readers
from runtime.testing.conditions import SECONDS_MAX
from runtime.transport import SocketTransport

REST = b"\x12\x02\x08\x05"
IDS = array("Q", [1, 127, 128, 2**40] * 64)


def strip_of(frames, payload):
    """A strip and all of its bytes."""
    slots = array("i", range(frames))
    heads = message_heads(slots, IDS, REST, len(payload))
    whole = b"".join(message_frames(slots, IDS, REST, payload))
    return FrameStrip(heads, payload, frames), whole


def outbox_over(transport, nursery, limits=None):
    turns = Turns()
    outbox = Outbox(
        transport,
        turns,
        budget_of(limits),
        lambda: None,
        lambda: nursery.start_soon(outbox.run),
    )
    return turns, outbox


async def test_a_strip_stops_at_every_byte_and_goes_on():
    _, whole = strip_of(3, b"payload")
    for first in range(len(whole) + 1):
        transport = FakeTransport(takes=[first, 1, 2])
        async with trio.open_nursery() as nursery:
            turns, outbox = outbox_over(transport, nursery)
            outbox.append_strip(strip_of(3, b"payload")[0])
            assert outbox.pending_bytes == len(whole)
            turns.flush()
            assert outbox.pending_bytes == len(whole) - first
            await outbox.wait_drained()
            nursery.cancel_scope.cancel()
        assert transport.taken == whole
        assert outbox.sent_bytes_total == len(whole)


PIECES = st.lists(
    st.one_of(
        st.binary(max_size=40),
        st.tuples(st.integers(1, 9), st.binary(min_size=1, max_size=30)),
    ),
    max_size=20,
)


@settings(max_examples=100, deadline=None)
@given(pieces=PIECES, takes=st.lists(st.integers(0, 200), max_size=40))
def test_strips_and_other_frames_leave_in_the_order_in_which_they_were_put(pieces, takes):
    async def scenario():
        transport = FakeTransport(takes)
        expected = bytearray()
        async with trio.open_nursery() as nursery:
            turns, outbox = outbox_over(transport, nursery)
            for number, piece in enumerate(pieces):
                if type(piece) is bytes:
                    expected += piece
                    outbox.append(piece)
                else:
                    strip, whole = strip_of(*piece)
                    expected += whole
                    outbox.append_strip(strip)
                if number % 3 == 0:
                    turns.flush()
                if number % 5 == 0:
                    await trio.lowlevel.checkpoint()
                assert outbox.pending_bytes == len(expected) - len(transport.taken)
            with trio.fail_after(SECONDS_MAX):
                await outbox.wait_drained()
            nursery.cancel_scope.cancel()
        assert transport.taken == expected

    trio.run(scenario)


class SizedTransport(FakeTransport):
    """Takes everything, and knows the sizes."""

    def __init__(self):
        super().__init__()
        self.sizes = []

    def send_strip_nowait(self, strip, bytes_max):
        self.sizes.append(bytes_max)
        return super().send_strip_nowait(strip, bytes_max)


@pytest.mark.parametrize(("frames", "sends"), [(105, 1), (240, 3)])
async def test_a_strip_for_one_step_is_not_cut_and_a_longer_one_is(frames, sends):
    transport = SizedTransport()
    async with trio.open_nursery() as nursery:
        turns, outbox = outbox_over(transport, nursery)
        strip, whole = strip_of(frames, bytes(10_000))
        outbox.append_strip(strip)
        turns.flush()
        await outbox.wait_drained()
        nursery.cancel_scope.cancel()
    assert transport.taken == whole
    assert max(transport.sizes) <= SEND_BYTES_MAX + SEND_BYTES_MAX // STRIP_REST_SHARE
    assert len(transport.calls) == sends


async def test_a_peer_that_does_not_read_strips_is_cut_off_at_the_hard_bound():
    limits = NetLimits(output_high_water_bytes=100, output_hard_limit_bytes=1000)
    transport = FakeTransport(takes=[0] * 1000)
    async with trio.open_nursery() as nursery:
        turns, outbox = outbox_over(transport, nursery, limits)
        outbox.append_strip(strip_of(3, bytes(100))[0])
        assert not outbox.writable
        turns.flush()
        assert outbox.held_bytes == outbox.pending_bytes
        outbox.append_strip(strip_of(9, bytes(100))[0])
        assert transport.closed
        assert "does not read" in outbox.failed
        outbox.append_strip(strip_of(3, bytes(100))[0])  # dropped: the session is ending
        assert (outbox.pending_bytes, outbox.held_bytes) == (0, 0)
        nursery.cancel_scope.cancel()


class Connected:
    """A transport of a socket, and its other side."""

    def __init__(self):
        left, self.right = socket.socketpair()
        self.right.setblocking(False)
        self.readers = Readers()
        self.transport = SocketTransport(left, "test:1", self.readers)

    async def read(self, size):
        data = bytearray()
        while len(data) < size:
            await trio.lowlevel.wait_readable(self.right)
            data += self.right.recv(70_000)
        return data


@contextmanager
def connection():
    made = Connected()
    yield made
    made.transport.close()
    made.right.close()


async def test_a_socket_gets_strips_larger_than_its_buffer_between_other_frames():
    expected = bytearray()
    with connection() as connected:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(connected.readers.run)
            turns, outbox = outbox_over(connected.transport, nursery)
            for number in range(5):
                strip, whole = strip_of(105 + number, bytes([number]) * 10_000)
                outbox.append(b"before")
                outbox.append_strip(strip)
                outbox.append(b"after", bytes(3000))
                expected += b"before" + whole + b"after" + bytes(3000)
                turns.flush()
            assert outbox.pending_bytes
            with trio.fail_after(SECONDS_MAX):
                assert await connected.read(len(expected)) == expected
                await outbox.wait_drained()
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize("by_peer", [False, True])
async def test_a_connection_that_closes_drops_the_rest_of_a_strip(by_peer):
    with connection() as connected:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(connected.readers.run)
            turns, outbox = outbox_over(connected.transport, nursery)
            outbox.append_strip(strip_of(200, bytes(10_000))[0])
            turns.flush()
            assert outbox.pending_bytes
            await trio.testing.wait_all_tasks_blocked()
            if by_peer:
                connected.right.close()
            else:
                outbox.fail("the broker stops")
            with trio.fail_after(SECONDS_MAX):
                await outbox.wait_drained()
            assert outbox.failed
            assert outbox.pending_bytes == outbox.held_bytes == 0
            nursery.cancel_scope.cancel()
