"""Output of a connection: order, bounds, batching, partial sends."""

from __future__ import annotations

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from broker.ground.turn import Turns
from broker.limits.connection_limits import NetLimits
from broker.limits.output_budget import OutputBudget
from broker.net.outbox import (
    BUFFERS_PER_CALL_MAX,
    SEND_BYTES_MAX,
    YIELDING_SEND_BYTES_MAX,
    Outbox,
)
from runtime.clock import SystemClock
from runtime.rounds import heavy_rounds
from runtime.testing.conditions import SECONDS_MAX


class FakeTransport:
    """Takes as many bytes per call as the test says; nothing when it says 0."""

    def __init__(self, takes=()):
        self.peer = "test:1"
        self.takes = list(takes)
        self.taken = bytearray()
        self.calls = []
        self.blocked = trio.Event()
        self.closed = False
        self.calls_back = False
        self.when_writable = []

    def send_nowait(self, buffers):
        if self.closed:
            raise trio.BrokenResourceError("closed")
        data = b"".join(buffers)
        self.calls.append(len(buffers))
        count = min(self.takes.pop(0), len(data)) if self.takes else len(data)
        self.taken += data[:count]
        return count

    async def send(self, buffers):
        while True:
            await trio.lowlevel.checkpoint()
            count = self.send_nowait(buffers)
            if count:
                return count

    def send_strip_nowait(self, strip, bytes_max):
        return self.send_nowait(strip.buffers(bytes_max))

    async def send_strip(self, strip, bytes_max):
        return await self.send(strip.buffers(bytes_max))

    def call_when_writable(self, call, *, is_full):
        self.when_writable.append((call, is_full))
        return self.calls_back

    def close(self):
        self.closed = True


def budget_of(limits=None):
    return OutputBudget(limits or NetLimits(), SystemClock())


def outbox_of(transport, limits=None, on_writable=lambda: None):
    turns = Turns()
    return turns, Outbox(transport, turns, budget_of(limits), on_writable)


def test_one_call_carries_everything_of_a_turn():
    transport = FakeTransport()
    turns, outbox = outbox_of(transport)
    turns.begin_turn()
    for number in range(50):
        outbox.append(b"%03d" % number)
    assert not transport.calls
    turns.end_turn()
    assert transport.calls == [1]  # small buffers are joined
    assert transport.taken == b"".join(b"%03d" % number for number in range(50))


def test_large_buffers_are_not_joined():
    transport = FakeTransport()
    turns, outbox = outbox_of(transport)
    turns.begin_turn()
    for _ in range(4):
        outbox.append(b"head", bytes(100_000))
    turns.end_turn()
    assert transport.calls == [8]


@pytest.mark.parametrize("sizes", [[5_000_000], [100_000] * 50, [1] * 1023 + [3_000_000]])
async def test_a_step_sends_a_slice_however_much_waits(sizes):
    class Slices(FakeTransport):
        sizes = []

        def send_nowait(self, buffers):
            self.sizes.append(sum(map(len, buffers)))
            return super().send_nowait(buffers)

    transport = Slices()
    transport.sizes = []
    turns = Turns()
    async with trio.open_nursery() as nursery:
        outbox = Outbox(
            transport,
            turns,
            budget_of(),
            lambda: None,
            lambda: nursery.start_soon(outbox.run),
        )
        turns.begin_turn()
        sent = b"".join(bytes([number % 251]) * size for number, size in enumerate(sizes))
        view = memoryview(sent)
        position = 0
        for size in sizes:
            outbox.append(view[position : position + size])
            position += size
        turns.end_turn()
        assert len(transport.taken) <= SEND_BYTES_MAX
        with trio.fail_after(SECONDS_MAX):
            await outbox.wait_drained()
        nursery.cancel_scope.cancel()
    assert bytes(transport.taken) == sent
    assert max(transport.sizes) <= SEND_BYTES_MAX


