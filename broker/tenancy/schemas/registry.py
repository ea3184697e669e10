"""The schemas of topics, with versions, for PRODUCER, SUBSCRIBE, GET_SCHEMA and REST.

They are stored as in Pulsar (`SchemaLedgers`). If two clients register the same schema at the same
time they get the same version, because the loser reads again and finds the winner's. A deletion is
a version too, so that numbers are never used twice. A forced deletion removes all versions and
starts again at 0.

Versions that were read are kept until a watch reports that the list of a topic has changed, which
another broker may do. Then only the list and new versions are read: versions never change.

All partitions of a topic share its schemas, and so do both domains, as in Pulsar.
"""

from __future__ import annotations

import hashlib
import struct
from typing import TYPE_CHECKING, Any, Final, TypeVar, final

from broker.tenancy.schemas.checker import SchemaChecker
from broker.tenancy.schemas.compatibility import (
    check_compatible,
    check_consumer,
    check_valid,
    find_same,
)
from broker.tenancy.schemas.schema_cache import LoadedSchemas, SchemaCache
from broker.tenancy.schemas.schema_info import InvalidSchema, SchemaInfo
from broker.tenancy.schemas.schema_ledgers import SchemaLedgers, SchemaLost
from protocol.errors import IncompatibleSchema
from protocol.topic_name import encode_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.ground.config import BrokerConfig
    from broker.tenancy.policies.effective import EffectivePolicies
    from broker.tenancy.schemas.budget import Budget
    from broker.tenancy.schemas.schema_format import StoredSchema
    from ledgers.client import LedgerClient
    from metadata.store import MetadataStore
    from protocol import pulsar_api_pb2 as pb
    from protocol.topic_name import TopicName
    from runtime.clock import Clock

Json = dict[str, Any]

_VERSION: Final = struct.Struct(">q")
Result = TypeVar("Result")
NO_VERSION: Final = b""
"""schema_version of a topic without a schema."""
DELETED: Final = SchemaInfo("NONE", b"")
"""Content of the newest version after the schema is deleted."""


def version_bytes(version: int) -> bytes:
    """A version in the form used in PRODUCER_SUCCESS and message metadata."""
    return _VERSION.pack(version)


def version_number(version: bytes) -> int | None:
    """The inverse; None for bytes that are not a version."""
    return _VERSION.unpack(version)[0] if len(version) == _VERSION.size else None


