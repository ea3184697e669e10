"""Sockets that listen. `::` is all addresses of both families, as it is for Java's servers.

For `::` there is a socket for each family at the same port, so that the address of a peer is its
own, and not an IPv4 address within an IPv6 one.
"""

from __future__ import annotations

import errno
import socket
from contextlib import ExitStack
from typing import Final

import trio

ALL_ADDRESSES: Final = "::"
_ALL_OF_IPV4: Final = "0.0.0.0"
_TRIES: Final = 20
"""A free port of one family may be in use in the other one."""


async def open_listeners(
    port: int, host: str, backlog: int | None = None
) -> list[trio.SocketListener]:
    """Listen at a host; 0: any free port, the same for all of the list. The first one is there on
    every machine that has the address. Raises: OSError."""
    if host != ALL_ADDRESSES:
        return await trio.open_tcp_listeners(port, host=host, backlog=backlog)
    for last in range(_TRIES, 0, -1):
        with ExitStack() as stack:
            opened = await trio.open_tcp_listeners(port, host=host, backlog=backlog)
            for each in opened:
                stack.callback(each.socket.close)
            bound = opened[0].socket.getsockname()[1]
            try:
                opened += await trio.open_tcp_listeners(bound, host=_ALL_OF_IPV4, backlog=backlog)
            except OSError as error:
                if error.errno == errno.EADDRINUSE and not port and last > 1:
                    continue
                if error.errno != errno.EAFNOSUPPORT:
                    raise
            stack.pop_all()
            return opened
    raise AssertionError("the last try returns or raises")


async def open_sockets(port: int, host: str, backlog: int) -> list[socket.socket]:
    """The same as plain sockets that do not block. Raises: OSError."""
    found = []
    for listener in await open_listeners(port, host, backlog):
        bound = listener.socket
        plain = socket.socket(bound.family, bound.type, bound.proto, bound.detach())
        plain.setblocking(False)
        found.append(plain)
    return found
