"""Partitioned topics: a partitioned topic is only a number; each partition is a topic of its own.

Stored at `/admin/partitioned-topics/<namespace>/<domain>/<encoded name>` as Pulsar's
PartitionedTopicMetadata. Clients may use `X-partition-i` while `i` is below the stored number. If
an administrator creates or extends the topic, the nodes of the managed ledgers of its partitions
are made with it, because brokers, Pulsar's included, list these nodes.

While a partitioned topic is being deleted, its record is marked, so clients that reconnect at once
do not create its partitions again.

All records of a namespace are kept in memory (`KeptRecords`), because every client asks whether its
topic is partitioned before it connects.
"""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, final

import trio

from broker.ground.refusal import Refusal, conflict, not_found, precondition_failed
from broker.ground.slices import for_each
from broker.tenancy.namespaces.json_nodes import change_json, create_json
from broker.tenancy.namespaces.kept_records import KeptRecords
from broker.tenancy.namespaces.names import managed_ledger_path, partitioned_topics_path
from metadata.store import MUST_NOT_EXIST, NodeNotFound, VersionConflict
from protocol.topic_name import (
    NON_PERSISTENT,
    PARTITION_SUFFIX,
    PERSISTENT,
    TopicName,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from broker.ground.config import BrokerConfig
    from metadata.store import MetadataStore

Json = dict[str, Any]

PARTITIONS_MAX: Final = 100_000
"""The number of partitions of all topics of a namespace: a list of its topics names each of
them."""
_NODES_AT_ONCE: Final = 32


@final
class PartitionedTopics:
    """The partitioned topics of one namespace."""

    def __init__(
        self, store: MetadataStore, namespace_name: str, config: Callable[[], BrokerConfig]
    ) -> None:
        """`config` returns the one in force now."""
        self._store = store
        self._namespace_name = namespace_name
        self._config = config
        self.records = KeptRecords(
            store,
            {
                domain: partitioned_topics_path(namespace_name, domain)
                for domain in (PERSISTENT, NON_PERSISTENT)
            },
            _flaw_in,
        )

    def count(self, topic: TopicName) -> int:
        """Partitions of a topic; 0 when it is not partitioned. Raises: MetadataError."""
        metadata = self.records.of(topic)
        return 0 if metadata is None else int(metadata["partitions"])

    def metadata(self, topic: TopicName) -> Json | None:
        """PartitionedTopicMetadata, None when it is not a partitioned topic. Raises:
        MetadataError."""
        return self.records.of(topic)

    def full_names(self, domain: str) -> Iterator[str]:
        """Full names of the partitioned topics of a domain that exist now, one per step."""
        prefix = f"{domain}://{self._namespace_name}/"
        names = {**self.records.found, **self.records.damage}
        return (prefix + name for kept, name in names if kept == domain)

    def full_names_of_partitions(self, domain: str) -> Iterator[str]:
        """Full names of their partitions, one per step."""
        prefix = f"{domain}://{self._namespace_name}/"
        for (kept, name), metadata in list(self.records.found.items()):
            if kept == domain:
                for index in range(int(metadata["partitions"])):
                    yield f"{prefix}{name}{PARTITION_SUFFIX}{index}"

    async def create(self, topic: TopicName, count: int, properties: dict[str, str] | None) -> None:
        """Make `topic` a partitioned one, without making its partitions. The caller checks that no
        plain topic has its name.

        Raises: Refusal.
        """
        if PARTITION_SUFFIX in topic.local_name:
            raise precondition_failed("Partitioned Topic Name should not contain '-partition-'")
        self.check_count(topic, count)
        metadata: Json = {"partitions": count, "deleted": False}
        if properties:
            metadata["properties"] = properties
        if not await create_json(self._store, self.records.path(topic), metadata):
            raise conflict("This topic already exists")
        self.records.found[topic.domain, topic.local_name] = metadata

    async def make_nodes(self, topic: TopicName, count: int) -> None:
        """Let so many partitions exist, also those that the record does not count yet. Their nodes
        are empty: managed ledgers without ledgers, as Pulsar makes them."""
        if not topic.persistent:
            return

        async def make(index: int) -> None:
            path = managed_ledger_path(topic.partition(index))
            if not await self._store.exists(path):
                with suppress(VersionConflict):
                    await self._store.put(path, b"", MUST_NOT_EXIST)

        await for_each(range(count), make, _NODES_AT_ONCE)

    async def grow(self, topic: TopicName, count: int) -> None:
        """Add partitions. The same number is not an error. Raises: Refusal."""
        self.check_count(topic, count)

        def grown(metadata: Json) -> Json:
            current = int(metadata["partitions"])
            if count < current:
                raise Refusal(
                    422,
                    f"Desired partitions {count} can't be less than the current partitions "
                    f"{current}.",
                )
            return {**metadata, "partitions": count}

        metadata = await change_json(self._store, self.records.path(topic), grown)
        if metadata is None:
            raise conflict(f"Topic {topic.full} is not the partitioned topic.")
        self.records.found[topic.domain, topic.local_name] = metadata
        await self.make_nodes(topic, count)

    async def change_properties(
        self, topic: TopicName, change: Callable[[dict[str, str]], dict[str, str]]
    ) -> None:
        """Replace the properties of a partitioned topic by what `change` makes of a copy of them.
        Raises: Refusal."""

        def changed(old: Json) -> Json:
            return {**old, "properties": change(dict(old.get("properties") or {}))}

        metadata = await change_json(self._store, self.records.path(topic), changed)
        if metadata is None:
            raise not_found(f"Topic {topic.full} not found")
        self.records.found[topic.domain, topic.local_name] = metadata

    async def has_partitions(self, topic: TopicName) -> bool:
        """Whether any partition is stored, at whichever broker."""
        for index in range(self.count(topic)):
            if await self._store.exists(managed_ledger_path(topic.partition(index))):
                return True
        return False

    def is_being_deleted(self, topic: TopicName) -> bool:
        """Whether `deleting` runs for this partitioned topic, at any broker, or was interrupted by
        the end of one. Deleting it again then completes it."""
        return bool((self.records.of(topic) or {}).get("deleted"))

    @asynccontextmanager
    async def deleting(self, topic: TopicName) -> AsyncIterator[None]:
        """Delete the topic: its partitions in this block, then its record. If the block fails the
        topic stays. Raises: Refusal."""
        await self._mark(topic, deleted=True)
        try:
            yield
        except BaseException:
            with trio.CancelScope(shield=True):
                await self._mark(topic, deleted=False)
            raise
        await self._delete(topic)

    async def _mark(self, topic: TopicName, *, deleted: bool) -> None:
        def marked(old: Json) -> Json:
            return {**old, "deleted": deleted}

        metadata = await change_json(self._store, self.records.path(topic), marked)
        if metadata is not None:
            self.records.found[topic.domain, topic.local_name] = metadata

    async def _delete(self, topic: TopicName) -> None:
        try:
            await self._store.delete(self.records.path(topic))
        except NodeNotFound:
            raise not_found(f"Topic {topic.full} not found.") from None
        finally:
            self.records.found.pop((topic.domain, topic.local_name), None)

    def check_count(self, topic: TopicName, count: int) -> None:
        """Raises: Refusal: a topic may not have so many partitions."""
        if count <= 0:
            raise Refusal(406, "Number of partitions should be more than 0")
        limit = self._config().maxNumPartitionsPerPartitionedTopic
        if limit and count > limit:
            raise Refusal(406, f"Number of partitions should be less than or equal to {limit}")
        others = sum(
            int(metadata["partitions"])
            for key, metadata in self.records.found.items()
            if key != (topic.domain, topic.local_name)
        )
        room = PARTITIONS_MAX - others
        if count > room:
            raise Refusal(
                406,
                f"Number of partitions should be less than or equal to {max(room, 0)}: "
                f"a namespace has room for {PARTITIONS_MAX}",
            )


def _flaw_in(metadata: Json) -> str:
    """Why this is no PartitionedTopicMetadata; empty: it is one."""
    count, properties = metadata.get("partitions"), metadata.get("properties")
    if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= PARTITIONS_MAX:
        return f"partitions is not a number from 0 to {PARTITIONS_MAX}"
    if properties is not None and not isinstance(properties, dict):
        return "properties are not a JSON object"
    return ""
