"""Accepts the connections of listening sockets, and turns some away. The binary protocol and HTTP
share it, and decide which connections are served and what reason the others are given.

Connections that arrive together are accepted together, so that many of them wait for the other work
of the event loop once, and not once each. If descriptors run out, accepting pauses and then goes
on. Refused connections stay open until their peers have read the reason, within a bound on their
number and on the time.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Final, final

import structlog
import trio

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable, Callable

    Serve = Callable[[socket.socket, str, int], None]

log = structlog.get_logger()

RETRY_SECONDS: Final = 0.1
PAUSE_ERRORS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
"""The broker, not the peer, is short of something."""
TURNED_AWAY_SECONDS_MAX: Final = 1.0
"""How long a refused peer has to read the reason."""


async def accept_connections(
    listening: socket.socket, serve: Serve, *, per_turn: int, protocol: str
) -> None:
    """Accept until cancelled or until `stop_listening`, at most `per_turn` connections between
    other work. The listening socket must not block, and is closed at the end.

    `serve` is given each connection with the address and port of its peer, and raises OSError if
    the peer has already gone. `protocol` is for the log.
    """
    failure = ""
    try:
        while listening.fileno() != -1:
            await trio.lowlevel.wait_readable(listening)
            reason = _accept_waiting(listening, serve, per_turn)
            if reason:
                if reason != failure:
                    log.error(
                        "cannot accept connections, trying again", protocol=protocol, error=reason
                    )
                await trio.sleep(RETRY_SECONDS)
            failure = reason
    except trio.ClosedResourceError:
        return
    finally:
        stop_listening(listening)


def _accept_waiting(listening: socket.socket, serve: Serve, per_turn: int) -> str:
    """Accept waiting connections, up to a bound. Returns why no more can be accepted now, or an
    empty text."""
    for _ in range(per_turn):
        try:
            connection, address = listening.accept()
        except BlockingIOError:
            break
        except OSError as error:
            if error.errno in PAUSE_ERRORS:
                return str(error)
            continue  # that peer has already gone
        try:
            serve(connection, address[0], address[1])
        except OSError:
            connection.close()
    return ""


def stop_listening(listening: socket.socket) -> None:
    """Close the socket and end its `accept_connections`. Its connections continue."""
    if listening.fileno() != -1:
        trio.lowlevel.notify_closing(listening)
        listening.close()


@final
class TurnedAway:
    """The refused connections of one protocol that are still open."""

    __slots__ = ("_count", "_told_max")

    def __init__(self, told_max: int) -> None:
        """When more than `told_max` are refused together, the broker does not wait for the rest."""
        self._count = 0
        self._told_max = told_max

    async def tell(
        self, say: Callable[[], Awaitable[None]], receive: Callable[[], Awaitable[object]]
    ) -> None:
        """Call `say`, and give the peer time to read it and to close: a close with unread input
        would reset the connection. The caller closes it in any case."""
        if self._count >= self._told_max:
            return
        self._count += 1
        try:
            with trio.move_on_after(TURNED_AWAY_SECONDS_MAX):
                await say()
                while await receive():
                    pass
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return  # the peer was faster
        finally:
            self._count -= 1
