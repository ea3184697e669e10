"""Sockets to listen on, and what is said of one that cannot be had."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Final

from broker.assembly.parts import StartError

if TYPE_CHECKING:
    from broker.net.listener import BrokerListener

HTTP_BACKLOG: Final = 4096


def bind_http(host: str, port: int) -> socket.socket:
    """A listening socket. Raises: StartError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(HTTP_BACKLOG)
    except OSError as error:
        listening.close()
        raise cannot_listen("webServicePort", host, port, error) from error
    listening.setblocking(False)
    return listening


async def bind_broker(listener: BrokerListener, host: str, port: int) -> None:
    """Raises: StartError."""
    try:
        await listener.bind(host, port)
    except OSError as error:
        raise cannot_listen("brokerServicePort", host, port, error) from error


def cannot_listen(key: str, host: str, port: int, error: OSError) -> StartError:
    """The refusal of a port that is named by a key of the configuration."""
    reason = error.strerror or str(error)
    return StartError(f"cannot listen on {host}:{port} ({key}): {reason}")


def url_host(host: str) -> str:
    """A host as it stands in a URL."""
    return f"[{host}]" if ":" in host else host