async def test_while_messages_are_published_the_writer_sends_short_slices():
    class Stalled(FakeTransport):
        sizes = ()

        async def send(self, buffers):
            self.sizes = [*self.sizes, sum(map(len, buffers))]
            return await super().send(buffers)

    transport = Stalled(takes=[0])
    turns = Turns()
    async with trio.open_nursery() as nursery:
        outbox = Outbox(
            transport,
            turns,
            budget_of(),
            lambda: None,
            lambda: nursery.start_soon(outbox.run),
        )
        outbox.append(bytes(4 * YIELDING_SEND_BYTES_MAX))
        heavy_rounds().published()
        turns.flush()
        with trio.fail_after(SECONDS_MAX):
            await outbox.wait_drained()
        nursery.cancel_scope.cancel()
    assert transport.sizes == [YIELDING_SEND_BYTES_MAX] * 4


def test_no_call_has_more_buffers_than_the_kernel_takes():
    transport = FakeTransport()
    turns, outbox = outbox_of(transport, NetLimits(output_hard_limit_bytes=1 << 30))
    turns.begin_turn()
    outbox.append_many([bytes(1024)] * 3000, 3_072_000)
    turns.end_turn()
    assert max(transport.calls) == BUFFERS_PER_CALL_MAX


async def test_what_does_not_fit_follows_in_order():
    transport = FakeTransport(takes=[10, 0, 3, 1, 5])
    turns, outbox = outbox_of(transport)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(outbox.run)
        expected = bytearray()
        for number in range(20):
            data = bytes([number]) * (number + 1)
            expected += data
            outbox.append(data)
            turns.flush()
        await outbox.wait_drained()
        assert transport.taken == expected
        assert outbox.pending_bytes == 0
        nursery.cancel_scope.cancel()


def test_a_writer_is_started_once_and_only_when_the_kernel_does_not_take_everything():
    transport = FakeTransport(takes=[10, 2, 0])
    started = []
    turns = Turns()
    outbox = Outbox(
        transport,
        turns,
        budget_of(),
        lambda: None,
        lambda: started.append(outbox.pending_bytes),
    )
    outbox.append(b"0123456789")
    turns.flush()
    assert started == []
    for _ in range(2):
        outbox.append(b"0123456789")
        turns.flush()
    assert started == [8]


async def test_a_transport_that_calls_when_there_is_room_needs_no_writer():
    transport = FakeTransport(takes=[4, 3, 0, 5])
    transport.calls_back = True
    turns = Turns()
    started = []
    outbox = Outbox(transport, turns, budget_of(), lambda: None, lambda: started.append(1))
    outbox.append(b"0123456789")
    turns.flush()
    for left in (3, 3):
        (call, is_full) = transport.when_writable.pop()
        assert is_full
        outbox.append(b"x" * (3 - left))  # while it waits, nobody else sends
        turns.flush()
        call()
        assert (outbox.pending_bytes, outbox.held_bytes) == (left, left)
    transport.when_writable.pop()[0]()
    assert (outbox.pending_bytes, outbox.held_bytes) == (0, 0)
    assert transport.when_writable == []
    outbox.append(b"ab")
    turns.flush()
    assert transport.taken == b"0123456789ab"
    assert started == []


async def test_a_socket_with_room_left_is_sent_to_in_slices():
    """Nothing reports room on it, because it was never full."""
    transport = FakeTransport()
    transport.calls_back = True
    turns, outbox = outbox_of(transport)
    outbox.append(bytes(SEND_BYTES_MAX + 2 * YIELDING_SEND_BYTES_MAX))
    turns.flush()
    heavy_rounds().published()
    for left in (1, 0):
        (call, is_full) = transport.when_writable.pop()
        assert not is_full
        call()
        assert outbox.pending_bytes == left * YIELDING_SEND_BYTES_MAX
    assert transport.when_writable == []


