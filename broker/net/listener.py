"""Accepts connections: admission by number, and by number per address.

Running out of file descriptors makes the listener wait, never end. Who is over a bound is told so
with an ERROR before the connection is closed.
"""

from __future__ import annotations

import errno
from collections import Counter
from typing import TYPE_CHECKING, final

import structlog
import trio

from broker.net.session import Session
from broker.net.transport import SocketTransport, StreamTransport
from protocol import commands
from protocol.errors import ServerError

if TYPE_CHECKING:
    from broker.net.transport import Transport
    from broker.service import BrokerService

log = structlog.get_logger()

RETRY_ACCEPT_SECONDS = 0.1
ACCEPT_PAUSE_ERRORS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
BACKLOG = 4096


@final
class BrokerListener:
    """One listening address and the sessions that came through it."""

    def __init__(self, service: BrokerService) -> None:
        self._service = service
        self._per_address: Counter[str] = Counter()
        self._sockets: list[trio.socket.SocketType] = []

    @property
    def port(self) -> int:
        """The port that was bound (useful when 0 was asked for)."""
        return int(self._sockets[0].getsockname()[1])

    async def bind(self, host: str, port: int) -> None:
        """Listen, so that connections are accepted as soon as `run` is.

        Raises: OSError: the address cannot be had.
        """
        listeners = await trio.open_tcp_listeners(port, host=host, backlog=BACKLOG)
        self._sockets = [listener.socket for listener in listeners]

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Accept and serve until cancelled."""
        try:
            async with trio.open_nursery() as nursery:
                for socket in self._sockets:
                    nursery.start_soon(self._accept, socket, nursery)
                task_status.started()
        finally:
            self.stop_accepting()

    def stop_accepting(self) -> None:
        """Close the listening sockets; sessions go on."""
        for socket in self._sockets:
            socket.close()

    async def _accept(self, socket: trio.socket.SocketType, nursery: trio.Nursery) -> None:
        while True:
            try:
                connection, address = await socket.accept()
            except OSError as error:
                if socket.fileno() == -1:
                    return
                if error.errno in ACCEPT_PAUSE_ERRORS:
                    log.error("cannot accept connections, trying again", error=str(error))
                    await trio.sleep(RETRY_ACCEPT_SECONDS)
                continue
            except trio.ClosedResourceError:
                return
            host, port = address[0], address[1]
            try:
                transport = SocketTransport(connection, f"{host}:{port}")
            except OSError:
                continue  # the peer is gone already
            nursery.start_soon(self.serve, transport, host)

    async def serve_stream(self, stream: trio.abc.Stream, peer: str) -> None:
        """Serve a connection over any stream (tests, simulation)."""
        transport = StreamTransport(stream, peer)
        try:
            await self.serve(transport, peer.rpartition(":")[0])
        finally:
            await transport.aclose()

    async def serve(self, transport: Transport, host: str) -> None:
        """Serve one connection to its end."""
        service = self._service
        refusal = self._refusal(host)
        if refusal:
            log.warning("connection not admitted", peer=transport.peer, reason=refusal)
            frame = commands.error(commands.NO_REQUEST, ServerError.NotAllowedError, refusal)
            try:
                transport.send_nowait([frame])
            except trio.BrokenResourceError:
                log.debug("peer left before it was refused", peer=transport.peer)
            transport.close()
            return
        session = Session(service, transport, service.limits)
        service.sessions.add(session)
        self._per_address[host] += 1
        try:
            await session.run()
        except Exception as error:
            log.error("session failed", peer=transport.peer, exc_info=error)
        finally:
            service.sessions.discard(session)
            self._per_address[host] -= 1
            if not self._per_address[host]:
                del self._per_address[host]

    def _refusal(self, host: str) -> str:
        """Why a connection from this address is not admitted; empty if it is."""
        limits = self._service.limits
        if limits.connections_max and len(self._service.sessions) >= limits.connections_max:
            return f"Reached the maximum number of connections: {limits.connections_max}"
        per_ip = limits.connections_per_ip_max
        if per_ip and self._per_address[host] >= per_ip:
            return f"Reached the maximum number of connections on address {host}: {per_ip}"
        return ""
