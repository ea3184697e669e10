"""Serves HTTP connections, and closes some when there are too many of them, or too many bytes.

An idle connection never keeps a new one out: at the bound the one that has waited longest for a
request is closed, which clients with kept connections can handle. If every connection has a request
in progress, the one gives way whose client has made the broker wait longest, unless all clients are
fast: then the new one is answered with 503.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, final

import structlog
import trio

from runtime.accepting import TurnedAway, accept_connections
from runtime.open_files import not_admitted_max
from runtime.rounds import Rounds
from web.connection import HttpConnection, Link, Phase, link_of
from web.limits import ByteBudget, RequestRate

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterable

    from web.asgi import Application
    from web.limits import HttpLimits

log = structlog.get_logger()

GRACEFUL_SECONDS: Final = 1.0
ACCEPTED_PER_TURN: Final = 8
HANDLED_PER_ROUND: Final = 8
"""How many connections do something in a round of the event loop. A piece of a body takes a tenth
of a millisecond, a small request some tenths."""
TURNED_AWAY_MAX: Final = 8
"""Refused connections kept open at a time until their clients have read the reason."""
SLOW_SECONDS: Final = 2.0
"""A client slower than this may be disconnected when bytes or places are short."""
_IDLE: Final = frozenset({Phase.HEAD})
_HOLDING_BYTES: Final = frozenset({Phase.BODY, Phase.ANSWER})


Arrived = tuple[trio.abc.Stream, Link]


def plain_http(connection: socket.socket, peer: str) -> Arrived:
    """A connection as it was accepted."""
    del peer
    stream = trio.SocketStream(trio.socket.from_stdlib_socket(connection))
    return stream, link_of(stream)


@final
@dataclass(frozen=True, slots=True)
class Door:
    """A listening socket, and what is made of its connections."""

    listening: socket.socket
    arrived: Callable[[socket.socket, str], Arrived] = plain_http
    """Is given a connection, and the address and port of its peer in one text. Raises: OSError: the
    peer has already gone."""


@final
class HttpServer:
    """The connections of all listening sockets, with the interface `connection.Shared` for them."""

    def __init__(self, application: Application, limits: HttpLimits) -> None:
        self.application = application
        self.limits = limits
        self.budget = ByteBudget(limits.buffered_bytes_max)
        self.rate = RequestRate(limits.requests_per_second_max, trio.current_time())
        self.rounds = Rounds(HANDLED_PER_ROUND)
        self.stopping = False
        self._connections: dict[HttpConnection, None] = {}
        self._idle: OrderedDict[HttpConnection, None] = OrderedDict()
        """The connections that wait for a request, the longest first: at the bound each new
        connection asks for the first one, and anyone can open connections."""
        self._waited_for: OrderedDict[HttpConnection, None] = OrderedDict()
        """Those that wait for a client with a request in progress, likewise."""
        self._turned_away = TurnedAway(not_admitted_max(TURNED_AWAY_MAX))

    def __len__(self) -> int:
        """Connections being served."""
        return len(self._connections)

    async def serve(
        self,
        doors: Iterable[Door],
        stop: trio.Event,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve until `stop` is set, then allow pending requests a moment to finish."""
        async with trio.open_nursery() as serving:
            async with trio.open_nursery() as accepting:

                def serve(door: Door, connection: socket.socket, host: str, port: int) -> None:
                    serving.start_soon(
                        self.serve_stream, *door.arrived(connection, f"{host}:{port}")
                    )

                per_turn = not_admitted_max(ACCEPTED_PER_TURN)
                accept = partial(accept_connections, per_turn=per_turn, protocol="HTTP")
                for door in doors:
                    accepting.start_soon(accept, door.listening, partial(serve, door))
                task_status.started()
                await stop.wait()
                accepting.cancel_scope.cancel()
            self.stopping = True
            for connection in list(self._idle):
                self._let_go(connection)
            serving.cancel_scope.deadline = trio.current_time() + GRACEFUL_SECONDS

    async def serve_stream(self, stream: trio.abc.Stream, link: Link) -> None:
        """Serve one connection until it ends."""
        if not self._make_place():
            await self._turn_away(stream)
            return
        connection = HttpConnection(self, stream, link)
        self._connections[connection] = None
        self.entered(connection)
        try:
            await connection.run()
        finally:
            self._connections.pop(connection, None)
            self._idle.pop(connection, None)
            self._waited_for.pop(connection, None)

    def entered(self, connection: HttpConnection) -> None:
        """See Shared."""
        self._idle.pop(connection, None)
        self._waited_for.pop(connection, None)
        if connection not in self._connections:
            return
        if connection.phase in _IDLE:
            self._idle[connection] = None
        elif connection.phase in _HOLDING_BYTES:
            self._waited_for[connection] = None

    def free_bytes(self) -> None:
        """Disconnect the slowest of the clients that hold bytes."""
        self._let_slowest_go("webServiceMaxBufferedMB is reached")

    def _let_slowest_go(self, reason: str) -> bool:
        """Disconnect the client that is waited for longest, if that is long."""
        slowest = next(iter(self._waited_for), None)
        if slowest is None or trio.current_time() - slowest.since < SLOW_SECONDS:
            return False
        log.warning("HTTP client cut off", reason=reason)
        self._let_go(slowest)
        return True

    def _make_place(self) -> bool:
        """Whether one more connection may be served."""
        most = self.limits.connections_max
        if not most or len(self._connections) < most:
            return True
        if not self._idle:
            return self._let_slowest_go("maxHttpServerConnections is reached")
        self._let_go(next(iter(self._idle)))
        return True

    def _let_go(self, connection: HttpConnection) -> None:
        del self._connections[connection]
        self._idle.pop(connection, None)
        self._waited_for.pop(connection, None)
        connection.give_way()

    async def _turn_away(self, stream: trio.abc.Stream) -> None:
        """Answer 503. When very many are refused together they get no reason."""
        reason = "All connections are busy: maxHttpServerConnections, or the limit of open files"
        body = json.dumps({"reason": reason})
        head = (
            "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )

        async def say() -> None:
            log.warning("HTTP connection not admitted", reason=reason)
            await stream.send_all((head + body).encode("ascii"))
            if isinstance(stream, trio.abc.HalfCloseableStream):
                await stream.send_eof()

        try:
            await self._turned_away.tell(say, partial(stream.receive_some, 4096))
        finally:
            await trio.aclose_forcefully(stream)
