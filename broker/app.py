"""The composition root: builds the parts of a standalone broker, in order, and shuts them down.

Up: data directory lock -> sockets bound -> HTTP answering 503 -> metadata store -> bookie (journal
replay) -> ledger client -> managed ledgers -> namespaces (`public/default` exists) -> broker
service -> binary protocol accepted (and reads of the bookie, with `bookiePort`) -> HTTP answers.
Only then is it ready.

Down, in reverse: no new connections are accepted, topics are closed (pending publishes are
answered, cursors written), sessions end, the bookie flushes and writes its checkpoint, the store is
closed.

`running_broker` is also the way to run a broker inside another trio program, such as a test.
"""

from __future__ import annotations

import os
import socket
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final, final

import structlog
import trio

from bookie.bookie import Bookie
from bookie.config import BookieConfig
from bookie.cookie import FILE_NAME as COOKIE
from bookie.net.read_only import ReadOnlyBookie
from bookie.net.server import BookieServer, BookieServerConfig
from broker.admin.context import AdminContext
from broker.admin.http_limits import http_limits_from
from broker.admin.router import Router
from broker.admin.routes import all_routes
from broker.admin.server import AdminApplication, serve_http
from broker.broadcast.selection import BROADCAST
from broker.broker_address import BrokerAddress
from broker.data_directory import JOURNAL, LEDGERS, METADATA, DataDirectory
from broker.handlers.table import BrokerCommands
from broker.managed_ledger.config import ManagedLedgerConfig
from broker.managed_ledger.factory import ManagedLedgerFactory
from broker.managed_ledger.orphans import OrphanCollector
from broker.metrics.exposition import MetricsSource
from broker.namespaces.json_nodes import read_json
from broker.namespaces.names import DYNAMIC_CONFIGURATION_PATH
from broker.namespaces.namespaces import Namespaces
from broker.net.listener import BrokerListener
from broker.ownership import SoleBroker
from broker.schemas.registry import SchemaRegistry
from broker.service import BrokerService
from broker.subscription.factory import SubscriptionKinds
from broker.subscription.stock import STOCK
from ledgers.client import LedgerClient, LedgerClientConfig
from protocol.bookkeeper.digests import DigestType
from protocol.topic_name import TopicName
from runtime.clock import SystemClock
from runtime.open_files import bookie_connections_max
from settings.kinds import or_no_limit
from settings.reading import typed_values
from web.callers import CallerRules

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from broker.config import BrokerConfig
    from metadata.store import MetadataStore

log = structlog.get_logger()

PULSAR_VERSION: Final = "4.0.8"
"""The Pulsar version whose behaviour this broker has, as reported to clients."""
HTTP_BACKLOG: Final = 4096
_DIGEST_TYPES: Final = {
    "CRC32C": DigestType.CRC32C,
    "CRC32": DigestType.CRC32,
    "MAC": DigestType.HMAC,
    "DUMMY": DigestType.DUMMY,
}


class StartError(Exception):
    """The broker cannot start. The text is one line for the user."""


@final
@dataclass(frozen=True, slots=True)
class RunningBroker:
    """A broker that clients can use."""

    broker_service_url: str
    web_service_url: str
    service: BrokerService
    admin: AdminContext
    bookie_address: str = ""
    """`host:port` where the bookie serves reads; empty: it does not."""


@asynccontextmanager
async def running_broker(
    config: BrokerConfig, data_directory: Path | None
) -> AsyncIterator[RunningBroker]:
    """A ready broker for the duration of the block. `data_directory` None keeps all data in memory.

    Raises: StartError, DataDirectoryError, bookie.errors.StorageError, MetadataFailed.
    """
    async with AsyncExitStack() as stack:
        if data_directory is not None:
            stack.enter_context(DataDirectory(data_directory))
        clock = SystemClock()
        web_socket = stack.enter_context(_bind_http(config.bindAddress, config.webServicePort))
        application = AdminApplication(Router(all_routes()), _caller_rules(config))
        nursery = await stack.enter_async_context(trio.open_nursery())
        stack.callback(nursery.cancel_scope.cancel)
        http_stop = trio.Event()
        limits = http_limits_from(config)
        await nursery.start(serve_http, application, limits, [web_socket], http_stop)

        storage = await _open_storage(stack, nursery, config, data_directory, clock)
        store, bookie = storage.store, storage.bookie
        namespaces = Namespaces(store, config)
        schemas = SchemaRegistry(store, clock, config)
        service = _service_over(storage, config, namespaces, schemas, clock)
        listener = BrokerListener(
            service.connections, BrokerCommands(service), config.maxHttpServerConnections
        )
        await _bind_broker(listener, config)
        stack.callback(listener.stop_accepting)
        host = _url_host(config.advertised_host)
        broker_url = f"pulsar://{host}:{listener.port}"
        web_url = f"http://{host}:{web_socket.getsockname()[1]}"
        service.ownership = SoleBroker(BrokerAddress(broker_url, web_url))
        await namespaces.bootstrap(web_url, broker_url)
        front = await stack.enter_async_context(trio.open_nursery())
        stack.callback(front.cancel_scope.cancel)
        await front.start(service.run)
        await front.start(listener.run)
        bookie_server = await _serve_bookie(front, bookie, config)
        bookie_address = f"{host}:{bookie_server.port}" if bookie_server is not None else ""
        metrics = MetricsSource(config, service, bookie, PULSAR_VERSION, bookie_server)
        await front.start(metrics.run)
        admin = AdminContext(
            config=config,
            file_config=config,
            clock=clock,
            store=store,
            namespaces=namespaces,
            schemas=schemas,
            ledgers=storage.ledgers,
            service=service,
            bookie=bookie,
            bookie_addresses={bookie.config.bookieId: bookie_address} if bookie_address else {},
            metrics=metrics,
            broker_service_url=broker_url,
            web_service_url=web_url,
            version=PULSAR_VERSION,
        )
        await admin.set_dynamic(await read_json(store, DYNAMIC_CONFIGURATION_PATH) or {})
        application.context = admin
        collector = OrphanCollector(
            store, storage.ledgers, storage.factory.ledgers, _served_by(service)
        )
        front.start_soon(collector.run)
        try:
            yield RunningBroker(broker_url, web_url, service, admin, bookie_address)
        finally:
            http_stop.set()
            listener.stop_accepting()
            await _close_topics(service, config)


