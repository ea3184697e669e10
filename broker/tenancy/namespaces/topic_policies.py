"""The policies of single topics of one namespace.

They are the messages of the namespace's topic `__change_events`, in Pulsar's form, so that brokers
of both kinds read them. A `PolicyLog` reads and writes that topic; this module keeps the policies
that were read. The policies of a partitioned topic hold for its partitions. System topics have
none, so reading the log never waits for the log.

Earlier versions of Vela kept them as nodes of the metadata store. Remaining nodes are copied into
the log before anything else is read.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol, final

from broker.ground.refusal import Refusal
from broker.tenancy.namespaces.json_nodes import damaged
from broker.tenancy.namespaces.kept_records import KeptRecords
from broker.tenancy.namespaces.names import managed_ledger_path, topic_policies_path
from broker.tenancy.policies.topic_policy_map import TopicPolicyMap
from metadata.store import NodeNotFound
from protocol.topic_name import NON_PERSISTENT, PERSISTENT, POLICY_LOG, TopicName

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.tenancy.namespaces.partitions import PartitionedTopics
    from broker.tenancy.policies.scopes import NamespacePolicies
    from metadata.store import MetadataStore

Json = dict[str, Any]


def topic_in(namespace_name: str, domain: str, local_name: str) -> TopicName:
    """A topic of the namespace `tenant/namespace`."""
    tenant, _, namespace = namespace_name.partition("/")
    return TopicName.of(domain, tenant, namespace, local_name)


@final
class TopicLevel:
    """See the module docstring."""

    def __init__(
        self,
        store: MetadataStore,
        namespace_name: str,
        policies: NamespacePolicies,
        partitioned: PartitionedTopics,
        cluster: str,
        flaw_in: Callable[[Json], str],
    ) -> None:
        """`flaw_in` returns why fields cannot be in force; empty: they can."""
        self._store = store
        self._cluster = cluster
        self._flaw_in = flaw_in
        self._partitioned = partitioned
        self._changes = 0
        """How often topics of the log were created or deleted."""
        self._is_absent = False
        """Whether the log was found not to exist, and has not been created since."""
        self._on_created: Callable[[], object] = lambda: None
        self.namespace_name = namespace_name
        self.policies = policies
        self.log_topic = topic_in(namespace_name, PERSISTENT, POLICY_LOG)
        self.map = self.empty_map()
        self.is_live = False
        """Whether `map` is what the log says, and is kept so."""
        self.nodes = KeptRecords(
            store,
            {
                domain: topic_policies_path(namespace_name, domain)
                for domain in (PERSISTENT, NON_PERSISTENT)
            },
            flaw_in,
        )
        """The nodes that are to be taken over into the log."""

    @property
    def is_absent(self) -> bool:
        """Whether there is no log."""
        return self._is_absent

    @property
    def is_current(self) -> bool:
        """Whether the policies are known without asking."""
        return (self.is_live or self._is_absent) and not self.nodes.found

    def empty_map(self) -> TopicPolicyMap:
        """For another reading of the log."""
        return TopicPolicyMap(self._cluster, self._flaw_in)

    def check(self, topic: TopicName) -> None:
        """Raises: MetadataError: the policies of this topic are damaged."""
        if topic.is_system:
            return
        base = topic.partitioned_base
        self.nodes.of(base)
        damage = self.map.damage
        if damage and (base.domain, base.local_name) in damage:
            raise damage[base.domain, base.local_name]

    # --- the log ------------------------------------------------------------------------

    def log_parts(self) -> list[TopicName]:
        """The topics that the log consists of: its partitions if it is partitioned, which a broker
        of Pulsar does that partitions all topics it creates."""
        count = self._partitioned.count(self.log_topic)
        return [self.log_topic.partition(index) for index in range(count)] or [self.log_topic]

    async def log_exists(self, on_created: Callable[[], object]) -> bool:
        """Whether there is a log to read. If not, the callback is called once when there is."""
        changes = self._changes
        for part in self.log_parts():
            if await self._store.exists(managed_ledger_path(part)):
                return True
        if changes != self._changes:
            return True
        self._is_absent = True
        self._on_created = on_created
        return False

    def log_changed(self) -> None:
        """A topic of the log was created or deleted."""
        self._changes += 1
        if self._is_absent:
            self._is_absent = False
            self._on_created()

    def not_taken_over(self, topic: TopicName, reason: str) -> None:
        """Its node cannot be a message: what needs its policies is refused."""
        key = topic.domain, topic.local_name
        self.nodes.found.pop(key, None)
        self.nodes.damage[key] = damaged(self.nodes.path(topic), reason)

    async def use(self, read: TopicPolicyMap) -> None:
        """The log has been read. Raises: as `NamespacePolicies.replace`."""
        self.map = read
        self.is_live = True
        await self.policies.replace_topics(read.fields)

    async def gone(self) -> None:
        """There is no log any more. Raises: as `NamespacePolicies.replace`."""
        self.map = self.empty_map()
        self.is_live = False
        await self.policies.replace_topics(self.map.fields)

    async def taken_over(self, topic: TopicName) -> None:
        """Its node is not needed any more."""
        with suppress(NodeNotFound):
            await self._store.delete(self.nodes.path(topic))
        self.nodes.found.pop((topic.domain, topic.local_name), None)


class PolicyLog(Protocol):
    """Reads and writes the logs of namespaces."""

    async def read(self, level: TopicLevel) -> None:
        """Return when the policies of topics are as they are written.

        Raises: BrokerError: they cannot be known now.
        """

    async def change(
        self,
        level: TopicLevel,
        topic: TopicName,
        field: str,
        change: Callable[[Any], object],
        *,
        is_global: bool,
    ) -> None:
        """Change a policy of a topic, named as in a namespace's record, from what it is now; None:
        it has none. In force here when this returns. `change` may be called several times, since
        another broker may change the topic's policies meanwhile.

        Raises: BrokerError, Refusal; as `NamespacePolicies.replace`.
        """

    async def delete(self, level: TopicLevel, topic: TopicName) -> None:
        """The topic has no policies of its own any more, neither in this cluster nor in all.

        Raises: as `change`.
        """

    def stop(self) -> None:
        """Read nothing any more: the broker is about to leave its topics."""


DISABLED: Final = "Topic level policies is disabled, to enable the topic level policy and retry."
"""Pulsar's text."""


@final
class NoPolicyLog:
    """Topics have no policies of their own, and none can be set."""

    def __init__(self, reason: str) -> None:
        """Why not."""
        self._reason = reason

    def stop(self) -> None:
        """See PolicyLog."""

    async def read(self, level: TopicLevel) -> None:
        """See PolicyLog."""
        del level

    async def change(
        self,
        level: TopicLevel,
        topic: TopicName,
        field: str,
        change: Callable[[Any], object],
        *,
        is_global: bool,
    ) -> None:
        """See PolicyLog."""
        del level, topic, field, change, is_global
        raise Refusal(405, self._reason)

    async def delete(self, level: TopicLevel, topic: TopicName) -> None:
        """See PolicyLog."""
        del level, topic
