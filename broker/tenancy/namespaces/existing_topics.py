"""The topics that exist in a namespace.

A persistent topic exists while its managed ledger does, or while it is a partition of a partitioned
topic: clients may use each partition, even without the right to create topics. A partition without
a managed ledger is not listed, as in Pulsar: it is unused so far, or was unused for long enough. A
non-persistent topic exists while the broker has it loaded. A managed ledger that was found in the
store is remembered until its record changes.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, final

from broker.ground.slices import sorted_in_slices
from broker.tenancy.namespaces.names import managed_ledger_path, managed_ledgers_path
from protocol.topic_name import PERSISTENT, decode_name, is_system_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from broker.tenancy.namespaces.partitions import PartitionedTopics
    from metadata.store import MetadataStore
    from protocol.topic_name import TopicName


@final
class ExistingTopics:
    """See the module docstring."""

    __slots__ = ("_changes", "_is_loaded", "_known", "_namespace_name", "_partitioned", "_store")

    def __init__(
        self,
        store: MetadataStore,
        namespace_name: str,
        partitioned: PartitionedTopics,
        is_loaded: Callable[[TopicName], bool],
    ) -> None:
        """`is_loaded` returns whether the broker has a topic in memory. The records of
        `partitioned` are those of the namespace, and are to be current when this is asked."""
        self._store = store
        self._namespace_name = namespace_name
        self._partitioned = partitioned
        self._is_loaded = is_loaded
        self._known: set[str] = set()
        """Local names of persistent topics that were found to exist; others may exist too."""
        self._changes = 0
        """How often a record of a topic was created, changed or deleted."""

    def record_changed(self, element: str) -> None:
        """The record of one managed ledger changed: the topic may be deleted. `element` is its name
        in the store."""
        self._changes += 1
        self._known.discard(decode_name(element))

    def all_changed(self) -> None:
        """Any of them may have changed."""
        self._changes += 1
        self._known.clear()

    def is_known(self, topic: TopicName) -> bool:
        """Whether memory alone proves that it exists. False: the store must be read."""
        partitioned = self._partitioned
        if self._is_loaded(topic) or partitioned.count(topic):
            return True
        index, base = topic.partition_index, topic.partitioned_base
        if 0 <= index < partitioned.count(base) and not partitioned.is_being_deleted(base):
            return True
        return topic.persistent and topic.local_name in self._known

    async def has(self, topic: TopicName) -> bool:
        """Whether the topic, partition or partitioned topic exists. No await when memory proves
        that it does."""
        if self.is_known(topic):
            return True
        changes = self._changes
        if not topic.persistent or not await self._store.exists(managed_ledger_path(topic)):
            return False
        if changes == self._changes:
            self._known.add(topic.local_name)
        return True

    async def names(self, domain: str, *, with_system: bool) -> list[str]:
        """Full names of those that are stored, in order, partitions one by one. Non-persistent
        topics are not stored: []."""
        if domain != PERSISTENT:
            return []
        return await sorted_in_slices(_shown(await self._stored(), with_system))

    async def count_of_clients(self) -> int:
        """How many persistent topics clients have, with all partitions that they may make."""
        names = chain(await self._stored(), self._partitioned.full_names_of_partitions(PERSISTENT))
        return len(await sorted_in_slices(_shown(names, with_system=False)))

    async def _stored(self) -> Iterator[str]:
        elements = await self._store.children(managed_ledgers_path(self._namespace_name))
        prefix = f"{PERSISTENT}://{self._namespace_name}/"
        return (prefix + decode_name(element) for element in elements)

    async def partitioned_names(self, domain: str, *, with_system: bool) -> list[str]:
        """Full names of partitioned topics, in order."""
        names = self._partitioned.full_names(domain)
        return await sorted_in_slices(_shown(names, with_system))


def _shown(names: Iterable[str], with_system: bool) -> Iterator[str | None]:
    return (each if with_system or not is_system_topic(each) else None for each in names)
