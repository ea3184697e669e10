"""Senders are called when their sockets take bytes again, in the turns of the readers."""

from __future__ import annotations

import socket
from contextlib import asynccontextmanager, nullcontext
from functools import partial

import pytest
import trio
import trio.testing

from runtime import transport, writers
from runtime.readers import Readers
from runtime.testing.conditions import SECONDS_MAX, eventually
from runtime.testing.taken_wait import wait_of_loop_is_taken
from runtime.transport import SocketTransport, Taken
from runtime.writers import Writers

PIECE = bytes(1 << 20)


class Connection:
    """A transport whose socket is full, and the other side, which has read nothing."""

    def __init__(self, readers):
        ours, self.peer = socket.socketpair()
        self.transport = SocketTransport(ours, "peer", readers)
        self.calls = 0
        self.got = []
        self.fill()

    def fill(self):
        while self.transport.send_nowait([PIECE]):
            pass

    def called(self):
        self.calls += 1

    def wait(self, *, is_full=True):
        assert self.transport.call_when_writable(self.called, is_full=is_full)

    def make_room(self):
        self.peer.setblocking(False)
        try:
            while self.peer.recv(1 << 20):
                pass
        except BlockingIOError:
            pass

    def take(self, data):
        self.got.append(data)
        return Taken.WHOLE if data else Taken.STOP


@pytest.fixture(autouse=True, params=["in the wait", "in turns"])
async def way(request):
    """Both ways in which readers are called."""
    async with wait_of_loop_is_taken() if request.param == "in turns" else nullcontext():
        yield


@asynccontextmanager
async def connected(count=1):
    readers = Readers()
    made = [Connection(readers) for _ in range(count)]
    with trio.fail_after(SECONDS_MAX):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(readers.run)
            await trio.testing.wait_all_tasks_blocked()
            yield (*made, nursery)
            nursery.cancel_scope.cancel()
    for each in made:
        each.transport.close()
        each.peer.close()


async def settled():
    """Whatever had to be called has been called."""
    for _ in range(10):
        await trio.lowlevel.checkpoint()
    await trio.testing.wait_all_tasks_blocked(0.01)


async def test_a_sender_is_called_once_when_its_socket_has_room():
    async with connected() as (connection, _):
        connection.wait()
        await settled()
        assert connection.calls == 0
        connection.make_room()
        await eventually(lambda: connection.calls)
        connection.fill()
        connection.make_room()
        await settled()
        assert connection.calls == 1  # nobody has asked again
        connection.fill()
        connection.wait()
        await settled()
        assert connection.calls == 1
        connection.make_room()
        await eventually(lambda: connection.calls == 2)


async def test_a_sender_whose_socket_had_room_is_called_in_a_later_turn():
    async with connected() as (connection, _):
        connection.make_room()
        connection.wait(is_full=False)
        assert connection.calls == 0
        await eventually(lambda: connection.calls == 1)


async def test_room_and_input_of_one_connection_are_both_found():
    async with connected() as (connection, nursery):
        connection.wait()
        nursery.start_soon(connection.transport.receive_into, connection.take)
        await settled()
        connection.peer.sendall(b"one")
        await eventually(lambda: connection.got == [b"one"])
        assert connection.calls == 0
        connection.make_room()
        await eventually(lambda: connection.calls == 1)
        connection.fill()
        connection.wait()
        connection.peer.sendall(b"two")
        connection.make_room()
        await eventually(lambda: connection.calls == 2)
        await eventually(lambda: connection.got == [b"one", b"two"])


async def test_room_is_found_while_the_input_is_in_no_hurry(monkeypatch):
    monkeypatch.setattr(transport, "PATIENCE_SECONDS", 0.2)
    async with connected() as (connection, nursery):

        def take(data):
            connection.got.append(data)
            return Taken.UNHURRIED if data else Taken.STOP

        nursery.start_soon(connection.transport.receive_into, take)
        connection.peer.sendall(b"one")
        await eventually(lambda: connection.got == [b"one"])
        connection.wait()
        connection.peer.sendall(b"two")
        connection.make_room()
        await eventually(lambda: connection.calls == 1)
        await eventually(lambda: connection.got == [b"one", b"two"])


async def test_a_connection_that_is_not_read_is_still_written_to():
    async with connected() as (connection, nursery):

        def take_one(data):
            connection.got.append(data)
            return Taken.STOP

        nursery.start_soon(connection.transport.receive_into, take_one)
        await settled()
        connection.wait()
        connection.peer.sendall(b"one")
        await eventually(lambda: connection.got == [b"one"])
        connection.peer.sendall(b"two")
        connection.make_room()
        await eventually(lambda: connection.calls == 1)
        await settled()
        assert connection.got == [b"one"]
        await connection.transport.receive_into(take_one)
        assert connection.got == [b"one", b"two"]


async def test_a_peer_that_is_gone_is_noticed_by_the_sender():
    async with connected() as (connection, _):
        connection.wait()
        await settled()
        connection.peer.close()
        await eventually(lambda: connection.calls == 1)
        with pytest.raises(trio.BrokenResourceError):
            connection.transport.send_nowait([PIECE])


async def test_nobody_is_called_after_the_connection_was_closed():
    async with connected(2) as (full, free, _):
        full.wait()
        free.make_room()
        free.wait(is_full=False)
        for each in (full, free):
            each.transport.close()
            with pytest.raises(trio.BrokenResourceError):
                each.wait()
        full.make_room()
        await settled()
        assert (full.calls, free.calls) == (0, 0)


async def test_a_turn_begins_no_call_when_its_time_is_over(monkeypatch):
    due, order = Writers(), []
    times = iter((10.0, 10.0002, 10.0006, 11.0))
    monkeypatch.setattr(writers, "monotonic", times.__next__)
    for number in range(4):
        due.add(number, partial(order.append, number), is_full=False)
    next(times)
    assert due.call_ready(10.0) == 10.0006
    assert (order, len(due)) == ([0, 1], 2)
    due.remove(2)
    assert due.call_ready(10.9) == 11.0
    assert (order, len(due)) == ([0, 1, 3], 0)
