"""Namespaces in memory: loaded on first use, and as current as the store.

The store's watches report changes by any session: changed records are read again before the next
answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import structlog
import trio

from broker.ground.refusal import conflict
from broker.tenancy.namespaces.existing_topics import ExistingTopics
from broker.tenancy.namespaces.json_nodes import damaged, read_json
from broker.tenancy.namespaces.names import (
    BOOKIE_GROUPS_FIELD,
    LOCAL_POLICIES_PATH,
    MANAGED_LEDGERS_PATH,
    PARTITIONED_TOPICS_PATH,
    POLICIES_PATH,
    PRIMARY_GROUPS,
    SECONDARY_GROUPS,
    TOPIC_POLICIES_PATH,
    local_policies_path,
    namespace_below,
    policies_path,
)
from broker.tenancy.namespaces.partitions import PartitionedTopics
from broker.tenancy.namespaces.topic_policies import TopicLevel
from broker.tenancy.policies.effective import flaw_in
from broker.tenancy.policies.given import DELETED_FIELD, without_effect
from broker.tenancy.policies.record import Policies
from broker.tenancy.policies.scopes import BrokerPolicies, NamespacePolicies
from ledgers.placement import parse_groups
from protocol.topic_name import PERSISTENT, POLICY_LOG, TopicName, is_entity_name

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from broker.ground.config import BrokerConfig
    from broker.tenancy.namespaces.kept_records import KeptRecords
    from ledgers.placement import BookieGroups
    from metadata.store import MetadataStore

log = structlog.get_logger()

Json = dict[str, Any]


@final
class Namespace:
    """The state of one namespace in memory."""

    __slots__ = (
        "changing",
        "deleting",
        "existing",
        "name",
        "partitioned",
        "policies",
        "policies_read",
        "policies_version",
        "topic_level",
    )

    def __init__(
        self,
        name: str,
        policies: NamespacePolicies,
        partitioned: PartitionedTopics,
        topic_level: TopicLevel,
        existing: ExistingTopics,
    ) -> None:
        self.name = name
        self.policies = policies
        self.policies_version = 0
        """How often the record was created, changed or deleted since the namespace was loaded."""
        self.policies_read = -1
        """The version of `policies`."""
        self.partitioned = partitioned
        self.topic_level = topic_level
        """The policies that single topics have of their own."""
        self.changing = trio.Lock()
        """Held while the policies change, so that the last ones stored are also in force."""
        self.deleting = trio.Lock()
        """Held by a deletion without force, which may take the mark of a deletion back; and by any
        other until its own mark is there."""
        self.existing = existing
        """Its topics."""

    @property
    def bundles_given(self) -> Json:
        """The bundles with which the namespace was created; {}: none were given."""
        return dict(self.policies.record.bundles or {})

    @property
    def is_being_deleted(self) -> bool:
        """Whether it is being deleted, through any broker, or that was interrupted: no topic is
        made there. Deleting it again completes it."""
        return bool(self.policies.record.fields.get(DELETED_FIELD))

    def check_not_deleted(self) -> None:
        """For administrative calls. Raises: Refusal: it is being deleted."""
        if self.is_being_deleted:
            raise conflict(
                f"Namespace {self.name} is being deleted. If that was interrupted, delete it again"
            )

    @property
    def is_current(self) -> bool:
        """Whether the state in memory equals that of the store."""
        return (
            self.policies_read == self.policies_version
            and self.partitioned.records.is_current
            and self.topic_level.nodes.is_current
        )

    @property
    def are_records_current(self) -> bool:
        """Whether the same holds for the records of its topics."""
        return self.partitioned.records.is_current and self.topic_level.nodes.is_current


@final
class LoadedNamespaces:
    """See the module docstring."""

    def __init__(
        self,
        store: MetadataStore,
        config: BrokerConfig,
        is_loaded_topic: Callable[[TopicName], bool],
    ) -> None:
        """`is_loaded_topic`: whether the broker has the topic in memory."""
        self._store = store
        self._config = config
        self._is_loaded_topic = is_loaded_topic
        self._policies = BrokerPolicies(config)
        self._namespaces: dict[str, Namespace] = {}
        self._loading = trio.Lock()
        store.watch(POLICIES_PATH, self._policies_changed)
        store.watch(LOCAL_POLICIES_PATH, self._local_policies_changed)
        store.watch(PARTITIONED_TOPICS_PATH, self._partitioned_changed)
        store.watch(TOPIC_POLICIES_PATH, self._topic_policies_changed)
        store.watch(MANAGED_LEDGERS_PATH, self._managed_ledger_changed)

    @property
    def names(self) -> Collection[str]:
        """The namespaces that are answered from memory."""
        return self._namespaces.keys()

    async def use(self, config: BrokerConfig) -> None:
        """Apply another configuration from now on. Raises: as `NamespacePolicies.replace`."""
        self._config = config
        await self._policies.use(config)

    def current(self, namespace_name: str) -> Namespace | None:
        """The namespace, if it is in memory and `find` returns it at once."""
        namespace = self._namespaces.get(namespace_name)
        return namespace if namespace is not None and namespace.is_current else None

    async def find(self, namespace_name: str) -> Namespace | None:
        """The namespace `tenant/namespace`, None when there is none. No await when in memory."""
        namespace = self._namespaces.get(namespace_name)
        if namespace is not None and namespace.is_current:
            return namespace
        tenant, separator, local = namespace_name.partition("/")
        if not (separator and is_entity_name(tenant) and is_entity_name(local)):
            return None
        async with self._loading:
            namespace = self._namespaces.get(namespace_name)
            if namespace is None:
                namespace = self._unread(namespace_name)
                # Registered before it is read, so that no change in between is missed.
                self._namespaces[namespace_name] = namespace
            try:
                fields, groups = await self._read(namespace)
            except BaseException:
                if namespace.policies_read < 0:
                    self.unload(namespace_name)
                raise
            if fields is None:
                self.unload(namespace_name)
                return None
        policies = namespace.policies
        if fields != policies.record.fields or groups != policies.bookie_groups:
            without = without_effect(fields)
            if without:
                log.warning("policies without effect", namespace=namespace_name, policies=without)
            # Watchers may request the namespace: not while others wait for the lock.
            policies.bookie_groups = groups
            await policies.replace(Policies(fields))
        return namespace

    def _unread(self, namespace_name: str) -> Namespace:
        partitioned = PartitionedTopics(self._store, namespace_name, lambda: self._config)
        policies = self._policies.of_namespace(Policies({}))
        return Namespace(
            namespace_name,
            policies,
            partitioned,
            TopicLevel(
                self._store,
                namespace_name,
                policies,
                partitioned,
                self._config.clusterName,
                self._flaw_in,
            ),
            ExistingTopics(self._store, namespace_name, partitioned, self._is_loaded_topic),
        )

    def _flaw_in(self, fields: Json) -> str:
        return flaw_in(fields, self._config)

    async def _read(self, namespace: Namespace) -> tuple[Json | None, BookieGroups | None]:
        """Bring a namespace up to date except for its policies, which are returned; None: it is
        deleted. With its groups of bookies, if it has any. Raises: MetadataError."""
        while True:
            version = namespace.policies_version
            fields = await read_json(self._store, policies_path(namespace.name))
            groups = None
            if fields is not None:
                if flaw := self._flaw_in(fields):
                    raise damaged(policies_path(namespace.name), flaw)
                groups = await self._read_groups(namespace.name)
                await namespace.partitioned.records.refresh()
                await namespace.topic_level.nodes.refresh()
            if version == namespace.policies_version and (
                fields is None or namespace.are_records_current
            ):
                namespace.policies_read = version
                return fields, groups

    async def _read_groups(self, namespace_name: str) -> BookieGroups | None:
        path = local_policies_path(namespace_name)
        record = await read_json(self._store, path) or {}
        groups = record.get(BOOKIE_GROUPS_FIELD) or {}
        if not isinstance(groups, dict):
            raise damaged(path, f"{BOOKIE_GROUPS_FIELD} is not a JSON object")
        return parse_groups(groups.get(PRIMARY_GROUPS), groups.get(SECONDARY_GROUPS))

    def unload(self, namespace_name: str) -> None:
        """Forget a namespace: it was deleted."""
        namespace = self._namespaces.pop(namespace_name, None)
        if namespace is not None:
            namespace.policies.close()

    # --- changes in the store -----------------------------------------------------------

    def _policies_changed(self, path: str) -> None:
        self._record_changed(POLICIES_PATH, path)

    def _local_policies_changed(self, path: str) -> None:
        self._record_changed(LOCAL_POLICIES_PATH, path)

    def _record_changed(self, root: str, path: str) -> None:
        if path == root:  # the store does not know what has changed
            for each in self._namespaces.values():
                each.policies_version += 1
            return
        name, rest = namespace_below(root, path)
        namespace = self._namespaces.get(name)
        if namespace is not None and not rest:
            namespace.policies_version += 1

    def _partitioned_changed(self, path: str) -> None:
        self._one_changed(PARTITIONED_TOPICS_PATH, path, lambda each: each.partitioned.records)

    def _topic_policies_changed(self, path: str) -> None:
        self._one_changed(TOPIC_POLICIES_PATH, path, lambda each: each.topic_level.nodes)

    def _one_changed(
        self, root: str, path: str, records_of: Callable[[Namespace], KeptRecords]
    ) -> None:
        if path == root:
            for each in self._namespaces.values():
                records_of(each).all_changed()
            return
        name, rest = namespace_below(root, path)
        namespace = self._namespaces.get(name)
        if namespace is not None:
            records_of(namespace).changed(rest)

    def _managed_ledger_changed(self, path: str) -> None:
        """A topic's record changed. Cursors lie one level below."""
        if path == MANAGED_LEDGERS_PATH:
            for each in self._namespaces.values():
                each.existing.all_changed()
                each.topic_level.log_changed()
            return
        name, rest = namespace_below(MANAGED_LEDGERS_PATH, path)
        namespace = self._namespaces.get(name)
        domain, _, element = rest.partition("/")
        if namespace is not None and domain == PERSISTENT and "/" not in element:
            namespace.existing.record_changed(element)
            if element.startswith(POLICY_LOG):
                namespace.topic_level.log_changed()
