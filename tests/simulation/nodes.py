"""Bookies and brokers as processes of simulated machines, put together from production classes."""

from __future__ import annotations

from dataclasses import replace

import trio

from bookie.bookie import Bookie
from bookie.config import BookieConfig
from bookie.errors import StorageError
from bookie.net.server import BookieServer, BookieServerConfig
from bookie.process.cluster import StoredCookies, require_cluster
from bookie.process.registration import Endpoint, Registration
from bookie.testing.sim_disk import Power, SimDisk
from bookie.testing.sim_index import SimIndexes
from broker.cluster.cluster import ClusterOwnership
from broker.cluster.config import ClusterConfig
from broker.cluster.load import Resources
from broker.cluster.records import BundleLoad
from broker.doors.pulsar.door import PulsarDoor
from broker.doors.pulsar.table import BrokerCommands
from broker.ground.config import BrokerConfig
from broker.ground.refusal import Refusal
from broker.ground.turn import Turns
from broker.managed_ledger.config import ManagedLedgerConfig
from broker.managed_ledger.factory import ManagedLedgerFactory
from broker.managed_ledger.orphans import OrphanCollector
from broker.net.listener import BrokerListener
from broker.peers.broker_address import BrokerAddress
from broker.tenancy.namespaces.namespaces import Namespaces
from broker.tenancy.schemas.registry import SchemaRegistry
from broker.topics.broadcast.selection import BroadcastKind
from broker.topics.broadcast.window_memory import WindowMemory
from broker.topics.service import BrokerService
from broker.topics.subscription.factory import SubscriptionKinds
from broker.topics.subscription.stock import STOCK
from broker.topics.topic.stock_parts import stock_parts
from ledgers.client import LedgerClient, LedgerClientConfig
from ledgers.quarantine import QuarantineRules
from ledgers.remote.bookie_pool import BookiePool
from ledgers.remote.config import RemoteConfig
from ledgers.speculation import SpeculationRules
from metadata.store import MetadataUnavailable
from protocol.errors import BrokerError
from protocol.topic_name import TopicName
from runtime.readers import Readers
from runtime.transport import StreamTransports
from tests.simulation.coordination import SESSION_SECONDS, SessionStore
from tests.simulation.network import Listener
from tests.simulation.world import SimClock, current_host, is_process_alive, trace

BOOKIE_PORT = 3181
BROKER_PORT = 6650
START_AGAIN_SECONDS = 1.0
BUNDLES = 4

JOURNAL = "/journal"
LEDGERS = "/ledgers"

BOOKIE = BookieConfig(
    journalDirectories=(JOURNAL,),
    ledgerDirectories=(LEDGERS,),
    dbStorage_writeCacheMaxSizeMb=1,
    journalPreAllocSizeMB=0,
    journalAlignmentSize=512,
    journalMaxSizeMB=1,
    journalMaxBackups=0,
    logSizeLimit=64 << 10,
    flushInterval=5_000,
    gcWaitTime=10_000,
    minorCompactionInterval=20,
    majorCompactionInterval=40,
    compactionRateByEntries=10_000_000,
    diskCheckInterval=1_000,
    minUsableSizeForHighPriorityWrites=16 << 10,
    dbStorage_maxThrottleTimeMs=1_000,
)
REMOTE = RemoteConfig(
    channels=2,
    add_timeout_s=2.0,
    read_timeout_s=2.0,
    connect_timeout_s=1.0,
    back_off_first_s=0.1,
    back_off_max_s=1.0,
)
QUARANTINE = QuarantineRules(failures=5, interval_s=10.0, quarantine_s=5.0)
CLUSTER = ClusterConfig(
    metadataStoreSessionTimeoutMillis=int(SESSION_SECONDS * 1000),
    namespaceBundleUnloadingTimeoutMs=3_000,
    loadBalancerReportUpdateMinIntervalMillis=5_000,
    loadBalancerSheddingEnabled=False,
    loadBalancerAutoBundleSplitEnabled=False,
)


