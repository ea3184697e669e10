"""Puts a broker together from the parts of a deployment, in order, and shuts it down.

Up: sockets bound -> HTTP answering 503 -> storage -> namespaces (`public/default` exists) -> broker
service -> owners of topics known -> binary protocol accepted (and reads of a bookie) -> topics may
be assigned to this broker -> HTTP answers. The broker is ready after the last step.

Down, in reverse: topics are handed to other brokers, no new connections are accepted, topics are
closed (pending publishes are answered, cursors written), sessions end, the storage is closed. The
order is the same after the bookie or the metadata store has failed (`outliving`).
"""

from __future__ import annotations

import socket
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

import structlog
import trio

from broker.assembly.authorization import authorizer_of, start_enforcement
from broker.assembly.change_events import start_policy_log
from broker.assembly.followers import start_followers
from broker.assembly.listening import Ports, http_limits_from, url_host
from broker.assembly.outliving import outliving
from broker.assembly.parts import Served, StartError
from broker.doors.pulsar.authenticating import Authenticating
from broker.doors.pulsar.door import PulsarDoor
from broker.doors.pulsar.table import BrokerCommands
from broker.ground.turn import Turns
from broker.http.context import AdminContext
from broker.http.front import AdminFront, serve_http
from broker.http.metrics.exposition import MetricsSource
from broker.net.listener import BrokerListener
from broker.tenancy.namespaces.namespaces import Namespaces
from broker.tenancy.schemas.conversion import SchemaConversion
from broker.tenancy.schemas.registry import SchemaRegistry
from broker.topics.broadcast.selection import BroadcastKind
from broker.topics.broadcast.window_memory import WindowMemory
from broker.topics.service import BrokerService
from broker.topics.subscription.factory import SubscriptionKinds
from broker.topics.subscription.stock import STOCK
from broker.topics.topic.stock_parts import stock_parts
from runtime.clock import SystemClock
from runtime.readers import Readers
from runtime.rounds import heavy_rounds
from runtime.watchdog import watchdog_of_loop
from security.authentication.identity import ProviderRefused
from web.callers import CallerRules

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bookie.bookie import Bookie
    from broker.assembly.parts import BookiePorts, Deployment, Owners, Storage
    from broker.ground.config import BrokerConfig
    from broker.http.front import Application
    from broker.peers.broker_address import BrokerAddress
    from broker.tenancy.authorization.authorizer import Authorizer
    from broker.topics.topic.parts import PartKind
    from runtime.clock import Clock
    from security.authentication.service import Authentication

log = structlog.get_logger()

PULSAR_VERSION: Final = "4.0.8"
"""The Pulsar version whose behaviour this broker has, as reported to clients."""


@final
@dataclass(frozen=True, slots=True)
class RunningBroker:
    """A broker that clients can use."""

    address: BrokerAddress
    service: BrokerService
    admin: AdminContext
    bookie: Bookie | None
    """The bookie of this process, if it has one."""
    bookie_address: str = ""
    """`host:port` where that bookie serves reads; empty: it does not."""

    @property
    def broker_service_url(self) -> str:
        """`pulsar://host:port`; empty: that port is off."""
        return self.address.broker_service_url

    @property
    def web_service_url(self) -> str:
        """`http://host:port`; empty: that port is off."""
        return self.address.web_service_url


@asynccontextmanager
async def assembled_broker(
    config: BrokerConfig, deployment: Deployment, part_kinds: tuple[PartKind[Any], ...] = ()
) -> AsyncIterator[RunningBroker]:
    """A ready broker for the duration of the block. `part_kinds`: of parts that topics have beside
    the stock ones, and whose messages deduplication sees after them.

    Raises: StartError, bookie.errors.StorageError, MetadataUnavailable.
    """
    async with AsyncExitStack() as stack:
        clock = SystemClock()
        authentication = _authentication(config, clock)
        ports = Ports(config)
        doors = await ports.bind_web(stack)
        front_page = _admin_front(config, authentication)
        nursery = await stack.enter_async_context(trio.open_nursery())
        stack.callback(nursery.cancel_scope.cancel)
        http_stop = trio.Event()
        limits = http_limits_from(config)
        await nursery.start(serve_http, front_page, limits, doors, http_stop)
        ports.start(nursery)

        turns, readers = _turns_and_readers()
        storage = await deployment.open_storage(stack, nursery, turns, readers, clock)
        turns.kick_storage = storage.kick
        schemas = SchemaRegistry(storage.store, storage.ledgers, clock, config)
        conversion = SchemaConversion(storage.store, schemas.ledgers)
        await conversion.run()
        service = _service_over(storage, config, schemas, turns, clock, part_kinds)
        authorizer = authorizer_of(config, storage.store, service.namespaces)
        commands = _commands(service, config, authentication, authorizer)
        listener = _listener(service, config, commands, readers)
        stack.callback(listener.stop_accepting)
        await ports.bind_broker(listener)
        address = ports.address
        served = Served(
            config=config,
            address=address,
            storage=storage,
            service=service,
            clock=clock,
            version=PULSAR_VERSION,
            authentication=authentication,
            authorizer=authorizer,
        )
        owners = deployment.owners(served)
        service.ownership = owners.ownership
        await owners.prepare()
        front = await stack.enter_async_context(outliving(nursery))
        await front.start(service.run)
        await start_policy_log(front, service, storage.broker_client)
        await front.start(conversion.finish)
        await front.start(owners.run)
        await start_enforcement(front, authorizer, service, storage.shadows.followed)
        await front.start(listener.run)
        reads = await deployment.open_bookie_ports(front, storage, url_host(config.advertised_host))
        metrics = _metrics_of(service, config, storage, reads, ports, authentication)
        await front.start(metrics.run)
        admin = _admin_over(config, address, storage, service, owners, reads, metrics)
        admin.decisions = authorizer
        await start_followers(front, storage.store, admin)
        await owners.wait_joined()
        front_page.context = admin
        try:
            yield RunningBroker(address, service, admin, storage.bookie, reads.own)
        finally:
            await _close_topics(service, owners, config, http_stop, listener)


