"""A broker of a cluster: metadata in a store that it shares with others, ledgers on bookies that
are other processes, topics shared by ownership of bundles.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, final

import trio

from autorecovery.damage_reports import DamageReports
from autorecovery.marks import Marks
from bookie.errors import BookieRefusesToStart
from bookie.process.cluster import require_cluster
from bookie.process.joining import refuse_part_of_copy
from broker.assembly.among_brokers import OwnRole, broker_client_of
from broker.assembly.authorization import EverybodyMay
from broker.assembly.bookie_shortage import BookieShortage, tell_arrivals, tell_shortages
from broker.assembly.bookie_tls import secured
from broker.assembly.outliving import outliving
from broker.assembly.parts import BookiePorts, StartError, Storage, shielded
from broker.assembly.process_load import ProcessLoad
from broker.cluster.balancer import Balancer
from broker.cluster.cluster import ClusterOwnership
from broker.cluster.config import ClusterConfig
from broker.cluster.group_usage import GroupUsage
from broker.cluster.health_check import HealthCheck
from broker.cluster.records import BROKERS_PATH, LOAD_MANAGER, BrokerReport
from broker.managed_ledger.config import ManagedLedgerConfig
from broker.managed_ledger.factory import ManagedLedgerFactory
from broker.peers.owner_search import OwnerSearch
from broker.tenancy.namespaces.tenants import Clusters
from broker.tenancy.policies.persistence import persistence_of
from broker.topics.follow.following_factory import FollowingFactory
from broker.topics.follow.records_read import RecordsRead
from ledgers.client import LedgerClient
from ledgers.remote.bookie_pool import BookiePool
from protocol.bookkeeper.addresses import is_path
from protocol.bookkeeper.paths import INSTANCE_ID_PATH

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import AsyncExitStack

    from broker.assembly.cluster_config import ClusterBrokerConfig
    from broker.assembly.parts import Served
    from broker.ground.config import BrokerConfig
    from broker.ground.turn import Turns
    from broker.peers.broker_client import BrokerClient
    from metadata.store import MetadataStore
    from runtime.clock import Clock
    from runtime.readers import Readers

_CLUSTERS_NAMED_MAX: Final = 5


@final
class Replicated:
    """The Deployment of a broker of a cluster."""

    def __init__(
        self,
        config: ClusterBrokerConfig,
        open_store: Callable[[trio.Nursery], Awaitable[MetadataStore]],
        metadata_url: str,
    ) -> None:
        """`open_store` may start tasks of the store in the nursery. `metadata_url`: where other
        processes find the store. Raises: StartError: other brokers or bookies cannot be reached
        with this configuration."""
        self._config = config
        self._client = broker_client_of(config)
        self._secured = secured(config)
        self._open_store = open_store
        self._metadata_url = metadata_url
        self._pool: BookiePool | None = None
        self._following: FollowingFactory | None = None

    async def open_storage(
        self,
        stack: AsyncExitStack,
        nursery: trio.Nursery,
        turns: Turns,
        readers: Readers,
        clock: Clock,
    ) -> Storage:
        """See Deployment."""
        config = self._config
        store = await self._open_store(nursery)
        stack.push_async_callback(shielded, store.aclose)
        await refuse_other_clusters(store, config.clusterName)
        await refuse_other_load_managers(store)
        pool = BookiePool(
            store,
            turns,
            config.bookies(),
            config.placement(),
            config.quarantine(),
            secured=self._secured,
        )
        await nursery.start(pool.run)
        self._pool = pool
        shortage = BookieShortage(persistence_of(config).ensemble_size)
        nursery.start_soon(tell_shortages, pool, shortage)
        reports = DamageReports(Marks(store, "broker"))
        nursery.start_soon(reports.run)
        ledgers = LedgerClient(
            store, pool.bookies, config.ledgers(), clock, pool, on_damage=reports.report
        )
        managed = ManagedLedgerConfig.from_broker_config(config)
        records = RecordsRead(store)
        factory = ManagedLedgerFactory(records, ledgers, managed, clock, session=store)
        nursery.start_soon(tell_arrivals, pool, factory.bookies_joined)
        following = FollowingFactory(store, ledgers, managed, clock, factory, records)
        self._following = following
        background = await stack.enter_async_context(outliving(nursery))
        await background.start(factory.run)
        await background.start(following.run)
        return Storage(
            store=store,
            ledgers=ledgers,
            factory=following,
            health=_BookiesHealth(pool, shortage),
            kick=pool.kick,
            metadata_url=self._metadata_url,
            shadows=following,
            broker_client=self._client,
        )

    def owners(self, broker: Served) -> ClusterMember:
        """See Deployment."""
        client = self._client
        member = ClusterMember(broker, self._config, client)
        assert self._following is not None
        search = OwnerSearch(member.ownership, client)
        rights = broker.authorizer or EverybodyMay()
        self._following.begin(search, broker.service.unload_topic, rights)
        return member

    async def open_bookie_ports(
        self, front: trio.Nursery, storage: Storage, host: str
    ) -> BookiePorts:
        """See Deployment. The bookies have ports of their own."""
        del front, storage, host
        await trio.lowlevel.checkpoint()
        assert self._pool is not None
        return BookiePorts(_Addresses(self._pool))


@final
class ClusterMember:
    """The Owners of a broker that shares topics with others."""

    def __init__(self, broker: Served, config: ClusterBrokerConfig, client: BrokerClient) -> None:
        """`client`: how other brokers are reached."""
        self._namespaces = broker.service.namespaces
        self.ownership = self.cluster = ClusterOwnership(
            broker.storage.store,
            self._namespaces,
            broker.address,
            config=config,
            clock=broker.clock,
            process_name=uuid.uuid4().hex,
            topics=broker.service,
            load=ProcessLoad(broker.service, broker.clock),
            version=broker.version,
            health_check=HealthCheck(broker.storage.factory, broker.clock),
            client=client,
        )
        self._role = OwnRole(client, broker.authentication, config)
        self._is_settled = trio.Event()
        self._balancer = Balancer(broker.storage.store, self.ownership, broker.clock)
        budgets = broker.service.services.resource_groups
        self._usage = GroupUsage(broker.storage.store, broker.address.broker_id, budgets)

    async def prepare(self) -> None:
        """See Owners."""
        await self._namespaces.make_defaults()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """See Owners."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self.ownership.run)
            nursery.start_soon(self._balancer.run)
            nursery.start_soon(self._usage.run)
            nursery.start_soon(self._find_role)
            task_status.started()

    async def _find_role(self) -> None:
        """Called after the super users are known, which may change while brokers run."""
        await self._is_settled.wait()
        await self._role.find()

    def use(self, config: BrokerConfig) -> None:
        """See Owners."""
        assert isinstance(config, ClusterConfig), "the class that the broker was started with"
        self.ownership.in_force.use(config)
        self._role.use(config)

    async def wait_joined(self) -> None:
        """See Owners."""
        await self.ownership.wait_joined()
        self._is_settled.set()

    async def leave(self) -> None:
        """See Owners."""
        await self.ownership.leave()


