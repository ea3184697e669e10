"""The levels of policies, and notification of changes.

    BrokerPolicies (configuration) -> NamespacePolicies (record) -> TopicPolicies

The policies of a partitioned topic are those of each of its partitions.

`effective` of a namespace or a topic is always the current state. A topic that acts on a change of
a policy, and not only on request, watches its own level. It is notified after a change of its own
policies, of its namespace's or of the configuration, if the result for it is different.

A change of a namespace goes through its topics in slices (`_tell`), and several changes may do so
at once. When the turn of a topic comes, it is compared, and acts, with the policies then in force.
The last change is therefore in force for every topic, in whatever order the changes reach it. A
topic that acts on an earlier change, or failed to, is notified by the later change as well. No
change ends before all topics have its policies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol, final

from broker.ground.config import SUBSCRIPTION_TYPES
from broker.ground.slices import for_each, in_slices
from broker.tenancy.policies.effective import EffectivePolicies, resolve, without_rates

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from broker.ground.config import BrokerConfig
    from broker.tenancy.policies.grants import Grants
    from broker.tenancy.policies.record import Policies
    from ledgers.placement import BookieGroups
    from protocol.topic_name import TopicName

TopicKey = tuple[str, str]
"""Domain and local name of a topic that is no partition."""
TOLD_AT_ONCE: Final = 32
"""Topics that act on a change in one turn of the event loop: about a millisecond."""
OF_SYSTEM_TOPICS: Final[Mapping[str, Any]] = {
    "autoSubscriptionCreationOverride": {"allowAutoSubscriptionCreation": True},
    "encryption_required": False,
    "max_consumers_per_subscription": 0,
    "max_consumers_per_topic": 0,
    "max_producers_per_topic": 0,
    "max_subscriptions_per_topic": 0,
    "message_ttl_in_seconds": 0,
    "schema_compatibility_strategy": "ALWAYS_COMPATIBLE",
    "subscription_types_enabled": SUBSCRIPTION_TYPES,
}
"""The policies that a topic of brokers has in place of its own: what limits tenants does not hold
for it, and no rate either (`without_rates`). They do not come from the topic in which policies are
kept, which is such a topic itself."""


class PolicyWatcher(Protocol):
    """An object that acts on policies."""

    async def apply_policies(self) -> None:
        """Apply the policies in force now. No change is not an error."""


@final
class BrokerPolicies:
    """The outermost level."""

    def __init__(self, config: BrokerConfig) -> None:
        self.config = config
        self._namespaces: set[NamespacePolicies] = set()

    def of_namespace(self, record: Policies) -> NamespacePolicies:
        """The level of a namespace. `close` it when the namespace is deleted."""
        namespace = NamespacePolicies(self, record)
        self._namespaces.add(namespace)
        return namespace

    def forget(self, namespace: NamespacePolicies) -> None:
        """The namespace is deleted."""
        self._namespaces.discard(namespace)

    async def use(self, config: BrokerConfig) -> None:
        """Apply another configuration. Raises: as `NamespacePolicies.replace`."""
        self.config = config
        namespaces = list(self._namespaces)
        await in_slices(map(NamespacePolicies.resolve, namespaces))
        await _tell(topic for each in namespaces for topic in each.watched())


@final
class NamespacePolicies:
    """The level of one namespace."""

    def __init__(self, broker: BrokerPolicies, record: Policies) -> None:
        self._broker = broker
        self._watched: dict[TopicKey, TopicPolicies | set[TopicPolicies]] = {}
        """Almost always one per key: only partitions of one topic share theirs."""
        self._topics: Mapping[TopicKey, Mapping[str, Any]] = {}
        self.record = record
        """The namespace's own policies, for code that shows or changes them."""
        self.bookie_groups: BookieGroups | None = None
        """The bookies of new ledgers. Set it before `replace`."""
        self.effective = resolve(broker.config, record)

    @property
    def grants(self) -> Grants:
        """The grants in the namespace."""
        return self.record.grants

    def of_topic(self, topic: TopicName) -> TopicPolicies:
        """The level of a topic of the namespace."""
        fixed = OF_SYSTEM_TOPICS if topic.is_system else None
        return TopicPolicies(self, (topic.domain, topic.partitioned_base.local_name), fixed)

    async def replace(self, record: Policies) -> None:
        """The namespace has other policies now. Returns when all watchers have acted on them.

        Raises: the error of a watcher, after the others were notified; ExceptionGroup of several.
        """
        self.record = record
        self.resolve()
        await _tell(self.watched())

    async def replace_topics(self, records: Mapping[TopicKey, Mapping[str, Any]]) -> None:
        """These topics have policies of their own from now on, and no others. After a change of the
        mapping call `topic_changed`.

        Raises: as `replace`.
        """
        self._topics = records
        await _tell(self.watched())

    async def topic_changed(self, key: TopicKey) -> None:
        """This topic has other policies of its own now. Raises: as `replace`."""
        await _tell(self._watched_of(key))

    def record_of(self, key: TopicKey) -> Mapping[str, Any] | None:
        """The policies of a topic of its own: fields as those of the namespace's record."""
        return self._topics.get(key)

    def resolve(self) -> None:
        """Compute the policies in force."""
        self.effective = resolve(self._broker.config, self.record, None, self.bookie_groups)

    def watched(self) -> Iterator[TopicPolicies]:
        """The topics that watch. Others may come and go between two steps: a topic that comes has
        the policies then in force."""
        for key in list(self._watched):
            yield from self._watched_of(key)

    def _watched_of(self, key: TopicKey) -> list[TopicPolicies]:
        watched = self._watched.get(key)
        if watched is None:
            return []
        return [watched] if isinstance(watched, TopicPolicies) else list(watched)

    def watch(self, topic: TopicPolicies) -> None:
        """Include the topic in `watched`."""
        watched = self._watched.get(topic.key)
        if watched is None or watched is topic:
            self._watched[topic.key] = topic
        elif isinstance(watched, TopicPolicies):
            self._watched[topic.key] = {watched, topic}
        else:
            watched.add(topic)

    def forget(self, topic: TopicPolicies) -> None:
        """Exclude it."""
        watched = self._watched.get(topic.key)
        if isinstance(watched, set):
            watched.discard(topic)
            if not watched:
                del self._watched[topic.key]
        elif watched is topic:
            del self._watched[topic.key]

    def resolve_topic(self, record: Mapping[str, Any]) -> EffectivePolicies:
        """The policies in force for a topic with policies of its own."""
        return resolve(self._broker.config, self.record, record, self.bookie_groups)

    def close(self) -> None:
        """The namespace is deleted."""
        self._broker.forget(self)


