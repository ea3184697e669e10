"""The composition root of a bookie process: builds its parts in order, and takes them down.

Up: directories locked -> ports bound -> HTTP answers -> metadata store -> the cluster is there ->
joined, if the metadata were copied -> cookies, journal replay -> background work -> BookKeeper's
protocol is served -> registered. Only then is it ready.

Down: unregistered, so that clients turn to others -> the port is closed -> accepted entries are
flushed and the checkpoint is written -> the session with the metadata store ends.

A lost session with the metadata store does not end a bookie. It serves on, because fencing and not
registration makes a second writer harmless, and registers with the next session.
"""

from __future__ import annotations

import os
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, final

import structlog
import trio

from bookie.bookie import Bookie
from bookie.errors import BookieRefusesToStart, StorageError
from bookie.net.door import STRANGERS_MAX, TlsDoor
from bookie.net.server import BookieServer, BookieServerConfig
from bookie.permissions import DIRECTORY_MODE, OTHERS
from bookie.process.cluster import (
    Cluster,
    StoredCookies,
    is_store_of_this_machine,
    require_cluster,
)
from bookie.process.http import BookieState
from bookie.process.http_port import bind, serve_state
from bookie.process.joining import join
from bookie.process.registration import Endpoint, Registration
from bookie.process.tls import server_tls
from runtime.file_lock import FileInUse, take_lock
from runtime.open_files import bookie_process_connections_max
from runtime.transport import TcpTransports
from runtime.unix_sockets import listen_at_path
from security.tls_suites import UnusableTls
from settings.kinds import or_no_limit

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from bookie.process.config import BookieProcessConfig
    from bookie.process.identity import Identity
    from metadata.store import MetadataStore

log = structlog.get_logger()

LOCK_FILE: Final = "vela.lock"
ENDPOINT: Final = "bookie"
ENDPOINT_PROTOCOL: Final = "bookie-rpc"
ENDPOINT_PROTOCOL_AT_PATH: Final = "bookie-rpc+unix"
"""Vela's own: the host is the path of a Unix socket, the port is 0."""
HTTP_ENDPOINT: Final = "httpserver"
HTTP_ENDPOINT_PROTOCOL: Final = "http"
_SESSIONS_WAITED: Final = 2
"""Timeouts for which a node of a former session is waited for at start."""


@final
@dataclass(frozen=True, slots=True)
class RunningBookie:
    """A bookie that clients find and can use."""

    bookie_id: str
    bookie: Bookie
    server: BookieServer
    registration: Registration
    http_port: int
    """0: there is no HTTP."""
    socket_path: str
    """Where it listens; empty: at the port of `server`."""


@asynccontextmanager
async def running_bookie(
    config: BookieProcessConfig,
    identity: Identity,
    open_store: Callable[[], Awaitable[MetadataStore]],
) -> AsyncIterator[RunningBookie]:
    """A registered bookie for the duration of the block.

    Raises: bookie.errors.StorageError, MetadataUnavailable: it cannot start, or it has failed.
    """
    config = replace(config, bookieId=identity.bookie_id)
    async with AsyncExitStack() as stack:
        lock_directories(stack, (*config.journalDirectories, *config.ledgerDirectories))
        door = _door(config)
        listeners = await _listeners(stack, config, identity)
        nursery = await stack.enter_async_context(trio.open_nursery())
        stack.callback(nursery.cancel_scope.cancel)
        state = BookieState()
        http_port = await serve_state(
            stack,
            nursery,
            config,
            identity,
            lambda metrics_only: state.answers(metrics_only=metrics_only),
        )

        store = await open_store()
        stack.push_async_callback(_shielded, store.aclose)
        cluster = await require_cluster(store)
        await join(config, store)
        bookie = await _open_bookie(config, store, cluster)
        transports = TcpTransports()
        bookie.use_readers(transports.readers)
        stack.push_async_callback(_shielded, bookie.aclose)
        if is_store_of_this_machine(config):
            await cluster.refuse_older_metadata(bookie.ledger_ids())
        bookie.set_live_ledgers(cluster.live_ledgers)
        if not config.readOnlyModeEnabled:
            nursery.start_soon(_stop_when_full, bookie)
        await nursery.start(bookie.run)

        server = BookieServer(bookie, _server_config(config), transports, door)
        server.turns.kick_storage = bookie.kick
        bookie.set_turn(server.turns)
        server.listen_on(listeners)
        front = await stack.enter_async_context(trio.open_nursery())
        stack.callback(front.cancel_scope.cancel)
        await front.start(server.run)
        state.bookie, state.server = bookie, server

        endpoints = _endpoints(config, identity.host, server.port, http_port)
        registration = Registration(
            store, identity.bookie_id, endpoints, bookie.is_writable, cluster.check
        )
        bookie.watch_writable(registration.changed)
        stack.push_async_callback(_shielded, registration.unregister)
        await registration.register(_SESSIONS_WAITED * config.zkTimeout / 1000)
        front.start_soon(registration.run)
        state.is_ready = True
        try:
            yield RunningBookie(
                identity.bookie_id,
                bookie,
                server,
                registration,
                http_port,
                config.bookieSocketPath,
            )
        finally:
            state.is_stopping = True


