"""The schemas of topics, with versions: what PRODUCER, SUBSCRIBE, GET_SCHEMA and REST ask.

One node per version, `/schemas/<namespace>/<encoded topic>/<version>`, written with "must not
exist": two that register the same schema at the same moment get the same version, because the
loser reads again and finds the winner's. A deletion is a version too (a tombstone), so that numbers
are never given twice; a forced deletion forgets all of them and starts again at 0.

All partitions of a topic share its schemas, and so do both domains, as in Pulsar.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from broker.metadata.store import NodeNotFound
from broker.namespaces.json_nodes import create_json, read_json
from broker.namespaces.names import SCHEMAS_PATH
from broker.schemas.compatibility import (
    check_compatible,
    check_valid,
    consumer_strategy,
    is_same,
)
from broker.schemas.schema_info import InvalidSchema, SchemaInfo
from protocol.errors import IncompatibleSchema
from protocol.topic_name import encode_name

if TYPE_CHECKING:
    from broker.config import BrokerConfig
    from broker.metadata.store import MetadataStore
    from broker.namespaces.policies import Policies
    from broker.seams import Clock
    from protocol import pulsar_api_pb2 as pb
    from protocol.topic_name import TopicName

Json = dict[str, Any]

_VERSION: Final = struct.Struct(">q")
_CACHED_TOPICS_MAX: Final = 10_000
NO_VERSION: Final = b""
"""schema_version of a topic without a schema."""


def version_bytes(version: int) -> bytes:
    """A version as it stands in PRODUCER_SUCCESS and in message metadata."""
    return _VERSION.pack(version)


def version_number(version: bytes) -> int | None:
    """The inverse; None for bytes that are no version."""
    return _VERSION.unpack(version)[0] if len(version) == _VERSION.size else None


@final
@dataclass(frozen=True, slots=True)
class StoredSchema:
    """One version. `schema` is None for a tombstone."""

    version: int
    schema: SchemaInfo | None
    timestamp_ms: int


@final
class SchemaRegistry:
    """All schemas of all topics."""

    def __init__(self, store: MetadataStore, clock: Clock, config: BrokerConfig) -> None:
        self._store = store
        self._clock = clock
        self._config = config
        self._cache: OrderedDict[str, list[StoredSchema]] = OrderedDict()
        self._writes = 0
        """So that what was read while something was written is not kept."""

    def use(self, config: BrokerConfig) -> None:
        """Obey another configuration from now on."""
        self._config = config

    # --- what clients ask ---------------------------------------------------------------

    async def for_producer(
        self, topic: TopicName, schema: pb.Schema | None, policies: Policies
    ) -> bytes:
        """Register (or find) the schema of a producer; answers its `schema_version`.

        Raises: BrokerError IncompatibleSchema.
        """
        if schema is None or is_no_schema(schema):
            enforced = policies.schema_validation_enforced(self._config)
            if enforced and await self.latest(topic) is not None:
                raise IncompatibleSchema(
                    "Producers cannot connect or send message without a schema to topics with a "
                    "schema when SchemaValidationEnforced is enabled"
                )
            return NO_VERSION
        version = await self.put(
            topic,
            SchemaInfo.from_wire(schema),
            policies.schema_strategy(self._config),
            allow_new=policies.allows_schema_update(self._config),
        )
        return version_bytes(version)

    async def for_consumer(
        self,
        topic: TopicName,
        schema: pb.Schema | None,
        policies: Policies,
        *,
        topic_active: bool,
    ) -> None:
        """Check the schema of a consumer, or register it on an idle topic without one.

        `topic_active`: the topic has producers, consumers or messages already.

        Raises: BrokerError IncompatibleSchema.
        """
        if schema is None or is_no_schema(schema):
            return
        info = SchemaInfo.from_wire(schema)
        strategy = policies.schema_strategy(self._config)
        existing = await self.all(topic)
        if existing:
            _check_valid_for_client(info)
            if not any(is_same(each, info) for each in _schemas(existing)):
                check_compatible(_schemas(existing), info, consumer_strategy(strategy))
        elif topic_active:
            raise IncompatibleSchema(
                "Failed to add schema to an active topic with empty(BYTES) schema: "
                f"new schema type {info.type_name}"
            )
        else:
            allowed = policies.allows_schema_update(self._config)
            await self.put(topic, info, strategy, allow_new=allowed)

    # --- versions -----------------------------------------------------------------------

    async def put(
        self, topic: TopicName, schema: SchemaInfo, strategy: str, *, allow_new: bool = True
    ) -> int:
        """The version of the schema: an existing one, or a new one if it may follow.

        Raises: BrokerError IncompatibleSchema.
        """
        _check_valid_for_client(schema)
        schema_id = schema_id_of(topic)
        versions = await self._load(schema_id)
        while True:
            live = _live(versions)
            for each in live:
                if each.schema is not None and is_same(each.schema, schema):
                    return each.version
            if not allow_new:
                raise IncompatibleSchema("Schema not found and schema auto updating is disabled.")
            check_compatible(_schemas(live), schema, strategy)
            version = versions[-1].version + 1 if versions else 0
            added = StoredSchema(version, schema, self._clock.wall_ms())
            path = f"{SCHEMAS_PATH}/{schema_id}/{version}"
            if await create_json(self._store, path, schema.to_stored(added.timestamp_ms)):
                self._forget(schema_id)
                return version
            self._forget(schema_id)
            versions = await self._load(schema_id)

    async def find_version(self, topic: TopicName, schema: SchemaInfo) -> int:
        """The version of an equal schema, -1 when there is none."""
        for each in await self.all(topic):
            if each.schema is not None and is_same(each.schema, schema):
                return each.version
        return -1

    async def check(self, topic: TopicName, schema: SchemaInfo, strategy: str) -> None:
        """Could it be registered? Raises: BrokerError IncompatibleSchema."""
        _check_valid_for_client(schema)
        check_compatible(_schemas(await self.all(topic)), schema, strategy)

    async def get(self, topic: TopicName, version: int | None) -> StoredSchema | None:
        """One version, None = the newest; None when there is no such schema."""
        if version is None:
            return await self.latest(topic)
        for each in await self._load(schema_id_of(topic)):
            if each.version == version and each.schema is not None:
                return each
        return None

    async def latest(self, topic: TopicName) -> StoredSchema | None:
        """The schema in force; None when there is none."""
        live = await self.all(topic)
        return live[-1] if live else None

    async def all(self, topic: TopicName) -> list[StoredSchema]:
        """Every version since the last deletion, oldest first."""
        return _live(await self._load(schema_id_of(topic)))

    async def delete(self, topic: TopicName, *, force: bool = False) -> int:
        """Delete the schema; answers the version of the tombstone, -1 when forced."""
        schema_id = schema_id_of(topic)
        while True:
            versions = await self._load(schema_id)
            if force:
                for each in versions:
                    try:
                        await self._store.delete(f"{SCHEMAS_PATH}/{schema_id}/{each.version}")
                    except NodeNotFound:
                        continue
                self._forget(schema_id)
                return -1
            version = versions[-1].version + 1 if versions else 0
            record = {"deleted": True, "timestamp": self._clock.wall_ms()}
            path = f"{SCHEMAS_PATH}/{schema_id}/{version}"
            created = await create_json(self._store, path, record)
            self._forget(schema_id)
            if created:
                return version

    def _forget(self, schema_id: str) -> None:
        self._writes += 1
        self._cache.pop(schema_id, None)

    async def _load(self, schema_id: str) -> list[StoredSchema]:
        cached = self._cache.get(schema_id)
        if cached is not None:
            self._cache.move_to_end(schema_id)
            return cached
        parent = f"{SCHEMAS_PATH}/{schema_id}"
        versions: list[StoredSchema] = []
        writes = self._writes
        for number in sorted(map(int, await self._store.children(parent))):
            record = await read_json(self._store, f"{parent}/{number}")
            if record is not None:
                schema = None if record.get("deleted") else SchemaInfo.from_stored(record)
                versions.append(StoredSchema(number, schema, int(record["timestamp"])))
        if writes == self._writes:
            self._cache[schema_id] = versions
        if len(self._cache) > _CACHED_TOPICS_MAX:
            self._cache.popitem(last=False)
        return versions


def schema_id_of(topic: TopicName) -> str:
    """The id schemas are kept under: the namespace and the encoded name without partition."""
    return f"{topic.namespace_name}/{encode_name(topic.partitioned_base.local_name)}"


def is_no_schema(schema: pb.Schema) -> bool:
    """AUTO_CONSUME says nothing about the messages. BYTES (NONE on the wire) does when it is sent:
    real Pulsar registers it as any other, and only clients that mean it, as Go's, send it."""
    return SchemaInfo.from_wire(schema).type_name == "AUTO_CONSUME"


def _live(versions: list[StoredSchema]) -> list[StoredSchema]:
    live: list[StoredSchema] = []
    for each in versions:
        if each.schema is None:
            live = []
        else:
            live.append(each)
    return live


def _schemas(versions: list[StoredSchema]) -> list[SchemaInfo]:
    return [each.schema for each in versions if each.schema is not None]


def _check_valid_for_client(schema: SchemaInfo) -> None:
    try:
        check_valid(schema)
    except InvalidSchema as error:
        raise IncompatibleSchema(str(error)) from error