async def refuse_other_clusters(store: MetadataStore, cluster: str) -> None:
    """Raises: StartError: the store has no bookies' metadata, or not those of this cluster, or a
    part of a copy, even if it was initialized besides. MetadataUnavailable."""
    if await store.get(INSTANCE_ID_PATH) is None:
        raise StartError(
            f"the metadata store has no {INSTANCE_ID_PATH}: it is not that of a cluster. Make one "
            "with `vela initialize-cluster-metadata` or `bin/pulsar initialize-cluster-metadata`, "
            "or correct metadataStoreUrl"
        )
    try:
        await require_cluster(store)
        await refuse_part_of_copy(store)
    except BookieRefusesToStart as error:
        raise StartError(str(error)) from error
    known = await Clusters(store).names()
    if cluster not in known:
        named = ", ".join(known[:_CLUSTERS_NAMED_MAX]) or "none"
        raise StartError(
            f"clusterName={cluster}: the metadata store was initialized for other clusters "
            f"({named}). Correct clusterName, or initialize the metadata of this cluster"
        )


async def refuse_other_load_managers(store: MetadataStore) -> None:
    """Pulsar's ExtensibleLoadManagerImpl keeps the owners of bundles in a topic. This broker would
    not see them, and would serve the same topics.

    Raises: StartError: a member of the cluster follows other rules. MetadataUnavailable.
    """
    for broker_id in await store.children(BROKERS_PATH):
        found = await store.get(f"{BROKERS_PATH}/{broker_id}")
        report = None if found is None else BrokerReport.parse(found[0])
        if report is not None and report.load_manager != LOAD_MANAGER:
            raise StartError(
                f"the broker {broker_id} of this cluster has loadManagerClassName="
                f"{report.load_manager}, and owns topics by other rules than this one. Stop the "
                f"brokers that have it, or have them use {LOAD_MANAGER}"
            )


@final
class _BookiesHealth:
    """The StorageHealth of bookies that are other processes."""

    failure = ""
    damage = ""

    def __init__(self, pool: BookiePool, shortage: BookieShortage) -> None:
        self._pool = pool
        self._shortage = shortage

    @property
    def unwritable(self) -> str:
        return self._shortage.reason(len(self._pool.writable))


@final
class _Addresses(Mapping[str, str]):
    """Where registered bookies are read, `host:port` by id. Those that listen at a path are left
    out: the reader is another user, or on another machine."""

    def __init__(self, pool: BookiePool) -> None:
        self._pool = pool

    def __getitem__(self, bookie_id: str) -> str:
        host, port = self._pool.addresses[bookie_id]
        if is_path(host):
            raise KeyError(bookie_id)
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def __iter__(self) -> Iterator[str]:
        addresses = self._pool.addresses
        return (each for each, (host, _) in addresses.items() if not is_path(host))

    def __len__(self) -> int:
        return sum(1 for _ in self)
