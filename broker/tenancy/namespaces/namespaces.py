"""Namespaces and the topics that exist in them: the first queries of lookups and clients.

A namespace is loaded on first use and then answered from memory (`loaded_namespaces`). Every write
goes to the store first. `existing_topics` says which topics exist.

Refusals are BrokerError for requests of the binary protocol and Refusal for administrative calls.
Rules and texts are as observed on Pulsar 4.0.8.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, final

from broker.ground.refusal import Refusal, conflict, not_found, precondition_failed
from broker.tenancy.namespaces.json_nodes import (
    change_json,
    create_json,
    read_json_version,
)
from broker.tenancy.namespaces.loaded_namespaces import LoadedNamespaces
from broker.tenancy.namespaces.names import local_policies_path, policies_path, tenant_path
from broker.tenancy.namespaces.resource_groups import ResourceGroups
from broker.tenancy.namespaces.tenants import Clusters, Tenants
from broker.tenancy.namespaces.topic_policies import NoPolicyLog
from broker.tenancy.policies.given import DELETED_FIELD
from broker.tenancy.policies.record import Policies
from metadata.store import NodeNotFound, VersionConflict
from protocol.errors import NotAllowed, ServiceNotReady, TopicNotFound
from protocol.topic_name import NON_PERSISTENT, PERSISTENT, TopicName, is_entity_name

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from broker.ground.config import BrokerConfig
    from broker.peers.broker_address import BrokerAddress
    from broker.tenancy.namespaces.loaded_namespaces import Namespace
    from broker.tenancy.namespaces.topic_policies import PolicyLog
    from metadata.store import MetadataStore

Json = dict[str, Any]


@final
class Namespaces:
    """All tenants, namespaces and partitioned topics of the cluster."""

    def __init__(self, store: MetadataStore, config: BrokerConfig) -> None:
        self._store = store
        self._config = config
        self.clusters = Clusters(store)
        self.tenants = Tenants(store, self.clusters, config)
        self.resource_groups = ResourceGroups(store)
        self.is_loaded_topic: Callable[[TopicName], bool] = lambda _topic: False
        """Whether the broker has the topic in memory. Set by the composition root."""
        self._loaded = LoadedNamespaces(store, config, lambda topic: self.is_loaded_topic(topic))
        self.find = self._loaded.find
        """See there."""
        self.policy_log: PolicyLog = NoPolicyLog("Nothing reads the policies of topics here")
        """Set by the composition root."""

    @property
    def in_memory(self) -> Collection[str]:
        """Names of the namespaces that are answered from memory."""
        return self._loaded.names

    async def use(self, config: BrokerConfig) -> None:
        """Apply another configuration from now on. Raises: as `NamespacePolicies.replace`."""
        self._config = config
        self.tenants.use(config)
        await self._loaded.use(config)

    async def bootstrap(self, address: BrokerAddress) -> None:
        """Make sure that the cluster exists with this one broker, and what `make_defaults` says."""
        urls = {
            "serviceUrl": address.web_service_url,
            "serviceUrlTls": address.web_service_url_tls,
            "brokerServiceUrl": address.broker_service_url,
            "brokerServiceUrlTls": address.broker_service_url_tls,
        }
        await self.clusters.create_or_change(
            self._config.clusterName, {name: url for name, url in urls.items() if url}
        )
        await self.make_defaults()

    async def make_defaults(self) -> None:
        """Make sure that `public/default` and `pulsar/system` exist. Other brokers may do the same
        at the same time."""
        cluster = self._config.clusterName
        for tenant, namespace in (("public", "default"), ("pulsar", "system")):
            if not await self.tenants.exists(tenant):
                info = {"adminRoles": [], "allowedClusters": [cluster]}
                await create_json(self._store, tenant_path(tenant), info)
            path = policies_path(f"{tenant}/{namespace}")
            if not await self._store.exists(path):  # one that is damaged is no reason not to start
                await create_json(self._store, path, Policies.fresh(None, self._config).fields)

    # --- namespaces ---------------------------------------------------------------------

    def current(self, namespace_name: str) -> Namespace | None:
        """The namespace, if it exists and is in memory, so that `find` returns it at once."""
        return self._loaded.current(namespace_name)

    def is_loaded(self, namespace_name: str) -> bool:
        """Whether it is."""
        return self._loaded.current(namespace_name) is not None

    async def get(self, namespace_name: str) -> Namespace:
        """For administrative calls. Raises: Refusal."""
        namespace = await self.find(namespace_name)
        if namespace is None:
            raise not_found("Namespace does not exist")
        return namespace

    async def names(self, tenant: str) -> list[str]:
        """Full names of a tenant's namespaces. Raises: Refusal."""
        if not await self.tenants.exists(tenant):
            raise not_found("Tenant not found")
        return [f"{tenant}/{name}" for name in await self._store.children(tenant_path(tenant))]

    async def create(self, namespace_name: str, given: Json | None) -> None:
        """Create a namespace with the given policies. Raises: Refusal."""
        tenant, _, local = namespace_name.partition("/")
        if not await self.tenants.exists(tenant):
            raise not_found("Tenant does not exist")
        if not is_entity_name(local):
            raise precondition_failed("Namespace name is not valid")
        limit = self._config.maxNamespacesPerTenant
        # Pulsar lets a tenant have one more than the key says.
        if limit and len(await self.names(tenant)) > limit:
            raise precondition_failed(f"Exceed the maximum number of namespace in tenant :{tenant}")
        await self._create(namespace_name, given)

    async def _check_clusters(self, tenant: str, policies: Policies) -> None:
        """Raises: Refusal: the tenant may not use a cluster, or the cluster is not this one."""
        info = await self.tenants.get(tenant)
        for cluster in policies.fields["replication_clusters"]:
            if cluster not in info["allowedClusters"]:
                raise Refusal(
                    403,
                    f"Cluster [{cluster}] is not in the list of allowed clusters list for tenant "
                    f"[{tenant}]",
                )
            if cluster != self._config.clusterName:
                raise Refusal(
                    501, f"Vela does not replicate to other clusters yet: leave out {cluster}"
                )

    async def _create(self, namespace_name: str, given: Json | None) -> None:
        policies = Policies.fresh(given, self._config)
        if (given or {}).get("replication_clusters"):
            await self._check_clusters(namespace_name.partition("/")[0], policies)
        if not await create_json(self._store, policies_path(namespace_name), policies.fields):
            raise conflict("Namespace already exists")

    async def change_policies(
        self, namespace_name: str, change: Callable[[Policies], Policies]
    ) -> None:
        """Replace the policies. They are in force when this returns, also for loaded topics.

        Raises: Refusal; as `NamespacePolicies.replace`.
        """
        namespace = await self.get(namespace_name)
        path = policies_path(namespace_name)
        async with namespace.changing:
            changed = await change_json(
                self._store, path, lambda fields: change(Policies(fields)).fields
            )
            if changed is None:
                self._loaded.unload(namespace_name)
                raise not_found("Namespace does not exist")
            await namespace.policies.replace(Policies(changed))

    async def set_topic_policy(
        self, topic: TopicName, field: str, value: object, *, is_global: bool = False
    ) -> None:
        """Set a policy of a topic, for all partitions of a partitioned one; None: it has none of
        this kind any more. In force when this returns, also for loaded topics.

        Raises: Refusal, BrokerError; as `NamespacePolicies.replace`.
        """
        await self.change_topic_policy(topic, field, lambda _before: value, is_global=is_global)

    async def change_topic_policy(
        self,
        topic: TopicName,
        field: str,
        change: Callable[[Any], object],
        *,
        is_global: bool = False,
    ) -> None:
        """The same from what it is now: see `PolicyLog.change`.

        Raises: Refusal, BrokerError; as `NamespacePolicies.replace`.
        """
        namespace = await self.get(topic.namespace_name)
        level = namespace.topic_level
        await self.policy_log.change(level, topic, field, change, is_global=is_global)

    async def clear_topic_policies(self, topic: TopicName) -> None:
        """The topic has no policies of its own any more. One without any, or none, is not an error.

        Raises: Refusal; as `NamespacePolicies.replace`.
        """
        namespace = await self.get(topic.namespace_name)
        await self.policy_log.delete(namespace.topic_level, topic)

    async def delete_topic_policies(self, topic: TopicName) -> None:
        """The topic is deleted: a later one of its name has no policies of its own, and no
        grants."""
        namespace = await self.find(topic.namespace_name)
        if namespace is not None:
            await self.policy_log.delete(namespace.topic_level, topic)
        await self.delete_grants(topic)

    async def delete_grants(self, topic: TopicName) -> None:
        """Nothing is granted on the topic, or on this partition, any more. Raises: Refusal."""
        namespace = await self.find(topic.namespace_name)
        if namespace is not None and topic.full in namespace.policies.grants.topics:
            await self.change_policies(
                namespace.name, lambda record: record.without_topic_grants(topic.full)
            )

    async def check_empty(self, namespace_name: str) -> None:
        """Raises: Refusal: clients have topics there that are stored."""
        if await self.topics(namespace_name, PERSISTENT, with_system=False):
            raise conflict("Cannot delete non empty namespace")
        for domain in (PERSISTENT, NON_PERSISTENT):
            if await self.partitioned_topics(namespace_name, domain, with_system=False):
                raise conflict("Cannot delete non empty namespace")

    async def mark_deleted(self, namespace_name: str, *, deleted: bool) -> bool:
        """From now on no broker that knows of it makes a topic there, or they may again. Returns
        whether it was otherwise before. Raises: Refusal; as `change_policies`."""
        if await self.find(namespace_name) is None:
            raise not_found(f"Namespace {namespace_name} does not exist.")
        is_changed = True

        def mark(record: Policies) -> Policies:
            nonlocal is_changed
            is_changed = bool(record.fields.get(DELETED_FIELD)) is not deleted
            return record.marked(deleted=deleted)

        await self.change_policies(namespace_name, mark)
        return is_changed

    async def delete(self, namespace_name: str) -> None:
        """Delete a namespace that is marked and without topics of clients. Raises: Refusal; 409
        also: it is not marked, or was changed meanwhile and may not be marked any more."""
        path = policies_path(namespace_name)
        found = await read_json_version(self._store, path)
        if found is None:
            self._loaded.unload(namespace_name)
            raise not_found(f"Namespace {namespace_name} does not exist.")
        fields, version = found
        if not fields.get(DELETED_FIELD):
            raise conflict(f"Namespace {namespace_name} is not marked as one that is being deleted")
        await self.check_empty(namespace_name)
        try:
            await self._store.delete(path, version)
        except VersionConflict:
            raise conflict(f"Namespace {namespace_name} changes: delete it again") from None
        except NodeNotFound:
            raise not_found(f"Namespace {namespace_name} does not exist.") from None
        finally:
            self._loaded.unload(namespace_name)
        with suppress(NodeNotFound):
            await self._store.delete(local_policies_path(namespace_name))

    # --- topics -------------------------------------------------------------------------

    async def of_lookup(self, topic: TopicName) -> Namespace:
        """The namespace of a topic in a client's request. The policies that the topic has of its
        own need not be known yet. Raises: BrokerError; also MetadataError: they are damaged."""
        namespace = await self.find(topic.namespace_name)
        if namespace is None:
            raise TopicNotFound("Namespace not found")
        namespace.topic_level.check(topic)
        return namespace

    async def of_topic(self, topic: TopicName) -> Namespace:
        """The same when the policies of the topic are known. Raises: as `of_lookup`; also
        BrokerError: they cannot be read now."""
        namespace = await self.with_topic_level(topic)
        namespace.topic_level.check(topic)
        return namespace

    async def with_topic_level(self, topic: TopicName) -> Namespace:
        """The same, also if they are damaged."""
        namespace = await self.find(topic.namespace_name)
        if namespace is None:
            raise TopicNotFound("Namespace not found")
        if not (namespace.topic_level.is_current or topic.is_system):
            await self.policy_log.read(namespace.topic_level)
        return namespace

    async def topics(
        self, namespace_name: str, domain: str, *, with_system: bool = True
    ) -> list[str]:
        """Full names of persistent topics that are stored, partitions one by one; [] for an unknown
        namespace. Non-persistent topics exist only in the broker's memory: [] here."""
        namespace = await self.find(namespace_name)
        if namespace is None:
            return []
        return await namespace.existing.names(domain, with_system=with_system)

    async def partitioned_topics(
        self, namespace_name: str, domain: str, *, with_system: bool = True
    ) -> list[str]:
        """Full names of partitioned topics; [] for an unknown namespace."""
        namespace = await self.find(namespace_name)
        if namespace is None:
            return []
        return await namespace.existing.partitioned_names(domain, with_system=with_system)

    async def partitions_of(self, topic: TopicName) -> int:
        """Partitions of a topic; 0 when it is not partitioned or its namespace is unknown."""
        namespace = await self.find(topic.namespace_name)
        return 0 if namespace is None else namespace.partitioned.count(topic)

    async def topic_exists(self, topic: TopicName) -> bool:
        """Whether the topic, partition or partitioned topic exists."""
        namespace = await self.find(topic.namespace_name)
        return namespace is not None and await namespace.existing.has(topic)

    def partitions_in_memory(self, topic: TopicName) -> int | None:
        """The result of `resolve_for_lookup` for a topic known to exist; None: call that."""
        namespace = self._loaded.current(topic.namespace_name)
        if namespace is None:
            return None
        count = namespace.partitioned.count(topic)
        return count if count or namespace.existing.is_known(topic) else None

    async def resolve_for_lookup(self, topic: TopicName, allow_auto_create: bool) -> int:
        """PARTITIONED_METADATA: partitions of a topic, 0 for one that is not partitioned.

        A topic that does not exist is created here only when topics of clients are to be
        partitioned, without partitions: the first use of each creates it, as in Pulsar. The answer
        for a plain one is 0; its first use creates it.

        Raises: BrokerError: unknown namespace; or unknown topic and not `allow_auto_create`.
        """
        namespace = await self.of_lookup(topic)
        _refuse_deleted(namespace, topic, create=allow_auto_create)
        if await namespace.existing.has(topic):
            return namespace.partitioned.count(topic)
        if topic.is_partition and namespace.partitioned.count(topic.partitioned_base):
            raise _missing(topic)
        if not allow_auto_create:
            raise _missing(topic)
        if topic.is_partition or not namespace.policies.effective.auto_topic_creation:
            return 0
        if topic.is_system:
            return 0
        count = namespace.policies.effective.auto_created_partitions
        if not count:
            return 0
        try:
            await self._check_topic_limit(namespace, topic, count)
            await namespace.partitioned.create(topic, count, None)
        except Refusal as refusal:
            if refusal.status != 409:
                raise NotAllowed(refusal.reason) from refusal
        return namespace.partitioned.count(topic)

    async def check_topic(self, topic: TopicName, *, create: bool) -> Namespace:
        """Whether this topic may be loaded and, with `create`, created. Returns its namespace.

        `create` comes from the request. Whether clients may create topics is decided here.

        Raises: BrokerError: TopicNotFound, NotAllowed.
        """
        namespace = await self.of_topic(topic)
        config = self._config
        if not (
            config.enablePersistentTopics if topic.persistent else config.enableNonPersistentTopics
        ):
            raise NotAllowed(f"Broker is not configured to serve {topic.domain} topics")
        if namespace.partitioned.count(topic):
            raise NotAllowed(
                f"{topic.full} is a partitioned topic: use one of its partitions instead"
            )
        _refuse_deleted(namespace, topic, create=create)
        if await namespace.existing.has(topic):
            return namespace
        if topic.is_partition and namespace.partitioned.count(topic.partitioned_base):
            raise _missing(topic)
        may_create = namespace.policies.effective.auto_topic_creation or topic.is_system
        if not (create and may_create):
            raise _missing(topic)
        await self._check_topic_limit(namespace, topic, 1)
        return namespace

    async def create_partitioned_topic(
        self, topic: TopicName, count: int, properties: dict[str, str] | None = None
    ) -> None:
        """For administrative calls. Raises: Refusal."""
        namespace = await self.get(topic.namespace_name)
        namespace.check_not_deleted()
        if await namespace.existing.has(topic):
            raise conflict("This topic already exists")
        try:
            await self._check_topic_limit(namespace, topic, count)
        except NotAllowed as error:
            raise precondition_failed(error.message) from None
        await namespace.partitioned.create(topic, count, properties)
        await namespace.partitioned.make_nodes(topic, count)

    async def check_new_topic(self, topic: TopicName) -> None:
        """Whether the namespace may have one more topic, for administrative calls.

        Raises: Refusal.
        """
        namespace = await self.get(topic.namespace_name)
        namespace.check_not_deleted()
        if await namespace.existing.has(topic):
            return
        try:
            await self._check_topic_limit(namespace, topic, 1)
        except NotAllowed as error:
            raise conflict(error.message) from None

    async def _check_topic_limit(self, namespace: Namespace, topic: TopicName, count: int) -> None:
        """As in Pulsar, non-persistent topics do not count, and one with more partitions than the
        limit is refused. Raises: NotAllowed."""
        limit = namespace.policies.effective.counts.topics_max
        if not limit or topic.is_system:
            return
        existing = await namespace.existing.count_of_clients() if topic.persistent else 0
        if existing + count > limit:
            raise NotAllowed("Exceed maximum number of topics in namespace.")


def _refuse_deleted(namespace: Namespace, topic: TopicName, *, create: bool) -> None:
    """Raises: BrokerError: its namespace is being deleted, or it is a partition of a topic that is.
    It would be made again if it is deleted already."""
    if create and namespace.is_being_deleted:
        raise ServiceNotReady(
            f"Namespace {namespace.name} is being deleted. If that was interrupted, delete it again"
        )
    if create and topic.is_partition:
        base = topic.partitioned_base
        if namespace.partitioned.is_being_deleted(base):
            raise ServiceNotReady(
                f"{base.full} is being deleted. If that was interrupted, delete it again"
            )


def _missing(topic: TopicName) -> TopicNotFound:
    return TopicNotFound(f"Topic {topic.full} not found")
