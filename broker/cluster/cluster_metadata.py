"""The metadata of a new cluster, as `bin/pulsar initialize-cluster-metadata` of 4.0.8 makes it.

In the metadata store of the cluster: the ledgers' part and the rack map. In the configuration
store, which clusters may share: the record of the cluster, `global`, the tenants `public` and
`pulsar` with a namespace each, and the partitions of the transaction coordinator's topic. What is
there stays; a second cluster is added to the tenants and namespaces, as Pulsar does. So a run that
was interrupted is completed by the next one.

The nodes of BookKeeper's stream storage (`/stream`, `/pulsar/functions`) are left out: functions
make theirs by themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from bookie.process.cluster import initialize_ledgers, require_cluster
from broker.ground.config import BrokerConfig
from broker.tenancy.namespaces.json_nodes import change_json, create_json, read_json
from broker.tenancy.namespaces.names import (
    CLUSTERS_PATH,
    partitioned_topics_path,
    policies_path,
    tenant_path,
)
from broker.tenancy.namespaces.tenants import GLOBAL_CLUSTER
from broker.tenancy.policies.record import Policies
from ledgers.placement import RACKS_PATH
from metadata.store import MUST_NOT_EXIST, VersionConflict
from protocol.topic_name import is_entity_name

if TYPE_CHECKING:
    from metadata.store import MetadataStore

Json = dict[str, Any]

DEFAULT_NAMESPACES: Final = ("public/default", "pulsar/system")
COORDINATOR_NAMESPACE: Final = "pulsar/system"
COORDINATOR_TOPIC: Final = "transaction_coordinator_assign"
NAMED_MAX: Final = 5
_CLUSTER_DEFAULTS: Final[Json] = {
    "brokerClientTlsEnabled": False,
    "tlsAllowInsecureConnection": False,
    "brokerClientTlsEnabledWithKeyStore": False,
    "brokerClientTlsTrustStoreType": "JKS",
    "brokerClientTlsKeyStoreType": "JKS",
    "brokerClientSslFactoryPlugin": "org.apache.pulsar.common.util.DefaultPulsarSslFactory",
}
"""Pulsar's ClusterData with nothing set."""


class WrongCluster(Exception):
    """The stores hold something else. The text says what, and what to do."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class NewCluster:
    """The arguments of the command."""

    name: str
    data: Json
    """Addresses, by the names of Pulsar's ClusterData."""
    bundles: int = 16
    coordinators: int = 16


def check_name(name: str) -> None:
    """Raises: WrongCluster."""
    if not is_entity_name(name) or name == GLOBAL_CLUSTER:
        raise WrongCluster(
            f"{name!r} cannot be the name of a cluster: letters, digits, and - = : . _ only, and "
            f"not {GLOBAL_CLUSTER!r}"
        )


@final
class Initialization:
    """Makes what is missing, and counts it."""

    def __init__(self, cluster: NewCluster) -> None:
        self._cluster = cluster
        self.made = 0

    async def check(self, local: MetadataStore, configuration: MetadataStore) -> None:
        """Raises: WrongCluster, MetadataUnavailable."""
        name = self._cluster.name
        check_name(name)
        others = [each for each in await local.children(CLUSTERS_PATH) if each != GLOBAL_CLUSTER]
        if others and name not in others:
            named = ", ".join(others[:NAMED_MAX])
            raise WrongCluster(
                f"the metadata store is that of another cluster ({named}): give cluster {name} a "
                "store, or a path of one, of its own. Several clusters can share the configuration "
                "store only (--configuration-metadata-store)"
            )
        found = await read_json(configuration, f"{CLUSTERS_PATH}/{name}")
        for key, value in self._cluster.data.items():
            if found is not None and found.get(key) != value:
                raise WrongCluster(
                    f"cluster {name} is there with {key}={found.get(key)!r}, not {value!r}: change "
                    "it with `pulsar-admin clusters update`, or give the present value"
                )

    async def make_ledgers(self, local: MetadataStore) -> None:
        """The part of bookies. Raises: BookieRefusesToStart: its layout is not known here.
        MetadataUnavailable."""
        self.made += await initialize_ledgers(local)
        await require_cluster(local)

    async def make_local(self, local: MetadataStore) -> None:
        """The rest of what the cluster has for itself. Raises: MetadataUnavailable."""
        try:
            await local.put(RACKS_PATH, b"{}", MUST_NOT_EXIST)
        except VersionConflict:
            return
        self.made += 1

    async def make_configuration(self, store: MetadataStore) -> None:
        """Make the records that clusters may share. Raises: MetadataUnavailable."""
        cluster = self._cluster
        await self._create(store, f"{CLUSTERS_PATH}/{GLOBAL_CLUSTER}", _CLUSTER_DEFAULTS)
        for namespace in DEFAULT_NAMESPACES:
            await self._make_namespace(store, namespace)
        if cluster.coordinators:
            topics = partitioned_topics_path(COORDINATOR_NAMESPACE, "persistent")
            record = {"partitions": cluster.coordinators, "deleted": False}
            await self._create(store, f"{topics}/{COORDINATOR_TOPIC}", record)
        # The last one: a broker starts when it finds the record of its cluster.
        data = {**_CLUSTER_DEFAULTS, **cluster.data}
        await self._create(store, f"{CLUSTERS_PATH}/{cluster.name}", data)

    async def _make_namespace(self, store: MetadataStore, namespace: str) -> None:
        cluster = self._cluster
        tenant = namespace.partition("/")[0]
        allowed = {"allowedClusters": [cluster.name], "adminRoles": []}
        if not await self._create(store, tenant_path(tenant), allowed):
            await self._add(store, tenant_path(tenant), "allowedClusters")
        config = BrokerConfig(
            clusterName=cluster.name, defaultNumberOfNamespaceBundles=cluster.bundles
        )
        fresh = Policies.fresh(None, config).fields
        # A field that Pulsar's brokers set when they make a namespace, and its command does not.
        policies = {key: fresh[key] for key in fresh if key != "is_allow_auto_update_schema"}
        if not await self._create(store, policies_path(namespace), policies):
            await self._add(store, policies_path(namespace), "replication_clusters")

    async def _create(self, store: MetadataStore, path: str, value: Json) -> bool:
        was_made = await create_json(store, path, value)
        self.made += was_made
        return was_made

    async def _add(self, store: MetadataStore, path: str, key: str) -> None:
        """Add the cluster to a list of them."""
        name = self._cluster.name

        def add(value: Json) -> Json | None:
            clusters = value.get(key) or []
            if name in clusters:
                return None
            self.made += 1
            # Of a namespace of several clusters none may delete it by itself.
            kept = {each: value[each] for each in value if each != "clusterThatCanDeleteNamespace"}
            return {**kept, key: [*clusters, name]}

        await change_json(store, path, add)
