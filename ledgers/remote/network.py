"""The network seam of the ledger client: how connections to bookies are opened.

A bookie is at a host and a port, or at a Unix socket of this machine. The address of the latter is
the absolute path of the socket in place of the host, and port 0.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable
from typing import final

import trio

from protocol.bookkeeper.addresses import is_path
from runtime.readers import Readers
from runtime.transport import SocketTransport, Transport

Connect = Callable[[str, int], Awaitable[Transport]]
"""Opens a connection to (host, port), or to (path, 0). Raises: OSError."""


@final
class SocketConnector:
    """A `Connect` whose connections are all read by `run`, which has to run in a nursery."""

    def __init__(self) -> None:
        self._readers = Readers()

    async def run(self) -> None:
        """Read until cancelled."""
        await self._readers.run()

    async def __call__(self, host: str, port: int) -> Transport:
        """Raises: OSError."""
        if is_path(host):
            stream = await trio.open_unix_socket(host)
        else:
            stream = await trio.open_tcp_stream(host, port)
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        family, kind, protocol = stream.socket.family, stream.socket.type, stream.socket.proto
        raw = socket.socket(family, kind, protocol, fileno=stream.socket.detach())
        return SocketTransport(raw, f"{host}:{port}", self._readers)