@final
class TopicPolicies:
    """The level of one topic."""

    __slots__ = (
        "_ended",
        "_fixed",
        "_namespace",
        "_of_namespace",
        "_own",
        "_record",
        "_seen",
        "_told",
        "_watcher",
        "key",
    )

    def __init__(
        self, namespace: NamespacePolicies, key: TopicKey, fixed: Mapping[str, Any] | None = None
    ) -> None:
        """`fixed` is in place of what the topic says."""
        self._namespace = namespace
        self._fixed = fixed
        self._watcher: PolicyWatcher | None = None
        self.key = key
        self._record: Mapping[str, Any] | None = None
        self._of_namespace = namespace.effective
        self._own = namespace.effective
        """The result of the two attributes before it."""
        self._seen = self.effective
        """The policies of which its watcher was notified last."""
        self._told = self._ended = 0
        """How often the watcher was notified, and which notice it last handled without an error."""

    @property
    def effective(self) -> EffectivePolicies:
        """The policies in force. Asked for each request of a client, so only a change costs."""
        of_namespace = self._namespace.effective
        record = self._fixed or self._namespace.record_of(self.key)
        if record is None:
            return of_namespace
        if record is not self._record or of_namespace is not self._of_namespace:
            self._record, self._of_namespace = record, of_namespace
            found = self._namespace.resolve_topic(record)
            self._own = found if self._fixed is None else without_rates(found)
        return self._own

    def watch(self, watcher: PolicyWatcher) -> None:
        """Notify this watcher of changes, until `unwatch`."""
        self._watcher = watcher
        self._seen = self.effective
        self._namespace.watch(self)

    def unwatch(self) -> None:
        """Stop notifying."""
        self._watcher = None
        self._namespace.forget(self)

    async def tell(self) -> None:
        """Let the watcher act, unless it has acted on what is in force. Raises: its error."""
        watcher, in_force = self._watcher, self.effective
        if watcher is None:
            return
        is_seen = in_force is self._seen or in_force == self._seen
        if is_seen and self._ended == self._told:
            return
        self._seen = in_force
        self._told = told = self._told + 1
        await watcher.apply_policies()
        self._ended = max(self._ended, told)


async def _tell(topics: Iterable[TopicPolicies]) -> None:
    """Notify all topics, TOLD_AT_ONCE in a turn. Raises: see `NamespacePolicies.replace`."""
    failures: list[Exception] = []

    async def tell(topic: TopicPolicies) -> None:
        try:
            await topic.tell()
        except Exception as error:
            failures.append(error)

    await for_each(topics, tell, TOLD_AT_ONCE)
    if len(failures) == 1:
        raise failures[0]
    if failures:
        raise ExceptionGroup("topics could not take up the policies", failures)
