"""The network seam of the ledger client: how connections to bookies are opened."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable
from typing import final

import trio

from runtime.readers import Readers
from runtime.transport import SocketTransport, Transport

Connect = Callable[[str, int], Awaitable[Transport]]
"""Opens a connection to (host, port). Raises: OSError."""


@final
class TcpConnector:
    """A `Connect` whose connections are all read by `run`, which has to run in a nursery."""

    def __init__(self) -> None:
        self._readers = Readers()

    async def run(self) -> None:
        """Read until cancelled."""
        await self._readers.run()

    async def __call__(self, host: str, port: int) -> Transport:
        """Raises: OSError."""
        stream = await trio.open_tcp_stream(host, port)
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        family, kind, protocol = stream.socket.family, stream.socket.type, stream.socket.proto
        raw = socket.socket(family, kind, protocol, fileno=stream.socket.detach())
        return SocketTransport(raw, f"{host}:{port}", self._readers)