@final
@dataclass(frozen=True, slots=True)
class _Storage:
    """Everything below topics, running."""

    store: MetadataStore
    bookie: Bookie
    ledgers: LedgerClient
    factory: ManagedLedgerFactory


async def _open_storage(
    stack: AsyncExitStack,
    nursery: trio.Nursery,
    config: BrokerConfig,
    data_directory: Path | None,
    clock: SystemClock,
) -> _Storage:
    """Metadata store, bookie and managed ledgers; `stack` closes them in reverse order."""
    store = await _open_store(nursery, config, data_directory)
    stack.push_async_callback(_shielded, store.aclose)
    no_bookies = LedgerClient(store, {}, _ledger_client_config(config), clock)
    if data_directory is not None:
        await _refuse_lost_bookie(config, data_directory, no_bookies)
    bookie = await _open_bookie(config, data_directory, no_bookies.live_ledgers)
    stack.push_async_callback(_shielded, bookie.aclose)
    if data_directory is not None:
        await _refuse_older_metadata(data_directory, no_bookies, bookie)
    await nursery.start(bookie.run)
    ledgers = LedgerClient(
        store, {bookie.config.bookieId: bookie}, _ledger_client_config(config), clock
    )
    bookie.set_live_ledgers(ledgers.live_ledgers)
    factory = ManagedLedgerFactory(
        store, ledgers, ManagedLedgerConfig.from_broker_config(config), clock
    )
    await nursery.start(factory.run)
    return _Storage(store, bookie, ledgers, factory)


def _service_over(
    storage: _Storage,
    config: BrokerConfig,
    namespaces: Namespaces,
    schemas: SchemaRegistry,
    clock: SystemClock,
) -> BrokerService:
    """The broker service. The bookie hands adds to the journal in its turns."""
    service = BrokerService(
        config=config,
        store=storage.store,
        factory=storage.factory,
        namespaces=namespaces,
        schemas=schemas,
        subscription_kinds=SubscriptionKinds(BROADCAST, STOCK),
        clock=clock,
    )
    storage.bookie.set_turn(service.turns)
    service.turns.kick_storage = storage.bookie.kick
    return service


def _served_by(service: BrokerService) -> Callable[[str], bool]:
    """Whether the broker serves the topic of a managed ledger."""
    return lambda name: service.ownership.serves(TopicName.from_managed_ledger_name(name))


async def _close_topics(service: BrokerService, config: BrokerConfig) -> None:
    seconds = config.brokerShutdownTimeoutMs / 1000
    with trio.move_on_after(seconds, shield=True) as scope:
        await service.close()
    if scope.cancelled_caught:
        log.error("topics were not closed in time, going on without them", seconds=seconds)


async def _shielded(close: Callable[[], Awaitable[None]]) -> None:
    with trio.CancelScope(shield=True):
        await close()


async def _open_store(
    nursery: trio.Nursery, config: BrokerConfig, data_directory: Path | None
) -> MetadataStore:
    if data_directory is None:
        from metadata.memory_store import MemoryStore

        return MemoryStore()
    from metadata.rocks_store import RocksStore
    from metadata.store import MetadataUnavailable

    # New metadata beside a bookie with data would make all of that data garbage.
    may_create = not _bookie_has_data(bookie_config(config, data_directory))
    try:
        store = await RocksStore.open(data_directory / METADATA, may_create=may_create)
    except MetadataUnavailable as error:
        raise StartError(str(error)) from error
    nursery.start_soon(store.run)
    return store