def _turns_and_readers() -> tuple[Turns, Readers]:
    turns, readers = Turns(), Readers()
    turns.call_in_turns = readers.call_in_turns
    turns.has_steps = readers.has_steps
    turns.on_published = heavy_rounds().published
    return turns, readers


def _service_over(
    storage: Storage,
    config: BrokerConfig,
    schemas: SchemaRegistry,
    turns: Turns,
    clock: Clock,
    part_kinds: tuple[PartKind[Any], ...],
) -> BrokerService:
    return BrokerService(
        config=config,
        store=storage.store,
        factory=storage.factory,
        namespaces=Namespaces(storage.store, config),
        schemas=schemas,
        subscription_kinds=SubscriptionKinds(
            BroadcastKind(WindowMemory(config.managedLedgerCacheSizeMB << 20)), STOCK
        ),
        part_kinds=(*part_kinds, *stock_parts(config, clock)),
        turns=turns,
        clock=clock,
    )


def _metrics_of(
    service: BrokerService,
    config: BrokerConfig,
    storage: Storage,
    reads: BookiePorts,
    ports: Ports,
    authentication: Authentication | None,
) -> MetricsSource:
    counts = None if authentication is None else authentication.counts
    return MetricsSource(
        config,
        service,
        storage.bookie,
        PULSAR_VERSION,
        reads.server,
        ports.handshakes,
        counts,
        watchdog_of_loop(),
    )


def _admin_over(
    config: BrokerConfig,
    address: BrokerAddress,
    storage: Storage,
    service: BrokerService,
    owners: Owners,
    reads: BookiePorts,
    metrics: MetricsSource,
) -> AdminContext:
    return AdminContext(
        config=config,
        file_config=config,
        clock=service.clock,
        store=storage.store,
        namespaces=service.namespaces,
        schemas=service.schemas,
        ledgers=storage.ledgers,
        service=service,
        health=storage.health,
        bookie_addresses=reads.addresses,
        metrics=metrics,
        address=address,
        metadata_url=storage.metadata_url,
        version=PULSAR_VERSION,
        cluster=owners.cluster,
        use_for_owners=owners.use,
        shadows=storage.shadows,
    )


async def _close_topics(
    service: BrokerService,
    owners: Owners,
    config: BrokerConfig,
    http_stop: trio.Event,
    listener: BrokerListener,
) -> None:
    """Hand topics over, close the ports, then close what is left."""
    service.namespaces.policy_log.stop()
    seconds = config.brokerShutdownTimeoutMs / 1000
    with trio.move_on_after(seconds, shield=True) as scope:
        await owners.leave()
        http_stop.set()
        listener.stop_accepting()
        await service.close()
    if scope.cancelled_caught:
        http_stop.set()
        listener.stop_accepting()
        log.error("topics were not closed in time, going on without them", seconds=seconds)


def _authentication(config: BrokerConfig, clock: Clock) -> Authentication | None:
    """None: every client is served. Raises: StartError."""
    if not config.authenticationEnabled:
        return None
    # Load libraries of which a broker without authentication has no use.
    from broker.assembly.issuers import fetch_from_issuers
    from security.authentication.providers import authentication_of

    try:
        return authentication_of(
            config, fetch_from_issuers(config), lambda: clock.wall_ms() / 1000, clock.now
        )
    except ProviderRefused as error:
        raise StartError(str(error)) from error


def _admin_front(config: BrokerConfig, authentication: Authentication | None) -> AdminFront:
    def load() -> Application:
        from broker.http.router import Router
        from broker.http.routes import all_routes
        from broker.http.server import AdminApplication, open_paths

        rules = _caller_rules(config)
        return AdminApplication(Router(all_routes()), rules, authentication, open_paths(config))

    return AdminFront(load)


def _listener(
    service: BrokerService, config: BrokerConfig, commands: BrokerCommands, readers: Readers
) -> BrokerListener:
    bound = config.maxHttpServerConnections
    return BrokerListener(service.connections, PulsarDoor(commands), readers, bound)


def _commands(
    service: BrokerService,
    config: BrokerConfig,
    authentication: Authentication | None,
    authorizer: Authorizer | None,
) -> BrokerCommands:
    if authentication is None:
        return BrokerCommands(service)
    authenticating = Authenticating(
        authentication, config, checks_proxies=config.authorizationEnabled
    )
    return BrokerCommands(service, authenticating, authorizer)


def _caller_rules(config: BrokerConfig) -> CallerRules:
    own = (config.bindAddress, config.advertisedAddress, socket.gethostname())
    return CallerRules(own, config.webServiceAllowedHosts)
