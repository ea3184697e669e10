"""What one turn of the event loop does when hundreds of clients come and go together: counted."""

from __future__ import annotations

import socket
from contextlib import ExitStack, contextmanager

import trio

from broker.net.listener import ACCEPTED_PER_TURN
from broker.net.tests.harness import running
from broker.net.tests.test_tls import authority, connected, rules
from protocol import client as c
from runtime.readers import ENDED_PER_TURN
from runtime.testing.conditions import eventually
from security.tls import TlsPort

__all__ = ["authority", "rules"]
CLIENTS = 200
TLS_CLIENTS = 60


class Turns(trio.abc.Instrument):
    """How far a number rises and falls in a turn, at most."""

    def __init__(self, number):
        self._number = number
        self._last = number()
        self.rises = 0
        self.falls = 0

    def before_io_wait(self, timeout):
        now = self._number()
        self.rises = max(self.rises, now - self._last)
        self.falls = max(self.falls, self._last - now)
        self._last = now


@contextmanager
def watched(number):
    turns = Turns(number)
    trio.lowlevel.add_instrument(turns)
    try:
        yield turns
    finally:
        trio.lowlevel.remove_instrument(turns)


def connecting(stack, port):
    client = stack.enter_context(socket.socket())
    client.setblocking(False)
    client.connect_ex(("127.0.0.1", port))
    return client


async def test_clients_that_come_and_go_together_do_so_a_few_per_turn():
    async with running() as broker:
        sessions = broker.service.connections.open
        with ExitStack() as stack, watched(lambda: len(sessions)) as turns:
            clients = [connecting(stack, broker.listener.port) for _ in range(CLIENTS)]
            await eventually(lambda: len(sessions) == CLIENTS)
            for client in clients:
                client.send(c.connect())
            await eventually(lambda: all(session.connected for session in sessions))
            for client in clients:
                client.close()
            await eventually(lambda: not sessions)
        assert 0 < turns.rises <= ACCEPTED_PER_TURN
        assert 0 < turns.falls <= 2 * ENDED_PER_TURN


async def test_few_handshakes_are_finished_in_a_turn(rules, authority):
    port = TlsPort(rules)
    async with running(tls=port) as broker:
        sessions = broker.service.connections.open
        with watched(lambda: port.handshakes.finished_total) as turns:
            async with trio.open_nursery() as nursery:
                for _ in range(TLS_CLIENTS):
                    nursery.start_soon(connected, broker, authority)
            await eventually(lambda: port.handshakes.finished_total == TLS_CLIENTS)
        assert 0 < turns.rises <= ENDED_PER_TURN
        assert len(sessions) == TLS_CLIENTS