class Node:
    """A process that faults end and start, and that starts again when it has failed."""

    def __init__(self, cluster, name):
        self.cluster = cluster
        self.world = cluster.world
        self.name = name
        self.host = cluster.network.host(name)
        self.rng = cluster.world.chance(f"node {name}")
        self.clock = SimClock()
        self.store = None
        self.nursery = None
        """Of the process that runs now."""
        self.is_wanted = False
        self._stopped = trio.Event()
        """For the process that was started last, and all that follow it after failures."""
        self.starts = 0
        self._scope = trio.CancelScope()
        self._ended = trio.Event()
        self._ended.set()

    def start(self):
        """Start the process, and start it again when it fails."""
        if not self.is_wanted:
            self.is_wanted = True
            self._stopped = trio.Event()
            self.cluster.nursery.start_soon(self._keep_running, self._stopped)

    async def stop(self, *, is_silent=False):
        """End the process at once."""
        self.is_wanted = False
        self._stopped.set()
        trace(f"{self.name} crashes{' with its machine' if is_silent else ''}")
        self.host.crash(is_silent=is_silent)
        self.power_off(is_silent=is_silent)
        if self.store is not None:
            self.store.kill()
        self._scope.cancel()
        await self._ended.wait()

    async def do(self, act, *arguments):
        """Let the process do something that a user asked for. Return when that is done or refused,
        or when the process has ended."""
        done = trio.Event()

        async def inside():
            try:
                await act(*arguments)
            except (BrokerError, Refusal, MetadataUnavailable) as refused:
                trace(f"{self.name} refuses: {refused}")
            finally:
                done.set()

        self.nursery.start_soon(inside)
        await done.wait()

    def power_off(self, *, is_silent):
        """The process, or the machine, is gone."""

    async def _keep_running(self, stopped):
        """Until `stopped`, also if it has been started again meanwhile."""
        await self._ended.wait()
        self._ended = trio.Event()
        current_host.set(self.host)
        try:
            while not stopped.is_set():
                await self._run_once()
                with trio.move_on_after(START_AGAIN_SECONDS):
                    await stopped.wait()
        finally:
            self._ended.set()

    async def _run_once(self):
        self.starts += 1
        self.host.start()
        trace(f"{self.name} starts")
        with trio.CancelScope() as self._scope:
            try:
                async with trio.open_nursery() as nursery:
                    self.nursery = nursery
                    self.store = SessionStore(self.cluster.service, self.host, self.rng)
                    await self.serve(nursery)
            except* (StorageError, MetadataUnavailable, BrokerError) as failed:
                trace(f"{self.name} ends: {failed.exceptions}")
            except* Exception as failed:
                if self.is_wanted:
                    self.cluster.fail(f"{self.name} ends: {failed!r}", failed)
        self.store.kill()
        self.nursery = None
        if self.is_wanted:
            self.host.crash()
            self.power_off(is_silent=False)

    async def serve(self, nursery):
        """Run until cancelled or failed."""
        raise NotImplementedError


class BookieNode(Node):
    """A bookie on a disk that can fail."""

    def __init__(self, cluster, name):
        super().__init__(cluster, name)
        self.power = Power()
        self.disk = SimDisk(self.power)
        self.indexes = SimIndexes(self.power)
        self.bookie = None

    @property
    def bookie_id(self):
        return f"{self.name}:{BOOKIE_PORT}"

    @property
    def is_up(self):
        """Whether it has taken its directories for its own."""
        return self.bookie is not None

    def lose_directories(self, prefixes):
        """The machine finds nothing below these paths. The result brings it back."""
        kept = self.disk, self.indexes, self.power
        power = Power()
        self.disk, self.indexes = self.disk.restart(self.rng, power), SimIndexes(power)
        if LEDGERS not in prefixes:
            self.indexes = kept[1].restart(self.rng, power)
        self.power = power
        for prefix in prefixes:
            self.disk.lose(prefix)

        def bring_back():
            self.disk, self.indexes, self.power = kept

        return bring_back

    def power_off(self, *, is_silent):
        """A process alone leaves what it wrote to the operating system; a machine does not, nor
        does one whose disk has failed."""
        if is_silent or self.power.is_off or self.disk.sync_fails:
            self.power.is_off = True
            power = Power()
            self.disk = self.disk.restart(self.rng, power)
            self.indexes = self.indexes.restart(self.rng, power)
            self.power = power
        if self.bookie is not None:
            # Nobody hears of this: whoever waits for the journal of this bookie is to end, too.
            self.bookie._adds.fail(StorageError("the process has ended"))
            self.bookie = None

    async def serve(self, nursery):
        start = self.starts
        is_process_alive.set(lambda: self.starts == start and not self.host.is_down)
        store = await self.store.open()
        nursery.start_soon(store.run)
        cluster = await require_cluster(store)
        self.bookie = bookie = await Bookie.open(
            replace(BOOKIE, bookieId=self.bookie_id),
            self.disk,
            open_index=self.indexes.open,
            cookie_store=StoredCookies(store),
            live_ledgers=cluster.live_ledgers,
            now_ms=self.clock.wall_ms,
        )
        bookie.set_live_ledgers(cluster.live_ledgers)
        await nursery.start(bookie.run)
        server = BookieServer(
            bookie, BookieServerConfig(send_timeout_seconds=5.0), StreamTransports()
        )
        server.turns.kick_storage = bookie.kick
        bookie.set_turn(server.turns)
        server.listen_on([Listener(self.host, BOOKIE_PORT)])
        await nursery.start(server.run)
        endpoints = [Endpoint("bookie", "bookie-rpc", self.name, BOOKIE_PORT)]
        registration = Registration(
            store, self.bookie_id, endpoints, bookie.is_writable, cluster.check
        )
        bookie.watch_writable(registration.changed)
        await registration.register(3 * SESSION_SECONDS)
        await registration.run()


