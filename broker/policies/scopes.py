"""The levels of policies, and who is told when one of them changes.

    BrokerPolicies (configuration) -> NamespacePolicies (record) -> TopicPolicies

`effective` of a namespace or a topic is always what is in force now. A topic that acts on a policy
when it changes, not only when somebody asks, watches its own level: it is told after a change of
its own, of its namespace's or of the configuration, if that made a difference to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, final

from broker.policies.effective import EffectivePolicies, resolve

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from broker.config import BrokerConfig
    from broker.policies.record import Policies


class PolicyWatcher(Protocol):
    """Somebody who acts on policies."""

    async def apply_policies(self) -> None:
        """Take up what is in force now. Nothing to do is no error."""


@final
class BrokerPolicies:
    """The outermost level."""

    def __init__(self, config: BrokerConfig) -> None:
        self.config = config
        self._namespaces: set[NamespacePolicies] = set()

    def of_namespace(self, record: Policies) -> NamespacePolicies:
        """The level of a namespace; `close` it when the namespace is gone."""
        namespace = NamespacePolicies(self, record)
        self._namespaces.add(namespace)
        return namespace

    def forget(self, namespace: NamespacePolicies) -> None:
        """The namespace is gone."""
        self._namespaces.discard(namespace)

    async def use(self, config: BrokerConfig) -> None:
        """Obey another configuration. Raises: as `NamespacePolicies.replace`."""
        self.config = config
        changed = [topic for each in list(self._namespaces) for topic in each.resolve()]
        await _tell(changed)


@final
class NamespacePolicies:
    """The level of one namespace."""

    def __init__(self, broker: BrokerPolicies, record: Policies) -> None:
        self._broker = broker
        self._watched: set[TopicPolicies] = set()
        self.record = record
        """What the namespace itself says; for those who show or change it."""
        self.effective = resolve(broker.config, record)

    def of_topic(self) -> TopicPolicies:
        """The level of a topic of the namespace, which says nothing of its own yet."""
        return TopicPolicies(self)

    async def replace(self, record: Policies) -> None:
        """The namespace says something else now. Returns when all who watch have acted on it.

        Raises: what a watcher raised, after the others have been told; ExceptionGroup of several.
        """
        self.record = record
        await _tell(self.resolve())

    def resolve(self) -> list[TopicPolicies]:
        """Find out what is in force; the watched topics for which it is something else now."""
        self.effective = resolve(self._broker.config, self.record)
        return [topic for topic in self._watched if topic.resolve()]

    def watch(self, topic: TopicPolicies) -> None:
        """Include the topic in what `resolve` tells."""
        topic.resolve()
        self._watched.add(topic)

    def forget(self, topic: TopicPolicies) -> None:
        """Leave it out."""
        self._watched.discard(topic)

    def resolve_topic(self, record: Mapping[str, Any]) -> EffectivePolicies:
        """What is in force for a topic that says something of its own."""
        return resolve(self._broker.config, self.record, record)

    def close(self) -> None:
        """The namespace is gone."""
        self._broker.forget(self)


@final
class TopicPolicies:
    """The level of one topic."""

    __slots__ = ("_namespace", "_seen", "_watcher", "record")

    def __init__(self, namespace: NamespacePolicies) -> None:
        self._namespace = namespace
        self._watcher: PolicyWatcher | None = None
        self._seen = namespace.effective
        self.record: Mapping[str, Any] | None = None
        """What the topic itself says: fields as those of its namespace's record."""

    @property
    def effective(self) -> EffectivePolicies:
        """What is in force."""
        if self.record is None:
            return self._namespace.effective
        return self._namespace.resolve_topic(self.record)

    def watch(self, watcher: PolicyWatcher) -> None:
        """Tell this one of changes, until `unwatch`."""
        self._watcher = watcher
        self._namespace.watch(self)

    def unwatch(self) -> None:
        """Tell nobody any more."""
        self._watcher = None
        self._namespace.forget(self)

    async def replace(self, record: Mapping[str, Any] | None) -> None:
        """The topic says something else now. Raises: what the watcher raises."""
        self.record = record
        if self.resolve():
            await self.tell()

    def resolve(self) -> bool:
        """Whether something else is in force than when this was asked before."""
        before, self._seen = self._seen, self.effective
        return before != self._seen

    async def tell(self) -> None:
        """Let the watcher act. Raises: what it raises."""
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