async def test_a_socket_that_cannot_be_sent_to_ends_its_connection_alone():
    class Broken(FakeTransport):
        failure = None

        def send_nowait(self, buffers):
            if self.failure is not None:
                raise self.failure
            return super().send_nowait(buffers)

    for failure in (trio.BrokenResourceError("reset"), ValueError("no such thing")):
        transport = Broken(takes=[1])
        transport.calls_back = True
        turns, outbox = outbox_of(transport)
        outbox.append(b"0123456789")
        turns.flush()
        transport.failure = failure
        with capture_logs() as logs:
            transport.when_writable.pop()[0]()
        assert transport.closed
        assert str(failure) in outbox.failed
        assert [line["log_level"] for line in logs] == ["error"] * isinstance(failure, ValueError)


async def test_turns_task_serves_output_put_outside_a_turn():
    transport = FakeTransport()
    turns, outbox = outbox_of(transport)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(turns.run)
        await trio.testing.wait_all_tasks_blocked()
        outbox.append(b"one")
        outbox.append(b"two")
        await trio.testing.wait_all_tasks_blocked()
        assert transport.taken == b"onetwo"
        assert len(transport.calls) == 1
        nursery.cancel_scope.cancel()


async def test_high_water_stops_and_low_water_resumes():
    limits = NetLimits(output_high_water_bytes=100, output_low_water_bytes=20)
    resumed = []
    transport = FakeTransport(takes=[0, 50, 40])
    turns, outbox = outbox_of(transport, limits, lambda: resumed.append(outbox.pending_bytes))
    turns.begin_turn()
    outbox.append(bytes(101))
    assert not outbox.writable
    turns.end_turn()
    assert not outbox.writable
    async with trio.open_nursery() as nursery:
        nursery.start_soon(outbox.run)
        await outbox.wait_drained()
        nursery.cancel_scope.cancel()
    assert outbox.writable
    assert resumed == [11]


async def test_a_peer_that_never_reads_is_cut_off_at_the_hard_bound():
    limits = NetLimits(output_high_water_bytes=100, output_hard_limit_bytes=1000)
    transport = FakeTransport(takes=[0] * 1000)
    turns, outbox = outbox_of(transport, limits)
    for _ in range(11):
        outbox.append(bytes(100))
        turns.flush()
    assert transport.closed
    assert "does not read" in outbox.failed
    assert outbox.pending_bytes == 0
    outbox.append(b"more")  # dropped silently: the session is ending
    assert outbox.pending_bytes == 0


def test_an_outbox_that_fails_in_an_unforeseen_way_ends_alone():
    class Broken(FakeTransport):
        def send_nowait(self, buffers):
            raise ValueError("no such thing")

    turns = Turns()
    transports = [FakeTransport(), Broken(), FakeTransport()]
    outboxes = [Outbox(each, turns, budget_of(), lambda: None) for each in transports]
    turns.begin_turn()
    for outbox in outboxes:
        outbox.append(b"receipt")
    with capture_logs() as logs:
        turns.end_turn()
    assert [bytes(each.taken) for each in transports] == [b"receipt", b"", b"receipt"]
    assert transports[1].closed
    assert "ValueError: no such thing" in outboxes[1].failed
    assert [(line["log_level"], line["peer"]) for line in logs] == [("error", "test:1")]


def test_output_leaves_although_the_end_of_a_turn_fails():
    def fail():
        raise ValueError("the bookie failed")

    transport = FakeTransport()
    turns, outbox = outbox_of(transport)
    turns.kick_storage = fail
    turns.begin_turn()
    outbox.append(b"receipt")
    with pytest.raises(ValueError, match="the bookie failed"):
        turns.end_turn()
    assert transport.taken == b"receipt"


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 3000), max_size=60),
    takes=st.lists(st.integers(1, 4000), max_size=60),
)
def test_any_partial_sends_keep_every_byte_in_order(sizes, takes):
    async def scenario():
        transport = FakeTransport(takes)
        turns, outbox = outbox_of(transport)
        expected = bytearray()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(outbox.run)
            for index, size in enumerate(sizes):
                data = bytes([index]) * size
                expected += data
                outbox.append(data)
                if index % 3 == 0:
                    turns.flush()
            await outbox.wait_drained()
            nursery.cancel_scope.cancel()
        assert transport.taken == expected
        assert outbox.sent_bytes_total == len(expected)

    trio.run(scenario)
