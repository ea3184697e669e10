"""The loop that accepts connections, and what happens to those that are turned away."""

from __future__ import annotations

import os
import resource
import socket
from itertools import pairwise

import trio
from structlog.testing import capture_logs

from runtime.accepting import TurnedAway, accept_connections, stop_listening
from runtime.testing.conditions import eventually


def listening_socket():
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setblocking(False)
    return listening


async def test_accepting_goes_on_after_descriptors_have_run_out(nursery):
    accepted = []
    with listening_socket() as listening, socket.socket() as peer, capture_logs() as lines:
        peer.setblocking(False)
        peer.connect_ex(listening.getsockname())
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        lowest_free = os.dup(peer.fileno())
        os.close(lowest_free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
        try:
            nursery.start_soon(
                lambda: accept_connections(
                    listening, lambda *given: accepted.append(given), per_turn=8, protocol="test"
                )
            )
            await eventually(lambda: lines)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        await eventually(lambda: accepted)
        ((connection, host, port),) = accepted
        with connection:
            assert (host, port) == peer.getsockname()
        assert [each["protocol"] for each in lines] == ["test"]
        nursery.cancel_scope.cancel()


async def test_a_peer_that_has_gone_does_not_end_accepting():
    served = []

    def serve(connection, _host, _port):
        served.append(connection)
        if len(served) == 1:
            raise OSError("already gone")

    with listening_socket() as listening, socket.socket() as one, socket.socket() as other:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(
                lambda: accept_connections(listening, serve, per_turn=1, protocol="test")
            )
            for each in (one, other):
                await trio.to_thread.run_sync(each.connect, listening.getsockname())
            await eventually(lambda: len(served) == 2)
            stop_listening(listening)
        assert listening.fileno() == -1
        assert [each.fileno() == -1 for each in served] == [True, False]
        served[1].close()


async def test_so_many_are_turned_away_at_a_time_and_none_for_ever(autojump_clock):
    told = []
    away = TurnedAway(2)

    async def refuse(number):
        async def say():
            told.append(number)

        async def receive():
            await trio.sleep(0.6 * number)
            return b"still here"

        await away.tell(say, receive)

    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        for number in (1, 2, 3):
            nursery.start_soon(refuse, number)
    assert len(told) == 2
    assert trio.current_time() - began == 1.0
    await refuse(4)
    assert told[2:] == [4]


async def test_other_work_is_done_between_a_few_connections_that_come_together(nursery):
    accepted, seen = [], []
    clients = [socket.socket() for _ in range(50)]
    with listening_socket() as listening:
        try:
            for client in clients:
                client.setblocking(False)
                client.connect_ex(listening.getsockname())

            def serve(connection, _host, _port):
                accepted.append(connection)

            nursery.start_soon(
                lambda: accept_connections(listening, serve, per_turn=4, protocol="test")
            )
            while len(accepted) < len(clients):
                seen.append(len(accepted))
                await trio.lowlevel.checkpoint()
            seen.append(len(accepted))
            # Of two tasks either may be first in a turn.
            assert max(b - a for a, b in pairwise(seen)) <= 2 * 4
        finally:
            for each in (*clients, *accepted):
                each.close()
        nursery.cancel_scope.cancel()
