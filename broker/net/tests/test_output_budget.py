"""What all connections together keep for peers that do not take it."""

from __future__ import annotations

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import memory_stream_pair

from broker.ground.turn import Turns
from broker.limits.connection_limits import NetLimits
from broker.limits.output_budget import HIGH_WATER_BYTES_MIN, OutputBudget
from broker.net.outbox import Outbox
from broker.net.tests.harness import Connection, T, running
from broker.net.tests.test_outbox import FakeTransport
from protocol import client as c
from runtime.clock import SystemClock
from runtime.testing.conditions import SECONDS_MAX

MB = 1024 * 1024


class Peer:
    """A connection whose peer takes nothing until it is told to."""

    def __init__(self, budget):
        self.transport = FakeTransport(takes=[0] * 100_000)
        self.turns = Turns()
        self.resumed = 0
        self.outbox = Outbox(self.transport, self.turns, budget, self._resume)

    def _resume(self):
        self.resumed += 1

    def is_sent(self, size_bytes):
        self.outbox.append(bytes(size_bytes))
        self.turns.flush()

    def is_dispatched_to(self, step_bytes, total_bytes):
        """As a dispatcher does: while it is writable."""
        while self.outbox.writable and not self.outbox.failed and total_bytes > 0:
            self.is_sent(step_bytes)
            total_bytes -= step_bytes

    async def takes_all(self):
        self.transport.takes.clear()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.outbox.run)
            await self.outbox.wait_drained()
            nursery.cancel_scope.cancel()


def budget_of(**limits):
    return OutputBudget(NetLimits(**limits), SystemClock())


def test_few_peers_that_take_nothing_are_sent_as_much_as_one():
    budget = budget_of()
    for _ in range(20):
        peer = Peer(budget)
        peer.is_dispatched_to(256 * 1024, 100 * MB)
        assert peer.outbox.pending_bytes >= 4 * MB


def test_a_thousand_peers_that_take_nothing_hold_no_more_than_all_may():
    budget = budget_of(outputs_bytes_max=32 * MB)
    peers = [Peer(budget) for _ in range(1000)]
    for peer in peers:
        peer.is_dispatched_to(10_000, 5 * MB)
    assert sum(peer.outbox.pending_bytes for peer in peers) == budget.held_bytes
    assert budget.held_bytes <= 32 * MB
    assert any(not peer.outbox.failed for peer in peers)


def test_dispatch_stops_at_half_and_closes_nobody():
    budget = budget_of(outputs_bytes_max=256 * MB)
    peers = [Peer(budget) for _ in range(500)]
    for peer in peers:
        peer.is_dispatched_to(10_000, 5 * MB)
    assert not any(peer.outbox.failed for peer in peers)
    assert budget.held_bytes <= 128 * MB + 500 * (HIGH_WATER_BYTES_MIN + 10_000)


def test_answers_beyond_the_bound_close_those_that_hold_most():
    budget = budget_of(outputs_bytes_max=8 * MB)
    small = Peer(budget)
    small.is_sent(1000)
    large = [Peer(budget) for _ in range(10)]
    for peer in large:
        peer.is_sent(MB)
    assert any("all connections" in peer.outbox.failed for peer in large)
    assert not small.outbox.failed
    assert budget.held_bytes <= 8 * MB


async def test_beside_peers_that_take_nothing_another_one_is_served():
    budget = budget_of(outputs_bytes_max=16 * MB)
    for _ in range(200):
        Peer(budget).is_dispatched_to(10_000, 5 * MB)
    peer = Peer(budget)
    sent = 0
    for _ in range(20):
        peer.is_dispatched_to(10_000, MB)
        sent += peer.outbox.pending_bytes
        assert sent
        await peer.takes_all()
        assert peer.outbox.writable
        peer.transport.takes = [0] * 1000
    assert sent == len(peer.transport.taken)
    assert peer.resumed


async def test_the_bound_of_one_connection_grows_again_with_what_others_take_or_leave():
    budget = budget_of(outputs_bytes_max=16 * MB)
    peers = [Peer(budget) for _ in range(100)]
    for peer in peers:
        peer.is_dispatched_to(10_000, 5 * MB)
    assert budget.high_water_bytes < MB
    for peer in peers[:50]:
        peer.outbox.fail("the peer has left")
    for peer in peers[50:]:
        await peer.takes_all()
    assert budget.held_bytes == 0
    assert budget.high_water_bytes == MB


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 300_000)), max_size=60))
def test_the_budget_knows_what_waits(steps):
    budget = budget_of(outputs_bytes_max=4 * MB)
    peers = [Peer(budget) for _ in range(5)]
    for index, size_bytes in steps:
        peer = peers[index]
        if size_bytes % 7 == 0:
            peer.outbox.fail("the peer has left")
            peers[index] = Peer(budget)
        elif size_bytes % 5 == 0:
            peer.transport.takes = [size_bytes, *peer.transport.takes]
            peer.is_sent(size_bytes)
        else:
            peer.is_sent(size_bytes)
        assert budget.held_bytes == sum(each.outbox.pending_bytes for each in peers)
        assert budget.held_bytes <= 4 * MB


class Hoarder:
    """Another connection, for which much waits."""

    held_bytes = 0
    held_since = moved_at = 0.0
    reading_paused = False


@pytest.mark.parametrize("ends_first", [False, True])
async def test_a_connection_that_is_not_read_while_outputs_are_short_is_read_again(ends_first):
    count = 8000
    async with running(limits={"outputs_bytes_max": 64 * MB}) as broker:
        ours, theirs = memory_stream_pair()
        taken = trio.Event()
        deliver = theirs.send_stream.send_all_hook

        async def wait():
            await taken.wait()
            await deliver()

        theirs.send_stream.send_all_hook = wait
        broker.nursery.start_soon(broker.listener.serve_stream, theirs, "memory:1")
        outputs, hoarder = broker.service.connections.outputs, Hoarder()
        outputs.holds(hoarder, 40 * MB)
        await ours.send_all(c.connect())
        for first in range(0, count, 100):
            await ours.send_all(b"".join(c.lookup("t" * 40, first + n) for n in range(100)))
        await until(lambda: any(each.reading_paused for each in broker.service.connections.open))
        session = next(iter(broker.service.connections.open))
        assert session.outbox.pending_bytes < 300_000
        if ends_first:
            outputs.holds(hoarder, 0)
        taken.set()
        connection = Connection(ours)
        await connection.expect(T.CONNECTED)
        answers = {(await connection.expect(T.LOOKUP_RESPONSE)).request_id for _ in range(count)}
        assert answers == set(range(count))
        await ours.aclose()


async def until(condition):
    with trio.fail_after(SECONDS_MAX):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await trio.sleep(0.001)
