"""Serves the connections of one protocol, within bounds on their number and on their number per
address.

The listener is given the door, which speaks the protocol. A client over a bound gets a refusal
before its connection is closed. File descriptors bound the number of connections in any case.
"""

from __future__ import annotations

import gc
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Protocol, final

import structlog
import trio

from broker.limits.connections import OpenConnection
from runtime.accepting import TurnedAway, accept_connections, stop_listening
from runtime.listening import open_sockets
from runtime.open_files import connections_max, not_admitted_max
from runtime.transport import SocketTransport, StreamTransport

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from broker.limits.connections import Connections
    from runtime.readers import Readers
    from runtime.transport import Transport

    TransportOver = Callable[[Transport], Transport]

log = structlog.get_logger()

BACKLOG = 4096
SESSIONS_PER_COLLECTION = 64
"""Where as many connections end as begin, Python's collector counts no growth, until one pass over
all objects of thousands of new connections stops the loop for 0.3 s. A pass over those of 64 takes
2 ms."""
ACCEPTED_PER_TURN = 8
"""Each of them begins a session in the next turn, which takes about 0.2 ms."""
TURNED_AWAY_MAX = 100
"""Refused connections kept open at a time until their peers have read the reason."""


def plain(transport: Transport) -> Transport:
    """Bytes as they are."""
    return transport


class ServedConnection(OpenConnection, Protocol):
    """A connection that has been accepted."""

    async def run(self) -> None:
        """Serve it until either side ends it. Never raises for faults of the peer."""


class Door(Protocol):
    """Speaks the protocol of the clients of a listener."""

    @property
    def protocol(self) -> str:
        """Its name, for error reports."""

    def connection(self, connections: Connections, transport: Transport) -> ServedConnection:
        """For a client that has just connected."""

    def refusal(self, reason: str) -> bytes:
        """What a client that is not admitted gets to read."""


@final
class BrokerListener:
    """One listening address and the sessions that came through it."""

    def __init__(
        self,
        connections: Connections,
        door: Door,
        readers: Readers,
        http_connections_max: int,
    ) -> None:
        self._connections = connections
        self._door = door
        self._begun = 0
        self._per_address: Counter[str] = Counter()
        self._ports: list[tuple[socket.socket, TransportOver]] = []
        self._readers = readers
        self._connections_of_files_max = connections_max(http_connections_max)
        self._turned_away = TurnedAway(not_admitted_max(TURNED_AWAY_MAX))

    @property
    def port(self) -> int:
        """The port that was bound (useful when 0 was asked for)."""
        return int(self._ports[0][0].getsockname()[1])

    async def bind(self, host: str, port: int, over: TransportOver = plain) -> int:
        """Listen. Connections are accepted once `run` is running. `over` gives the transport of a
        connection by the one of its socket. Returns the port that was bound.

        Raises: OSError: the address is not available.
        """
        for listening in await open_sockets(port, host, BACKLOG):
            self._ports.append((listening, over))
        return int(self._ports[-1][0].getsockname()[1])

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Accept and serve until cancelled."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._readers.run)

                def serve(
                    over: TransportOver, connection: socket.socket, host: str, port: int
                ) -> None:
                    transport = SocketTransport(connection, f"{host}:{port}", self._readers)
                    nursery.start_soon(self.serve, over(transport), host)

                per_turn = not_admitted_max(ACCEPTED_PER_TURN)
                accept = partial(
                    accept_connections, per_turn=per_turn, protocol=self._door.protocol
                )
                for listening, over in self._ports:
                    nursery.start_soon(accept, listening, partial(serve, over))
                task_status.started()
        finally:
            self.stop_accepting()

    def stop_accepting(self) -> None:
        """Close the listening sockets. Sessions continue."""
        for listening, _over in self._ports:
            stop_listening(listening)

    async def serve_stream(self, stream: trio.abc.Stream, peer: str) -> None:
        """Serve a connection over any stream (tests, simulation)."""
        transport = StreamTransport(stream, peer)
        try:
            await self.serve(transport, peer.rpartition(":")[0])
        finally:
            await transport.aclose()

    async def serve(self, transport: Transport, host: str) -> None:
        """Serve one connection until it ends."""
        connections = self._connections
        refusal = self._refusal(host)
        if refusal:
            await self._turn_away(transport, refusal)
            return
        session = self._door.connection(connections, transport)
        self._begun += 1
        if self._begun % SESSIONS_PER_COLLECTION == 0:
            gc.collect(1)
        connections.open.add(session)
        self._per_address[host] += 1
        try:
            await session.run()
        except Exception as error:
            log.error("session failed", peer=transport.peer, exc_info=error)
        finally:
            connections.open.discard(session)
            self._per_address[host] -= 1
            if not self._per_address[host]:
                del self._per_address[host]

    async def _turn_away(self, transport: Transport, reason: str) -> None:
        """Send the reason. When very many are turned away together, most are closed at once."""
        log.warning("connection not admitted", peer=transport.peer, reason=reason)
        frame = self._door.refusal(reason)

        async def say() -> None:
            if not is_sent:
                await transport.send([frame])
            await transport.finish_sending()

        try:
            is_sent = transport.send_nowait([frame]) > 0
            await self._turned_away.tell(say, transport.receive)
        except trio.BrokenResourceError:
            log.debug("peer left before it was refused", peer=transport.peer)
        finally:
            transport.close()

    def _refusal(self, host: str) -> str:
        """Why a connection from this address is not admitted; empty if it is."""
        limits = self._connections.limits
        if limits.connections_max and len(self._connections.open) >= limits.connections_max:
            return f"Reached the maximum number of connections: {limits.connections_max}"
        of_files = self._connections_of_files_max
        if of_files and len(self._connections.open) >= of_files:
            return (
                f"Reached the maximum number of connections that the limit of open files leaves:"
                f" {of_files}; raise the limit of the broker (ulimit -n) and start it again"
            )
        per_ip = limits.connections_per_ip_max
        if per_ip and self._per_address[host] >= per_ip:
            return f"Reached the maximum number of connections on address {host}: {per_ip}"
        return ""
