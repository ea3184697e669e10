"""The client of a bookie against the real server, and against peers that misbehave."""

from __future__ import annotations

import time
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
import trio
import trio.testing

from bookie.adds import NoTurn
from bookie.api import FLAG_FENCING, LAST_ENTRY, BookieError, Status
from bookie.tests.conftest import KEY, RecordingSink, entry, wait_until, whole
from ledgers.remote.config import RemoteConfig
from ledgers.remote.network import SocketConnector
from ledgers.remote.remote_bookie import AddEncoder, RemoteBookie
from ledgers.tests.nodes import running_nodes
from protocol.bookkeeper import v2
from protocol.bookkeeper.digests import Digest, DigestType
from runtime.testing.conditions import SECONDS_MAX

CALM = RemoteConfig(
    channels=2,
    add_timeout_s=20,
    read_timeout_s=20,
    back_off_first_s=0.01,
    back_off_max_s=0.05,
)
"""Nothing is too late, however busy the machine is."""
AWAY = frozenset({Status.UNREACHABLE, Status.TIMED_OUT})


class CountedConnects:
    def __init__(self):
        self.sends = 0
        self.connects = 0
        self.tcp = SocketConnector()

    async def __call__(self, host, port):
        self.connects += 1
        return CountedConnection(self, await self.tcp(host, port))


class CountedConnection:
    def __init__(self, counted, connection):
        self._counted = counted
        self._connection = connection

    def __getattr__(self, name):
        return getattr(self._connection, name)

    def send_nowait(self, buffers):
        self._counted.sends += 1
        return self._connection.send_nowait(buffers)


class World:
    def __init__(self, bookie, failures, connects):
        self.bookie = bookie
        self.failures = failures
        self.connects = connects