async def _listeners(
    stack: AsyncExitStack, config: BookieProcessConfig, identity: Identity
) -> list[trio.SocketListener]:
    """Closed with `stack`. Raises: BookieRefusesToStart."""
    path = config.bookieSocketPath
    if not path:
        return await bind(stack, identity.bind_host, config.bookiePort, "bookiePort")
    try:
        listener = listen_at_path(path)
    except OSError as error:
        reason = error.strerror or str(error)
        raise BookieRefusesToStart(
            f"cannot listen at {path} (bookieSocketPath): {reason}"
        ) from error
    stack.callback(listener.socket.close)
    stack.callback(_remove, path)
    return [listener]


def _endpoints(config: BookieProcessConfig, host: str, port: int, http_port: int) -> list[Endpoint]:
    """The addresses in the registration. Port 0: the bookie listens at a path; HTTP is off."""
    path = config.bookieSocketPath
    endpoints = [
        Endpoint(ENDPOINT, ENDPOINT_PROTOCOL_AT_PATH, path, 0)
        if path
        else Endpoint(ENDPOINT, ENDPOINT_PROTOCOL, host, port)
    ]
    if http_port and config.httpServerEnabled:
        endpoints.append(Endpoint(HTTP_ENDPOINT, HTTP_ENDPOINT_PROTOCOL, host, http_port))
    return endpoints


def _remove(path: str) -> None:
    """The next start would also remove it."""
    with suppress(OSError):
        os.unlink(path)


def lock_directories(stack: ExitStack | AsyncExitStack, directories: tuple[str, ...]) -> None:
    """Create them if need be, and keep other processes out. Raises: BookieRefusesToStart."""
    stack.callback(os.umask, os.umask(OTHERS))
    for directory in dict.fromkeys(map(os.path.abspath, directories)):
        try:
            os.makedirs(directory, DIRECTORY_MODE, exist_ok=True)
            stack.callback(os.close, take_lock(f"{directory}/{LOCK_FILE}"))
        except FileInUse as error:
            raise BookieRefusesToStart(f"directory {directory} is {error}") from None
        except OSError as error:
            raise BookieRefusesToStart(
                f"cannot use directory {directory}: {error.strerror}"
            ) from error


async def _open_bookie(
    config: BookieProcessConfig, store: MetadataStore, cluster: Cluster
) -> Bookie:
    """Raises: StorageError, MetadataUnavailable."""
    try:
        return await Bookie.open(
            config,
            cookie_store=StoredCookies(store),
            live_ledgers=cluster.live_ledgers,
        )
    except OSError as error:
        raise BookieRefusesToStart(f"cannot open the bookie's storage: {error}") from error


async def _stop_when_full(bookie: Bookie) -> None:
    """Raises: StorageError: all ledger directories are full."""
    changed = trio.Event()

    def look() -> None:
        changed.set()

    bookie.watch_writable(look)
    while bookie.is_writable():
        await changed.wait()
        changed = trio.Event()
    raise StorageError("the disks are full, and readOnlyModeEnabled=false")


def _door(config: BookieProcessConfig) -> TlsDoor | None:
    """None: everyone is served. Raises: BookieRefusesToStart."""
    rules = server_tls(config)
    if rules is None:
        return None
    # Loads libraries of which a bookie without TLS has no use.
    from security.tls import TlsPort

    try:
        return TlsDoor(
            TlsPort(rules),
            demands_tls=config.tlsClientAuthentication,
            strangers_max=_strangers_max(),
        )
    except UnusableTls as error:
        raise BookieRefusesToStart(str(error)) from None


def _strangers_max() -> int:
    """A share of the descriptors."""
    return max(1, min(STRANGERS_MAX, bookie_process_connections_max(0) // 4))


def _connections_max(config: BookieProcessConfig) -> int:
    """The number of connections that are served."""
    connections_max = bookie_process_connections_max(config.bookieMaxConnections)
    if not config.tlsProviderFactoryClass:
        return connections_max
    return min(connections_max, bookie_process_connections_max(0) - _strangers_max())


def _server_config(config: BookieProcessConfig) -> BookieServerConfig:
    threads = max(1, config.numReadWorkerThreads)
    return BookieServerConfig(
        frame_size_max=config.nettyMaxFrameSizeBytes,
        batch_read_bytes_max=config.maxBatchReadSize,
        connections_max=_connections_max(config),
        reads_pending_max=or_no_limit(config.maxPendingReadRequestsPerThread * threads),
        add_bytes_pending_max=config.bookieMaxPendingAddsMB * 1024 * 1024,
        reads_at_once=threads,
    )


async def _shielded(close: Callable[[], Awaitable[None]]) -> None:
    with trio.CancelScope(shield=True):
        await close()