async def _open_bookie(
    config: BrokerConfig,
    data_directory: Path | None,
    live_ledgers: Callable[[], Awaitable[set[int]]],
) -> Bookie:
    if data_directory is None:
        from bookie.index_memory import MemoryIndex
        from bookie.memory_disk import MemoryDisk

        return await Bookie.open(
            BookieConfig.in_memory(), MemoryDisk(), open_index=lambda _path: MemoryIndex()
        )
    try:
        return await Bookie.open(bookie_config(config, data_directory), live_ledgers=live_ledgers)
    except OSError as error:
        raise StartError(f"cannot open the bookie's storage: {error}") from error


async def _refuse_lost_bookie(
    config: BrokerConfig, data_directory: Path, ledgers: LedgerClient
) -> None:
    """A new bookie would say of every ledger that it was never written.

    Raises: StartError.
    """
    bookie = bookie_config(config, data_directory)
    if _bookie_has_data(bookie):
        return
    known = await ledgers.live_ledgers()
    if known:
        raise StartError(
            f"{', '.join(bookie.ledgerDirectories)}: no data of a bookie, but "
            f"{data_directory / METADATA} names {len(known)} ledgers. Mount the lost directories "
            "again, or restore them and the metadata directory from one backup. To begin without "
            "any data, move the metadata directory away, too"
        )


async def _refuse_older_metadata(
    data_directory: Path, ledgers: LedgerClient, bookie: Bookie
) -> None:
    """Garbage collection would delete all ledgers that are newer than the metadata.

    Raises: StartError.
    """
    newer = await ledgers.unknown_ledgers(bookie.ledger_ids())
    if newer:
        raise StartError(
            f"{data_directory / METADATA} is older than the bookie's directories, or the end of "
            f"its write-ahead log is lost: it does not know ledger {newer[0]} and "
            f"{len(newer) - 1} later ones. Restore the metadata directory and the bookie's "
            "directories from one backup"
        )


def _bookie_has_data(config: BookieConfig) -> bool:
    return any(os.path.exists(f"{name}/current/{COOKIE}") for name in config.ledgerDirectories)


def bookie_config(config: BrokerConfig, data_directory: Path) -> BookieConfig:
    """The embedded bookie's configuration. Raises: StartError."""
    values = typed_values(config)
    shared = {field.name for field in fields(BookieConfig)} & values.keys()
    try:
        return BookieConfig(
            **{name: values[name] for name in shared}
            | {
                "journalDirectories": config.journalDirectories or (str(data_directory / JOURNAL),),
                "ledgerDirectories": config.ledgerDirectories or (str(data_directory / LEDGERS),),
            }
        )
    except ValueError as error:
        raise StartError(str(error)) from error


def _ledger_client_config(config: BrokerConfig) -> LedgerClientConfig:
    return LedgerClientConfig(
        digest_type=_DIGEST_TYPES[config.managedLedgerDigestType],
        password=config.managedLedgerPassword.encode(),
    )


def _bind_http(host: str, port: int) -> socket.socket:
    """A listening socket. Raises: StartError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(HTTP_BACKLOG)
    except OSError as error:
        listening.close()
        raise StartError(_cannot_listen("webServicePort", host, port, error)) from error
    listening.setblocking(False)
    return listening


def _caller_rules(config: BrokerConfig) -> CallerRules:
    own = (config.bindAddress, config.advertisedAddress, socket.gethostname())
    return CallerRules(own, config.webServiceAllowedHosts)


async def _bind_broker(listener: BrokerListener, config: BrokerConfig) -> None:
    host, port = config.bindAddress, config.brokerServicePort
    try:
        await listener.bind(host, port)
    except OSError as error:
        raise StartError(_cannot_listen("brokerServicePort", host, port, error)) from error


async def _serve_bookie(
    front: trio.Nursery, bookie: Bookie, config: BrokerConfig
) -> BookieServer | None:
    """The running server of the bookie's reads; None: it is switched off."""
    if config.bookiePort < 0:
        return None
    server = BookieServer(
        ReadOnlyBookie(bookie),
        BookieServerConfig(
            frame_size_max=config.nettyMaxFrameSizeBytes,
            batch_read_bytes_max=config.maxBatchReadSize,
            connections_max=bookie_connections_max(config.bookieMaxConnections),
            reads_pending_max=or_no_limit(
                config.maxPendingReadRequestsPerThread * max(1, config.numReadWorkerThreads)
            ),
            # The other half is left for the broker's own reads of old entries.
            reads_at_once=max(1, config.numReadWorkerThreads // 2),
        ),
    )
    host, port = config.bindAddress, config.bookiePort
    try:
        await server.bind(host, port)
    except OSError as error:
        raise StartError(_cannot_listen("bookiePort", host, port, error)) from error
    await front.start(server.run)
    log.info("the bookie serves reads to other processes", address=host, port=server.port)
    return server


def _cannot_listen(key: str, host: str, port: int, error: OSError) -> str:
    reason = error.strerror or str(error)
    return f"cannot listen on {host}:{port} ({key}): {reason}"


def _url_host(host: str) -> str:
    return f"[{host}]" if ":" in host else host