class BrokerNode(Node):
    """A broker of the cluster."""

    def __init__(self, cluster, name):
        super().__init__(cluster, name)
        self.service = None
        self.ownership = None

    def serves(self, topic):
        """Whether it serves the topic, as far as it knows."""
        return self.ownership is not None and self.ownership.serves(topic)

    def power_off(self, *, is_silent):
        del is_silent
        self.service = self.ownership = None

    async def leave(self):
        """Hand everything over, as on SIGTERM, and end."""
        service, ownership = self.service, self.ownership
        if ownership is not None:

            async def hand_over():
                await ownership.leave()
                await service.close()

            with trio.move_on_after(8):
                await self.do(hand_over)
        await self.stop()

    async def serve(self, nursery):
        store = await self.store.open()
        nursery.start_soon(store.run)
        settings, clock = self.cluster.settings, self.clock
        config = settings.broker
        turns = Turns()
        pool = BookiePool(
            store,
            turns,
            REMOTE,
            quarantine=QUARANTINE,
            connect=self.host.connector(),
            order=self.rng,
        )
        await nursery.start(pool.run)
        ledgers = LedgerClient(store, pool.bookies, settings.ledgers, clock, pool)
        factory = ManagedLedgerFactory(store, ledgers, settings.managed_ledgers, clock)
        await nursery.start(factory.run)
        turns.kick_storage = pool.kick
        service = BrokerService(
            config=config,
            store=store,
            factory=factory,
            namespaces=Namespaces(store, config),
            schemas=SchemaRegistry(store, ledgers, clock, config),
            subscription_kinds=SubscriptionKinds(BroadcastKind(WindowMemory(64 << 20)), STOCK),
            part_kinds=stock_parts(config, clock),
            turns=turns,
            clock=clock,
        )
        door = PulsarDoor(BrokerCommands(service))
        listener = BrokerListener(service.connections, door, Readers(), 0)
        address = BrokerAddress(f"pulsar://{self.name}:{BROKER_PORT}", f"http://{self.name}:8080")
        ownership = ClusterOwnership(
            store,
            service.namespaces,
            address,
            config=CLUSTER,
            clock=clock,
            process_name=f"{self.name}-{self.starts}",
            topics=service,
            load=_Load(service),
            version="4.0.8",
        )
        service.ownership = ownership
        self.service, self.ownership = service, ownership
        await nursery.start(service.run)

        def accept(socket):
            nursery.start_soon(listener.serve, socket, socket.peer.rpartition(":")[0])

        self.host.listeners[BROKER_PORT] = accept
        await nursery.start(ownership.run)
        collector = OrphanCollector(
            store,
            ledgers,
            factory.ledgers,
            lambda name: ownership.serves(TopicName.from_managed_ledger_name(name)),
        )
        nursery.start_soon(collector.run)
        await trio.sleep_forever()


class _Load:
    """The load of a broker: its topics count, and nothing else."""

    def __init__(self, service):
        self._service = service

    def resources(self):
        return Resources()

    def topics(self):
        return [(topic.name, BundleLoad(topics=1)) for topic in self._service.topics.values()]


class Settings:
    """What the processes of one run are configured with, drawn from the seed."""

    QUORUMS = ((3, 2, 2), (3, 2, 2), (3, 3, 2), (2, 2, 2), (3, 3, 2), (2, 2, 1))

    def __init__(self, rng):
        self.has_deduplication = rng.random() < 0.3
        self.has_spare_bookie = rng.random() < 0.3
        """A fourth one: an ensemble of three can be changed then."""
        ensemble, write, ack = rng.choice(self.QUORUMS)
        self.ledgers = LedgerClientConfig(
            ensemble_size=ensemble,
            write_quorum_size=write,
            ack_quorum_size=ack,
            request_timeout_s=2.0,
            delay_ensemble_change=rng.random() < 0.3,
        )
        self.broker = BrokerConfig(
            clusterName="simulated",
            keepAliveIntervalSeconds=15,
            connectionLivenessCheckTimeoutMillis=1_000,
            topicLoadTimeoutSeconds=10,
            defaultNumberOfNamespaceBundles=BUNDLES,
            managedLedgerDefaultEnsembleSize=ensemble,
            managedLedgerDefaultWriteQuorum=write,
            managedLedgerDefaultAckQuorum=ack,
            managedLedgerDefaultMarkDeleteRateLimit=2.0,
            brokerDeduplicationEnabled=self.has_deduplication,
            brokerDeduplicationEntriesInterval=100,
            defaultRetentionTimeInMinutes=-1 if rng.random() < 0.5 else 0,
            defaultRetentionSizeInMB=-1,
            brokerDeleteInactiveTopicsEnabled=False,
        )
        self.managed_ledgers = ManagedLedgerConfig(
            max_entries_per_ledger=rng.choice((30, 100, 400)),
            min_rollover_time_s=1.0,
            retention_check_interval_s=5.0,
            cursor_max_entries_per_ledger=rng.choice((5, 50)),
            cache_eviction_time_s=rng.choice((0.1, 2.0)),
            cache_eviction_interval_s=0.5,
            max_ranges_in_metadata_store=rng.choice((3, 1_000)),
            broken_delay_max_s=1.0,
        )
        if rng.random() < 0.5:
            self.ledgers = replace(self.ledgers, speculation=SpeculationRules.every(0.2))
        if rng.random() < 0.3:
            self.ledgers = replace(self.ledgers, explicit_lac_interval_s=0.5)
