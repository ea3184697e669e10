"""Partitioned topics: a partitioned topic is only a number; each partition is a topic of its own.

Stored at `/admin/partitioned-topics/<namespace>/<domain>/<encoded name>` as Pulsar's
PartitionedTopicMetadata. The partitions themselves need no record: `X-partition-i` exists while
`i` is below the stored number.

All records of a namespace are loaded once, so that a query about a topic, partitioned or not, costs
a dictionary look-up: every client sends one before it connects. A watch reports later writes, here
or by another broker, and the records are read again before the next answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

from broker.namespaces.json_nodes import change_json, create_json, read_json
from broker.namespaces.names import partitioned_topics_path
from broker.refusal import Refusal, conflict, not_found, precondition_failed
from metadata.store import NodeNotFound
from protocol.topic_name import (
    NON_PERSISTENT,
    PARTITION_SUFFIX,
    PERSISTENT,
    TopicName,
    decode_name,
    encode_name,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from broker.config import BrokerConfig
    from metadata.store import MetadataStore

Json = dict[str, Any]

PARTITIONS_MAX: Final = 100_000
"""Of all topics of a namespace: a list of its topics names each partition."""


@final
class PartitionedTopics:
    """The partitioned topics of one namespace."""

    def __init__(self, store: MetadataStore, namespace_name: str, config: BrokerConfig) -> None:
        self._store = store
        self._namespace_name = namespace_name
        self._config = config
        self._metadata: dict[tuple[str, str], Json] = {}
        self._is_loaded = False
        self._loads_void = 0
        """How often all records may have changed: what was read before is void."""
        self._changed: set[tuple[str, str]] = set()
        """(domain, encoded name) of records to be read again."""

    @property
    def is_current(self) -> bool:
        """Whether all records have been read and none has changed since."""
        return self._is_loaded and not self._changed

    def changed(self, place: str) -> None:
        """The record at `<domain>/<encoded name>` has changed since it was read."""
        domain, _, element = place.partition("/")
        if element:
            self._changed.add((domain, element))

    def all_changed(self) -> None:
        """Any record may have changed since it was read."""
        self._is_loaded = False
        self._loads_void += 1

    async def refresh(self) -> None:
        """Read all records once, and changed ones again."""
        while not self._is_loaded:
            void = self._loads_void
            found = await self._load()
            if void == self._loads_void:
                self._metadata = found
                self._is_loaded = True
        while self._changed:
            domain, element = key = self._changed.pop()
            try:
                path = f"{partitioned_topics_path(self._namespace_name, domain)}/{element}"
                metadata = await read_json(self._store, path)
            except BaseException:
                self._changed.add(key)
                raise
            if metadata is None:
                self._metadata.pop((domain, decode_name(element)), None)
            else:
                self._metadata[domain, decode_name(element)] = metadata

    async def _load(self) -> dict[tuple[str, str], Json]:
        found: dict[tuple[str, str], Json] = {}
        for domain in (PERSISTENT, NON_PERSISTENT):
            path = partitioned_topics_path(self._namespace_name, domain)
            for element in await self._store.children(path):
                metadata = await read_json(self._store, f"{path}/{element}")
                if metadata is not None:
                    found[domain, decode_name(element)] = metadata
        return found

    def count(self, topic: TopicName) -> int:
        """Partitions of a topic; 0 when it is not partitioned."""
        metadata = self._metadata.get((topic.domain, topic.local_name))
        return 0 if metadata is None else int(metadata["partitions"])

    def metadata(self, topic: TopicName) -> Json | None:
        """PartitionedTopicMetadata, None when it is not a partitioned topic."""
        return self._metadata.get((topic.domain, topic.local_name))

    def full_names(self, domain: str) -> Iterator[str]:
        """Full names of the partitioned topics of a domain that exist now, one per step."""
        prefix = f"{domain}://{self._namespace_name}/"
        return (prefix + name for kept, name in list(self._metadata) if kept == domain)

    def full_names_of_partitions(self, domain: str) -> Iterator[str]:
        """Full names of their partitions, one per step."""
        prefix = f"{domain}://{self._namespace_name}/"
        for (kept, name), metadata in list(self._metadata.items()):
            if kept == domain:
                for index in range(int(metadata["partitions"])):
                    yield f"{prefix}{name}{PARTITION_SUFFIX}{index}"

    async def create(self, topic: TopicName, count: int, properties: dict[str, str] | None) -> None:
        """Make `topic` a partitioned one. The caller checks that no plain topic has its name.

        Raises: Refusal.
        """
        if PARTITION_SUFFIX in topic.local_name:
            raise precondition_failed("Partitioned Topic Name should not contain '-partition-'")
        self._check_count(topic, count)
        metadata: Json = {"partitions": count, "deleted": False}
        if properties:
            metadata["properties"] = properties
        if not await create_json(self._store, self._path(topic), metadata):
            raise conflict("This topic already exists")
        self._metadata[topic.domain, topic.local_name] = metadata

    async def grow(self, topic: TopicName, count: int) -> None:
        """Add partitions. The same number is not an error. Raises: Refusal."""
        self._check_count(topic, count)

        def grown(metadata: Json) -> Json:
            current = int(metadata["partitions"])
            if count < current:
                raise Refusal(
                    422,
                    f"Desired partitions {count} can't be less than the current partitions "
                    f"{current}.",
                )
            return {**metadata, "partitions": count}

        metadata = await change_json(self._store, self._path(topic), grown)
        if metadata is None:
            raise conflict(f"Topic {topic.full} is not the partitioned topic.")
        self._metadata[topic.domain, topic.local_name] = metadata

    async def change_properties(
        self, topic: TopicName, change: Callable[[dict[str, str]], dict[str, str]]
    ) -> None:
        """Replace the properties of a partitioned topic by what `change` makes of a copy of them.
        Raises: Refusal."""

        def changed(old: Json) -> Json:
            return {**old, "properties": change(dict(old.get("properties") or {}))}

        metadata = await change_json(self._store, self._path(topic), changed)
        if metadata is None:
            raise not_found(f"Topic {topic.full} not found")
        self._metadata[topic.domain, topic.local_name] = metadata

    async def delete(self, topic: TopicName) -> None:
        """Delete its record. The caller deletes the partitions. Raises: Refusal."""
        try:
            await self._store.delete(self._path(topic))
        except NodeNotFound:
            raise not_found(f"Topic {topic.full} not found.") from None
        finally:
            self._metadata.pop((topic.domain, topic.local_name), None)

    def _check_count(self, topic: TopicName, count: int) -> None:
        if count <= 0:
            raise Refusal(406, "Number of partitions should be more than 0")
        limit = self._config.maxNumPartitionsPerPartitionedTopic
        if limit and count > limit:
            raise Refusal(406, f"Number of partitions should be less than or equal to {limit}")
        others = sum(
            int(metadata["partitions"])
            for key, metadata in self._metadata.items()
            if key != (topic.domain, topic.local_name)
        )
        room = PARTITIONS_MAX - others
        if count > room:
            raise Refusal(
                406,
                f"Number of partitions should be less than or equal to {max(room, 0)}: "
                f"a namespace has room for {PARTITIONS_MAX}",
            )

    def _path(self, topic: TopicName) -> str:
        parent = partitioned_topics_path(self._namespace_name, topic.domain)
        return f"{parent}/{encode_name(topic.local_name)}"
