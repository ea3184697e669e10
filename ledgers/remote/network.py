"""The network seam of the ledger client: one connection, sent to without waiting where possible.

At the end of a turn the kernel nearly always takes everything, and a task switch costs more than
the system call.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol, final

import trio

if TYPE_CHECKING:
    from runtime.send_queue import Buffer

RECEIVE_SIZE_BYTES: Final = 256 * 1024


class Connection(Protocol):
    """A stream of bytes both ways."""

    def send_nowait(self, buffers: Sequence[Buffer]) -> int:
        """The number of bytes taken; 0: none now. Raises: trio.BrokenResourceError."""

    async def wait_writable(self) -> None:
        """Return when bytes may be taken. Raises: trio.BrokenResourceError."""

    async def receive(self) -> bytes:
        """The next bytes; empty when the other side has closed.

        Raises: trio.BrokenResourceError.
        """

    def close(self) -> None:
        """End it. Who waits for it gets trio.BrokenResourceError."""


Connect = Callable[[str, int], Awaitable[Connection]]
"""Opens a connection to (host, port). Raises: OSError."""


async def connect_tcp(host: str, port: int) -> Connection:
    """Raises: OSError."""
    stream = await trio.open_tcp_stream(host, port)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    family, kind, proto = stream.socket.family, stream.socket.type, stream.socket.proto
    raw = socket.socket(family, kind, proto, fileno=stream.socket.detach())
    raw.setblocking(False)
    return _TcpConnection(raw)


@final
class _TcpConnection:
    """A connected socket."""

    __slots__ = ("_socket",)

    def __init__(self, raw: socket.socket) -> None:
        self._socket = raw

    def send_nowait(self, buffers: Sequence[Buffer]) -> int:
        try:
            if len(buffers) == 1:
                return self._socket.send(buffers[0])
            return self._socket.sendmsg(buffers)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            raise trio.BrokenResourceError(str(error)) from error

    async def wait_writable(self) -> None:
        await self._wait(trio.lowlevel.wait_writable)

    async def receive(self) -> bytes:
        while True:
            await self._wait(trio.lowlevel.wait_readable)
            try:
                return self._socket.recv(RECEIVE_SIZE_BYTES)
            except (BlockingIOError, InterruptedError):
                continue
            except OSError as error:
                raise trio.BrokenResourceError(str(error)) from error

    async def _wait(self, wait: Callable[[socket.socket], Awaitable[None]]) -> None:
        if self._socket.fileno() < 0:
            raise trio.BrokenResourceError("the connection was closed")
        try:
            await wait(self._socket)
        except (trio.ClosedResourceError, OSError) as error:
            raise trio.BrokenResourceError("the connection was closed") from error

    def close(self) -> None:
        if self._socket.fileno() >= 0:
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()