@asynccontextmanager
async def remote(port, config=CALM):
    failures = []
    connects = CountedConnects()
    bookie = RemoteBookie(
        f"127.0.0.1:{port}",
        lambda: ("127.0.0.1", port),
        config,
        NoTurn(),
        AddEncoder(),
        failures.append,
        connects,
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(connects.tcp.run)
        await nursery.start(bookie.run)
        yield World(bookie, failures, connects)
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def remote_to_node(config=CALM):
    async with running_nodes(1) as (node,), remote(node.port, config) as world:
        yield node, world


@asynccontextmanager
async def peer(answer):
    """A server that calls `answer(stream)` for every connection."""
    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        await nursery.start(trio.serve_listeners, answer, listeners)
        yield listeners[0].socket.getsockname()[1]
        nursery.cancel_scope.cancel()


def add(bookie, ledger_id, first, count, sink, payload=b"hello", flags=0, key=KEY):
    bodies = [entry(ledger_id, entry_id, payload) for entry_id in range(first, first + count)]
    bookie.add_entries(ledger_id, first, bodies, key, flags, sink)


async def test_what_was_added_is_answered_in_runs_and_read_back():
    async with remote_to_node() as (_, world):
        sink = RecordingSink()
        add(world.bookie, 7, 0, 500, sink)
        world.bookie.add_entry(8, 0, entry(8, 0), KEY, 0, sink)
        assert world.bookie.bytes_in_flight > 500 * 40
        await sink.wait_for(501)
        assert set(sink.statuses()) == {0}
        assert [e for _, ledger_id, e in sink.replies if ledger_id == 7] == list(range(500))
        assert sink.ends < 20
        assert world.bookie.bytes_in_flight == 0
        assert await world.bookie.read_entry(7, 499) == whole(7, 499)
        assert await world.bookie.read_entry(7, LAST_ENTRY) == whole(7, 499)
        bodies = await world.bookie.read_batch(7, 10, 100, 1 << 20)
        assert bodies == [whole(7, entry_id) for entry_id in range(10, 110)]
        with pytest.raises(BookieError, match="NO_ENTRY"):
            await world.bookie.read_entry(7, 500)
        with pytest.raises(BookieError, match="NO_LEDGER"):
            await world.bookie.read_batch(9, 0, 1, 1000)


async def test_the_adds_of_a_turn_leave_with_one_send():
    async with remote_to_node() as (_, world):
        sink = RecordingSink()
        add(world.bookie, 2, 0, 1, sink)
        await sink.wait_for(1)
        world.connects.sends = 0
        for first in range(1, 50):
            add(world.bookie, 2, first, 1, sink)
            add(world.bookie, 5, first, 1, sink)
        await sink.wait_for(99)
        assert world.connects.sends == 1
        assert world.connects.connects == 1


async def test_a_run_for_several_bookies_is_encoded_once():
    encoder = AddEncoder()
    bodies = [entry(1, number) for number in range(3)]
    first = encoder.encode(bodies, KEY, 0)
    assert encoder.encode(list(bodies), KEY, 0)[0] is first[0]
    assert encoder.encode(bodies, KEY, 2)[0] is not first[0]
    assert b"".join(first[0]) == b"".join(
        v2.encode_add_request_head(len(whole(1, number)), KEY) + whole(1, number)
        for number in range(3)
    )


async def test_entries_of_every_size_arrive():
    async with remote_to_node() as (_, world):
        sink = RecordingSink()
        sizes = [0, 1, 5000, 200_000, 1, 900_000, 3]
        bodies = [entry(7, number, bytes(size)) for number, size in enumerate(sizes)]
        for entry_id, body in enumerate(bodies):
            await wait_until(lambda: world.bookie.bytes_in_flight < 500_000)
            world.bookie.add_entry(7, entry_id, body, KEY, 0, sink)
        await sink.wait_for(len(sizes))
        for entry_id, body in enumerate(bodies):
            assert await world.bookie.read_entry(7, entry_id) == b"".join(body)


async def test_a_fence_and_a_recovery_add():
    async with remote_to_node() as (_, world):
        sink = RecordingSink()
        add(world.bookie, 7, 0, 1, sink)
        await sink.wait_for(1)
        body = await world.bookie.read_entry(7, LAST_ENTRY, flags=FLAG_FENCING, master_key=KEY)
        assert body == whole(7, 0)
        await world.bookie.fence_ledger(8, KEY)
        add(world.bookie, 7, 1, 1, sink)
        add(world.bookie, 8, 0, 1, sink)
        add(world.bookie, 7, 1, 1, sink, flags=2)
        await sink.wait_for(4)
        assert sorted(sink.replies[1:]) == [(0, 7, 1), (104, 7, 1), (104, 8, 0)]
        with pytest.raises(BookieError, match="UNAUTHORIZED"):
            await world.bookie.fence_ledger(7, b"x" * 20)


async def test_a_lost_connection_fails_what_is_pending_and_comes_back():
    async with remote_to_node() as (node, world):
        sink = RecordingSink()
        add(world.bookie, 7, 0, 1, sink)
        await sink.wait_for(1)
        node.gate.pause()
        add(world.bookie, 7, 1, 10, sink)
        async with trio.open_nursery() as nursery:

            async def read():
                with pytest.raises(BookieError, match="UNREACHABLE"):
                    await world.bookie.read_entry(7, 0)

            nursery.start_soon(read)
            await trio.testing.wait_all_tasks_blocked(0.02)
            await node.disconnect()
            await sink.wait_for(11)
        assert sink.statuses()[1:] == [Status.UNREACHABLE] * 10
        assert 1 <= len(world.failures) <= 2
        assert world.bookie.bytes_in_flight == 0
        add(world.bookie, 7, 1, 1, sink)
        await sink.wait_for(12)
        assert sink.statuses()[11] == Status.UNREACHABLE
        node.gate.resume()
        await node.connect()
        await until_added(world.bookie, sink, 7, 1)
        assert await until_read(world.bookie, 7, 1) == whole(7, 1)


async def until_added(bookie, sink, ledger_id, entry_id):
    with trio.fail_after(SECONDS_MAX):
        while True:
            count = len(sink.replies)
            add(bookie, ledger_id, entry_id, 1, sink)
            await sink.wait_for(count + 1)
            if sink.replies[-1][0] == 0:
                return
            await trio.sleep(0.01)


async def until_read(bookie, ledger_id, entry_id):
    """The connection of reads comes back after its back-off."""
    with trio.fail_after(SECONDS_MAX):
        while True:
            try:
                return await bookie.read_entry(ledger_id, entry_id)
            except BookieError as error:
                if error.status not in AWAY:
                    raise
            await trio.sleep(0.01)


async def test_no_connection_at_all_is_told():
    async with peer(lambda stream: stream.aclose()) as port:
        pass
    async with remote(port) as world:
        sink = RecordingSink()
        add(world.bookie, 7, 0, 3, sink)
        await sink.wait_for(3)
        assert set(sink.statuses()) == {Status.UNREACHABLE}
        with pytest.raises(BookieError, match="UNREACHABLE"):
            await world.bookie.read_entry(7, 0)


async def test_an_add_without_an_answer_fails_and_its_late_answer_counts_for_nothing():
    async with remote_to_node(replace(CALM, add_timeout_s=0.4)) as (node, world):
        sink, other = RecordingSink(), RecordingSink()
        node.gate.answers_late = True
        add(world.bookie, 7, 0, 2, sink)
        await sink.wait_for(2)
        assert sink.statuses() == [Status.TIMED_OUT] * 2
        node.gate.add_status = lambda *_: Status.IO_ERROR
        node.gate.let_answers_go()
        with trio.fail_after(SECONDS_MAX):
            while not other.replies or other.replies[-1][0] in AWAY:
                count = len(other.replies)
                add(world.bookie, 7, 0, 1, other)
                await other.wait_for(count + 1)
                await trio.sleep(0.01)
        assert other.replies[-1] == (Status.IO_ERROR, 7, 0)


async def test_a_read_without_an_answer_does_not_disturb_adds():
    async with remote_to_node(replace(CALM, read_timeout_s=0.3)) as (node, world):
        sink = RecordingSink()
        add(world.bookie, 7, 0, 2, sink)
        await sink.wait_for(2)
        is_over = trio.Event()
        node.gate.bookie.read_nowait = lambda *_: None
        storage, node.gate.bookie.read_entry = node.gate.bookie.read_entry, None

        async def slow(ledger_id, entry_id, **more):
            if entry_id == 0:
                await is_over.wait()
            return await storage(ledger_id, entry_id, **more)

        node.gate.bookie.read_entry = slow
        async with trio.open_nursery() as nursery:

            async def go_on_adding():
                number = 2
                while not is_over.is_set():
                    add(world.bookie, 7, number, 1, sink)
                    number += 1
                    await sink.wait_for(number)
                    await trio.sleep(0.01)

            nursery.start_soon(go_on_adding)
            with pytest.raises(BookieError, match="TIMED_OUT"):
                await world.bookie.read_entry(7, 0)
            is_over.set()
        assert await until_read(world.bookie, 7, 1) == whole(7, 1)
        assert set(sink.statuses()) == {0}


async def test_an_explicit_lac_goes_over_a_connection_of_its_own():
    async with remote_to_node() as (node, world):
        sink = RecordingSink()
        add(world.bookie, 7, 0, 2, sink)
        await sink.wait_for(2)
        assert world.bookie.connections == 1
        for last in (0, 1):
            body = Digest(DigestType.CRC32C, b"").explicit_lac(7, last)
            with trio.fail_after(SECONDS_MAX):
                await world.bookie.write_explicit_lac(7, body, KEY)
            assert node.gate.bookie.explicit_lac(7) == body
        assert world.bookie.connections == 2
        with pytest.raises(BookieError, match="UNAUTHORIZED"):
            await world.bookie.write_explicit_lac(7, body, b"x" * 20)
        assert world.failures == []


async def test_a_pause_of_this_process_is_no_silence_of_the_bookie():
    """Answers came in time and waited in the kernel while nobody could take them."""
    rounds = 10

    def stop_this_process():
        time.sleep(0.3)

    async def answer(stream):
        while request := await stream.receive_some():
            if len(request) > len(v2.encode_read_request(7, 0)):
                await stream.send_all(v2.encode_add_response(0, 7, len(added.replies)))
            else:
                await stream.send_all(v2.encode_read_response_head(0, 7, 0, 4) + b"body")
            stop_this_process()

    config = replace(CALM, add_timeout_s=0.2, read_timeout_s=0.2)
    async with peer(answer) as port, remote(port, config) as world:
        added = RecordingSink()
        for number in range(rounds):
            add(world.bookie, 7, number, 1, added)
            await added.wait_for(number + 1)
            assert await world.bookie.read_entry(7, 0) == b"body"
        assert added.statuses() == [Status.OK] * rounds
        assert world.failures == []


async def test_bytes_in_flight_are_bounded():
    async with remote_to_node(replace(CALM, bytes_in_flight_max=100_000)) as (
        node,
        world,
    ):
        sink = RecordingSink()
        node.gate.answers_late = True
        for number in range(100):
            add(world.bookie, 7, number, 1, sink, bytes(10_000))
        await sink.wait_for(80)
        refused = [e for status, _, e in sink.replies if status == Status.TOO_MANY_REQUESTS]
        assert refused == list(range(10, 100))
        assert world.bookie.bytes_in_flight < 120_000
        await wait_until(lambda: sum(reply[3] for _, reply in node.gate.late) == 10)
        node.gate.let_answers_go()
        await sink.wait_for(100)
        assert world.bookie.bytes_in_flight == 0


@pytest.mark.parametrize(
    "answer",
    [
        b"\x7f\xff\xff\xff" + bytes(100),
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        v2.encode_add_response(0, 7, 99),
        v2.encode_add_response(0, 99, 0),
        v2.encode_read_response_head(0, 7, 99, 0),
        b"".join(v2.encode_batch_read_response(0, 7, 0, 99, [b"x"])),
        v2.encode_auth_response("x"),
    ],
)
async def test_a_hostile_answer_closes_the_connection(answer):
    closed = trio.Event()

    async def hostile(stream):
        await stream.receive_some()
        await stream.send_all(answer)
        assert await stream.receive_some() == b""
        closed.set()

    async with peer(hostile) as port, remote(port) as world:
        sink = RecordingSink()
        add(world.bookie, 7, 0, 2, sink)
        await sink.wait_for(2)
        assert set(sink.statuses()) == {Status.UNREACHABLE}
        with trio.fail_after(SECONDS_MAX):
            await closed.wait()


async def test_an_answer_to_more_adds_than_were_sent_leaves_none_without_an_outcome():
    async def hostile(stream):
        await stream.receive_some()
        await stream.send_all(b"".join(v2.encode_add_response(0, 7, each) for each in range(3)))
        assert await stream.receive_some() == b""

    async with peer(hostile) as port, remote(port) as world:
        sink = RecordingSink()
        add(world.bookie, 7, 0, 2, sink)
        assert await sink.wait_for(2) == [(Status.OK, 7, 0), (Status.OK, 7, 1)]
        await wait_until(lambda: "7:2, not sent" in "".join(world.failures))
        assert world.bookie.bytes_in_flight == 0


async def test_an_endless_answer_is_bounded():
    async def hostile(stream):
        await stream.receive_some()
        try:
            while True:
                await stream.send_all(b"\x00\x50\x00\x00" + bytes(1 << 20))
        except trio.BrokenResourceError:
            pass

    config = replace(CALM, frame_size_max=1 << 20)
    async with peer(hostile) as port, remote(port, config) as world:
        with pytest.raises(BookieError, match="allowed are 0 to 1048576"):
            await world.bookie.read_entry(7, 0)


async def test_closing_the_client_answers_everything():
    async with running_nodes(1) as (node,):
        sink = RecordingSink()
        node.gate.pause()
        async with remote(node.port) as world:
            add(world.bookie, 7, 0, 2, sink)
            await trio.testing.wait_all_tasks_blocked(0.02)
        assert sink.statuses() == [Status.UNREACHABLE] * 2
