"""The levels of policies, and notification of changes.

    BrokerPolicies (configuration) -> NamespacePolicies (record) -> TopicPolicies

The policies of a partitioned topic are those of each of its partitions.

`effective` of a namespace or a topic is always the current state. A topic that acts on a change of
a policy, and not only on request, watches its own level. It is notified after a change of its own
policies, of its namespace's or of the configuration, if the result for it is different.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, final

from broker.policies.effective import EffectivePolicies, resolve

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from broker.config import BrokerConfig
    from broker.policies.grants import Grants
    from broker.policies.record import Policies
    from ledgers.placement import BookieGroups
    from protocol.topic_name import TopicName

TopicKey = tuple[str, str]
"""Domain and local name of a topic that is no partition."""


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
        changed = [topic for each in list(self._namespaces) for topic in each.resolve()]
        await _tell(changed)


@final
class NamespacePolicies:
    """The level of one namespace."""

    def __init__(self, broker: BrokerPolicies, record: Policies) -> None:
        self._broker = broker
        self._watched: dict[TopicKey, set[TopicPolicies]] = {}
        self._topics: Mapping[TopicKey, Mapping[str, Any]] = {}
        self.record = record
        """The namespace's own policies, for code that shows or changes them."""
        self.bookie_groups: BookieGroups | None = None
        """The bookies of new ledgers. Set it before `replace`."""
        self.effective = resolve(broker.config, record)

    @property
    def grants(self) -> Grants:
        """Who may do what in the namespace."""
        return self.record.grants

    def of_topic(self, topic: TopicName) -> TopicPolicies:
        """The level of a topic of the namespace."""
        return TopicPolicies(self, (topic.domain, topic.partitioned_base.local_name))

    async def replace(self, record: Policies) -> None:
        """The namespace has other policies now. Returns when all watchers have acted on them.

        Raises: the error of a watcher, after the others were notified; ExceptionGroup of several.
        """
        self.record = record
        await _tell(self.resolve())

    async def replace_topics(self, records: Mapping[TopicKey, Mapping[str, Any]]) -> None:
        """These topics have policies of their own now, and no others. The mapping is copied.

        Raises: as `replace`.
        """
        before, self._topics = self._topics, dict(records)
        changed = [key for key in {**before, **records} if before.get(key) != self._topics.get(key)]
        await _tell(
            [
                topic
                for key in changed
                for topic in list(self._watched.get(key, ()))
                if topic.resolve()
            ]
        )

    def record_of(self, key: TopicKey) -> Mapping[str, Any] | None:
        """The policies of a topic of its own: fields as those of the namespace's record."""
        return self._topics.get(key)

    def resolve(self) -> list[TopicPolicies]:
        """Compute the policies in force. Returns the watched topics for which they changed."""
        self.effective = resolve(self._broker.config, self.record, None, self.bookie_groups)
        watched = (topic for topics in self._watched.values() for topic in topics)
        return [topic for topic in watched if topic.resolve()]

    def watch(self, topic: TopicPolicies) -> None:
        """Include the topic in `resolve`."""
        topic.resolve()
        self._watched.setdefault(topic.key, set()).add(topic)

    def forget(self, topic: TopicPolicies) -> None:
        """Exclude it."""
        topics = self._watched.get(topic.key, set())
        topics.discard(topic)
        if not topics:
            self._watched.pop(topic.key, None)

    def resolve_topic(self, record: Mapping[str, Any]) -> EffectivePolicies:
        """The policies in force for a topic with policies of its own."""
        return resolve(self._broker.config, self.record, record, self.bookie_groups)

    def close(self) -> None:
        """The namespace is deleted."""
        self._broker.forget(self)


@final
class TopicPolicies:
    """The level of one topic."""

    __slots__ = ("_namespace", "_of_namespace", "_own", "_record", "_seen", "_watcher", "key")

    def __init__(self, namespace: NamespacePolicies, key: TopicKey) -> None:
        self._namespace = namespace
        self._watcher: PolicyWatcher | None = None
        self.key = key
        self._record: Mapping[str, Any] | None = None
        self._of_namespace = namespace.effective
        self._own = namespace.effective
        """What the two before it result in."""
        self._seen = self.effective

    @property
    def effective(self) -> EffectivePolicies:
        """The policies in force. Asked for each request of a client, so only a change costs."""
        of_namespace = self._namespace.effective
        record = self._namespace.record_of(self.key)
        if record is None:
            return of_namespace
        if record is not self._record or of_namespace is not self._of_namespace:
            self._record, self._of_namespace = record, of_namespace
            self._own = self._namespace.resolve_topic(record)
        return self._own

    def watch(self, watcher: PolicyWatcher) -> None:
        """Notify this watcher of changes, until `unwatch`."""
        self._watcher = watcher
        self._namespace.watch(self)

    def unwatch(self) -> None:
        """Stop notifying."""
        self._watcher = None
        self._namespace.forget(self)

    def resolve(self) -> bool:
        """Whether the policies in force changed since the last call."""
        before, self._seen = self._seen, self.effective
        return before != self._seen

    async def tell(self) -> None:
        """Let the watcher act. Raises: its error."""
        if self._watcher is not None:
            await self._watcher.apply_policies()


async def _tell(topics: Iterable[TopicPolicies]) -> None:
    failures: list[Exception] = []
    for topic in topics:
        try:
            await topic.tell()
        except Exception as error:
            failures.append(error)
    if len(failures) == 1:
        raise failures[0]
    if failures:
        raise ExceptionGroup("topics could not take up the policies", failures)
