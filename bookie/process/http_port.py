"""The HTTP port of a process that has a bookie's configuration file: a bookie, autorecovery."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Final

import structlog
import trio

from bookie.errors import BookieRefusesToStart
from runtime.listening import open_listeners
from web.callers import CallerRules
from web.limits import HttpLimits
from web.server import Door, HttpServer
from web.state import StateApplication

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AsyncExitStack

    from bookie.process.config import BookieProcessConfig
    from bookie.process.identity import Identity
    from web.state import Answer

log = structlog.get_logger()

HTTP_CONNECTIONS_MAX: Final = 64


async def bind(stack: AsyncExitStack, host: str, port: int, key: str) -> list[trio.SocketListener]:
    """Listeners that are closed with `stack`. Raises: BookieRefusesToStart."""
    try:
        listeners = await open_listeners(port, host)
    except OSError as error:
        reason = error.strerror or str(error)
        raise BookieRefusesToStart(f"cannot listen on {host}:{port} ({key}): {reason}") from error
    for listener in listeners:
        stack.callback(listener.socket.close)
    return listeners


async def serve_state(
    stack: AsyncExitStack,
    nursery: trio.Nursery,
    config: BookieProcessConfig,
    identity: Identity,
    answers: Callable[[bool], Mapping[str, Answer]],
) -> int:
    """Serve state and metrics, if that is switched on. `answers` is asked whether there are metrics
    only, as with `statsProviderClass` and without `httpServerEnabled`. Returns the port; 0: there
    is no HTTP.

    Raises: BookieRefusesToStart.
    """
    if config.httpServerEnabled:
        key, port = "httpServerPort", config.httpServerPort
    elif "prometheus" in config.statsProviderClass.lower():
        key, port = "prometheusStatsHttpPort", config.prometheusStatsHttpPort
    else:
        return 0
    names = (identity.host, config.advertisedAddress, socket.gethostname(), socket.getfqdn())
    callers = CallerRules(names, config.webServiceAllowedHosts)
    application = StateApplication(callers, answers(not config.httpServerEnabled))
    host = config.httpServerHost or identity.bind_host
    listeners = await bind(stack, host, port, key)
    bound = int(listeners[0].socket.getsockname()[1])
    listening = [socket.socket(fileno=os.dup(each.socket.fileno())) for each in listeners]
    for each in listening:
        each.setblocking(False)
    stop = trio.Event()
    stack.callback(stop.set)
    limits = HttpLimits(connections_max=HTTP_CONNECTIONS_MAX)
    await nursery.start(HttpServer(application, limits).serve, map(Door, listening), stop)
    log.info("metrics are served", host=host, port=bound)
    return bound