@final
class SchemaRegistry:
    """All schemas of all topics."""

    def __init__(
        self, store: MetadataStore, ledgers: LedgerClient, clock: Clock, config: BrokerConfig
    ) -> None:
        self.ledgers = SchemaLedgers(store, ledgers, clock)
        self._cache = SchemaCache(store, self.ledgers)
        self._config = config
        self._checker = SchemaChecker(config)

    def use(self, config: BrokerConfig) -> None:
        """Apply another configuration from now on."""
        self._config = config
        self._checker.use(config)

    # --- what clients ask ---------------------------------------------------------------

    async def for_producer(
        self, topic: TopicName, schema: pb.Schema | None, policies: EffectivePolicies
    ) -> bytes:
        """Register (or find) the schema of a producer. Returns its `schema_version`.

        Raises: BrokerError: as `find_or_add`; IncompatibleSchema: AUTO_CONSUME, which is of no
            message.
        """
        if schema is not None and is_auto_consume(schema):
            raise IncompatibleSchema(
                "AUTO_CONSUME is a schema of consumers only: create the producer with the schema of"
                " its messages, or without one"
            )
        if schema is None:
            enforced = policies.schema_validation_enforced
            if enforced and await self.latest(topic) is not None:
                raise IncompatibleSchema(
                    "Producers cannot connect or send message without a schema to topics with a "
                    "schema when SchemaValidationEnforced is enabled"
                )
            return NO_VERSION
        version = await self._put_of_client(topic, SchemaInfo.from_wire(schema), policies)
        return version_bytes(version)

    async def for_consumer(
        self,
        topic: TopicName,
        schema: pb.Schema | None,
        policies: EffectivePolicies,
        *,
        is_in_use: Callable[[], bool],
    ) -> None:
        """Check the schema of a consumer, or register it on a topic without one that is not in use.

        `is_in_use`: whether the topic has messages, producers, or consumers that did not say
        AUTO_CONSUME. Their messages may be of any schema, so that under all strategies but
        ALWAYS_COMPATIBLE a consumer with a schema is refused. Asked only where there is no schema.

        Raises: BrokerError: as `find_or_add`.
        """
        if schema is None or is_auto_consume(schema):
            return
        info = SchemaInfo.from_wire(schema)
        loaded = await self._cache.load(schema_id_of(topic))
        existing = loaded.schemas()
        if existing:
            strategy = policies.schema_strategy
            await self._check(
                loaded,
                ("consumer", strategy),
                lambda budget: check_consumer(existing, info, strategy, budget),
                info,
            )
        elif not is_in_use():
            await self._put_of_client(topic, info, policies)
        elif policies.schema_strategy != "ALWAYS_COMPATIBLE":
            raise IncompatibleSchema(
                "Failed to add schema to an active topic with empty(BYTES) schema: "
                f"new schema type {info.type_name}"
            )

    async def _put_of_client(
        self, topic: TopicName, schema: SchemaInfo, policies: EffectivePolicies
    ) -> int:
        try:
            return await self.find_or_add(
                topic,
                schema,
                policies.schema_strategy,
                allow_new=policies.schema_auto_update,
            )
        except InvalidSchema as error:
            raise IncompatibleSchema(str(error)) from error

    # --- versions -----------------------------------------------------------------------

    async def find_or_add(
        self, topic: TopicName, schema: SchemaInfo, strategy: str, *, allow_new: bool = True
    ) -> int:
        """The version of the schema: an existing one, or a new one if it may follow.

        Raises: InvalidSchema: it is not valid; BrokerError: IncompatibleSchema: it may not follow,
        or is too large or too complex; UnknownError, see `find_same`; ServiceNotReady,
        PersistenceError, MetadataUnavailable: try again.
        """
        schema_id = schema_id_of(topic)
        while True:
            loaded = await self._cache.load(schema_id)
            live = loaded.live()
            found = await self._find_or_check(loaded, schema, strategy, allow_new=allow_new)
            if found is not None:
                return live[found].version
            version = await self._cache.add(schema_id, loaded, schema)
            if version is not None:
                return version

    async def _find_or_check(
        self, loaded: LoadedSchemas, schema: SchemaInfo, strategy: str, *, allow_new: bool
    ) -> int | None:
        """Index of the schema among the live ones; None: it is new and may follow them."""
        existing = loaded.schemas()

        def check(budget: Budget) -> int | None:
            if allow_new:
                check_valid(schema, budget)
            found = find_same(existing, schema, budget)
            if found is not None:
                return found
            if not allow_new:
                raise IncompatibleSchema("Schema not found and schema auto updating is disabled.")
            check_compatible(existing, schema, strategy, budget)
            return None

        return await self._check(loaded, ("put", strategy, allow_new), check, schema)

    async def find_version(self, topic: TopicName, schema: SchemaInfo) -> int:
        """The version of the schema with exactly these bytes, -1 when there is none."""
        wanted = (schema.type_name, schema.data)
        for each in await self.all(topic):
            if each.schema is not None and (each.schema.type_name, each.schema.data) == wanted:
                return each.version
        return -1

    async def check(self, topic: TopicName, schema: SchemaInfo, strategy: str) -> None:
        """Check whether it could be registered. Raises: as `find_or_add`."""
        loaded = await self._cache.load(schema_id_of(topic))
        existing = loaded.schemas()

        def check(budget: Budget) -> None:
            check_valid(schema, budget)
            check_compatible(existing, schema, strategy, budget)

        await self._check(loaded, ("check", strategy), check, schema)

    async def posted(self, body: Json) -> SchemaInfo:
        """The schema of a REST body.

        Raises: Refusal, InvalidSchema, BrokerError as `find_or_add`.
        """
        text = body.get("schema")
        if isinstance(text, str):
            self._checker.check_size(len(text))
        properties = body.get("properties")
        if isinstance(properties, dict):
            self._checker.check_properties(len(properties))
        return await self._checker.run(lambda _budget: SchemaInfo.from_rest(body))

    async def _check(
        self,
        loaded: LoadedSchemas,
        what: tuple[object, ...],
        check: Callable[[Budget], Result],
        schema: SchemaInfo,
    ) -> Result:
        """Run a check, unless it succeeded before: many clients have the same schema."""
        self._checker.check_properties(len(schema.properties))
        self._checker.check_size(schema.size_bytes)
        key = (*what, schema.type_name, hashlib.sha256(schema.data).digest())
        if key in loaded.verdicts:
            known: Result = loaded.verdicts[key]  # type: ignore[assignment]
            return known
        result = await self._checker.run(check)
        loaded.remember(key, result)
        return result

    async def get(self, topic: TopicName, version: int) -> StoredSchema | None:
        """One version; None when there is none, or it was deleted."""
        for each in await self.all(topic):
            if each.version == version:
                return each
        return None

    async def newest(self, topic: TopicName) -> StoredSchema | None:
        """The newest version, which is a deletion when the schema has been deleted."""
        versions = (await self._cache.load(schema_id_of(topic))).versions
        return versions[-1] if versions else None

    async def latest(self, topic: TopicName) -> StoredSchema | None:
        """The schema in force; None when there is none."""
        live = await self.all(topic)
        return live[-1] if live else None

    async def all(self, topic: TopicName) -> list[StoredSchema]:
        """Every version since the last deletion, oldest first."""
        return (await self._cache.load(schema_id_of(topic))).live()

    async def ledgers_of(self, topic: TopicName) -> list[int]:
        """The ledgers of all versions, oldest first; none of a list that cannot be read.

        Raises: MetadataUnavailable.
        """
        try:
            locator = await self.ledgers.locator(schema_id_of(topic))
        except SchemaLost:
            return []
        return list(dict.fromkeys(each.ledger_id for each in locator.index))

    async def delete(self, topic: TopicName, *, force: bool = False) -> int:
        """Delete the schema. Returns the version of the deletion, -1 when forced: then its history
        and its ledgers are deleted, too.

        Raises: PersistenceError, MetadataUnavailable.
        """
        schema_id = schema_id_of(topic)
        if not force:
            return await self._cache.add_deletion(schema_id)
        await self._cache.delete(schema_id)
        return -1


def schema_id_of(topic: TopicName) -> str:
    """The id of a topic's schemas: the namespace and the encoded name without partition."""
    return f"{topic.namespace_name}/{encode_name(topic.partitioned_base.local_name)}"


def is_auto_consume(schema: pb.Schema) -> bool:
    """AUTO_CONSUME says nothing about the messages. BYTES (NONE on the wire) does when it is sent:
    real Pulsar registers it like any other, and only clients that mean it, such as Go's, send
    it."""
    return SchemaInfo.from_wire(schema).type_name == "AUTO_CONSUME"
