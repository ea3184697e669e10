"""The door for connections with TLS.

Their handshakes are found by one task (`runtime.readers`), so that those of hundreds of clients
share the turns of the event loop with its other work. A handshake is part of the wait for the first
request: it has the same deadline, and a connection in it gives way to others as an idle one does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import trio

from runtime.readers import Readers
from runtime.transport import SocketTransport
from runtime.transport_stream import TransportStream
from web.connection import Link
from web.server import Door

if TYPE_CHECKING:
    import socket

    from security.tls import TlsPort
    from web.server import Arrived

RECEIVE_BYTES_MAX: Final = 32 * 1024
"""Bytes of records: each connection may hold this many that no budget counts."""


@final
class Https:
    """See the module docstring. To be made in the event loop."""

    def __init__(self, port: TlsPort) -> None:
        self._port = port
        self._readers = Readers()
        self.handshakes = port.handshakes

    async def run(self) -> None:
        """Until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._readers.run)
            nursery.start_soon(self._port.run)

    def door(self, listening: socket.socket) -> Door:
        """For a listening socket."""
        return Door(listening, self._arrived)

    def _arrived(self, connection: socket.socket, peer: str) -> Arrived:
        client, server = connection.getpeername(), connection.getsockname()
        below = SocketTransport(connection, peer, self._readers, RECEIVE_BYTES_MAX)
        transport = self._port.over(below)
        link = Link(
            (client[0], client[1]),
            (server[0], server[1]),
            "https",
            lambda: transport.peer_certificate,
        )
        return TransportStream(transport), link
