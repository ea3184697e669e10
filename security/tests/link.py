"""Both sides of a connection with TLS, in memory."""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress

import trio

from runtime.testing.conditions import SECONDS_MAX
from runtime.transport import Taken
from security.handshakes import Handshakes
from security.testing.memory import MemoryClient, MemoryTransport
from security.tls_transport import (
    TlsTransport,
)


class Link:
    """Both sides of one connection. The server receives until it is told to stop."""

    def __init__(self, contexts, takes=(), cuts=(), handshakes=None):
        self.below = MemoryTransport(takes)
        self.handshakes = handshakes or Handshakes()
        self.server = TlsTransport(self.below, contexts[0], self.handshakes)
        self.client = MemoryClient(contexts[1], self.below, cuts)
        self.got = []

    def take(self, data):
        self.got.append(data)
        return Taken.WHOLE if data else Taken.STOP

    async def serve(self):
        with suppress(trio.BrokenResourceError):
            await self.server.receive_into(self.take)

    @property
    def bytes(self):
        return b"".join(piece for piece in self.got if piece)


@asynccontextmanager
async def linked(contexts, **options):
    """After the handshake, with the server receiving."""
    link = Link(contexts, **options)
    with trio.fail_after(SECONDS_MAX):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(link.serve)
            await link.client.shake_hands()
            await until(lambda: link.handshakes.finished_total == 1)
            yield link
            nursery.cancel_scope.cancel()


async def until(condition):
    for _ in range(10_000):
        if condition():
            return
        await trio.lowlevel.checkpoint()
    raise AssertionError("it did not happen")
