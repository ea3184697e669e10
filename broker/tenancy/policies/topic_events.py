"""The policies of single topics as messages: Avro records in Pulsar's form. Pure.

A message has the full name of the topic as its key, with `__G__` before it if the policies hold in
all clusters, and all policies of the topic as its value. A message without a value says that the
topic no longer has policies.

Vela uses the names of the record of a namespace. Unknown fields of a topic are preserved when
another policy of it changes. Source: topics made by Pulsar 4.0.8.

The Avro library is loaded with the first schema, because most brokers have no policies of topics.
"""

from __future__ import annotations

import io
import json
import struct
from typing import TYPE_CHECKING, Any, Final, final

from broker.tenancy.policies.change_event_schema import EVENT_SCHEMA
from protocol.errors import InvalidTopicName
from protocol.topic_name import TopicName

if TYPE_CHECKING:
    from collections.abc import Mapping

Json = Any

GLOBAL_PREFIX: Final = "__G__"
EVENT_BYTES_MAX: Final = 128 * 1024
"""Policies of two thousand subscriptions. To read so many bytes takes milliseconds."""
BATCH_MAX: Final = 1_000
"""Messages in one. Pulsar writes each by itself."""
SCHEMA_CHARS_MAX: Final = 64 * 1024
"""The schema of Pulsar has 6,000."""
SCHEMA_DEPTH_MAX: Final = 16
"""Levels of types within types; the schema of Pulsar has 10."""
_EVENT: Final = "topicPoliciesEvent"
_UNREADABLE: Final = (
    EOFError,
    IndexError,
    KeyError,
    OverflowError,
    RecursionError,
    TypeError,
    ValueError,
    struct.error,
)
_BYTES_MIN: Final[Mapping[str, int]] = dict.fromkeys(
    ("boolean", "bytes", "double", "float", "int", "long", "string"), 1
)
"""Primitive types without that of null, which takes no byte."""

NAMES: Final[Mapping[str, str]] = {
    "autoSubscriptionCreationOverride": "autoSubscriptionCreationOverride",
    "backlog_quota_map": "backLogQuotaMap",
    "clusterSubscribeRate": "subscribeRate",
    "compaction_threshold": "compactionThreshold",
    "deduplicationEnabled": "deduplicationEnabled",
    "deduplicationSnapshotIntervalSeconds": "deduplicationSnapshotIntervalSeconds",
    "dispatcherPauseOnAckStatePersistentEnabled": "dispatcherPauseOnAckStatePersistentEnabled",
    "entryFilters": "entryFilters",
    "inactive_topic_policies": "inactiveTopicPolicies",
    "max_consumers_per_subscription": "maxConsumersPerSubscription",
    "max_consumers_per_topic": "maxConsumerPerTopic",
    "max_message_size": "maxMessageSize",
    "max_producers_per_topic": "maxProducerPerTopic",
    "max_subscriptions_per_topic": "maxSubscriptionsPerTopic",
    "max_unacked_messages_per_consumer": "maxUnackedMessagesOnConsumer",
    "max_unacked_messages_per_subscription": "maxUnackedMessagesOnSubscription",
    "message_ttl_in_seconds": "messageTTLInSeconds",
    "offload_policies": "offloadPolicies",
    "persistence": "persistence",
    "publishMaxMessageRate": "publishRate",
    "replication_clusters": "replicationClusters",
    "replicatorDispatchRate": "replicatorDispatchRate",
    "retention_policies": "retentionPolicies",
    "schema_compatibility_strategy": "schemaCompatibilityStrategy",
    "schema_validation_enforced": "schemaValidationEnforced",
    "shadowTopics": "shadowTopics",
    "subscriptionPolicies": "subscriptionPolicies",
    "subscription_types_enabled": "subscriptionTypesEnabled",
    "subscriptionDispatchRate": "subscriptionDispatchRate",
    "topicDispatchRate": "dispatchRate",
}
"""Field of a namespace's record -> field of the message. The next two are the exceptions."""
BY_CLUSTER: Final = frozenset(
    {
        "clusterSubscribeRate",
        "publishMaxMessageRate",
        "replicatorDispatchRate",
        "subscriptionDispatchRate",
        "topicDispatchRate",
    }
)
"""Fields with a value for each cluster in the record of a namespace, and one in the message."""
_DELAYED: Final = "delayed_delivery_policies"
_DELAYED_NAMES: Final[Mapping[str, str]] = {
    "active": "delayedDeliveryEnabled",
    "tickTime": "delayedDeliveryTickTimeMillis",
    "maxDeliveryDelayInMillis": "delayedDeliveryMaxDelayInMillis",
}
_NOTHING: Final[Mapping[str, Json]] = {"int": 0, "long": 0, "boolean": False, "string": ""} | {
    "float": 0.0,
    "double": 0.0,
}


class Malformed(Exception):
    """A message that is no policies of a topic. The text says why."""


@final
class EventSchema:
    """One version of the schema, to read and write with.

    Whoever may produce to the log may have registered it. So each value must take a byte of the
    message, and no type may contain itself: with an array of nulls a few bytes would stand for
    billions of values, and a type in itself would use up the stack of the library.
    """

    def __init__(self, text: str | None = None) -> None:
        """None: that of Pulsar 4.0.8. Raises: Malformed."""
        if text is not None and len(text) > SCHEMA_CHARS_MAX:
            raise Malformed(f"its schema has over {SCHEMA_CHARS_MAX} characters")
        import fastavro

        self._avro = fastavro
        try:
            definition = EVENT_SCHEMA if text is None else json.loads(text)
            self._parsed: Json = fastavro.parse_schema(definition)
            self._types: dict[str, Json] = {}
            self._collect(self._parsed)
            self._check_bounded(self._parsed, ())
            fields = self._fields(self._record_in(self._fields(self._parsed)[_EVENT]))
            self._policies = self._fields(self._record_in(fields["policies"]))
        except (fastavro.schema.SchemaParseException, AttributeError, *_UNREADABLE) as error:
            raise Malformed(f"its schema is not one of policies: {error!r}") from None

    def read(self, payload: bytes) -> Json:
        """The whole record. Raises: Malformed."""
        if len(payload) > EVENT_BYTES_MAX:
            raise Malformed(f"its value has over {EVENT_BYTES_MAX} bytes")
        source = io.BytesIO(payload)
        try:
            event = self._avro.schemaless_reader(source, self._parsed, None)
        except _UNREADABLE as error:
            raise Malformed(f"its value cannot be read: {error!r}") from None
        if source.read(1):
            raise Malformed("there are bytes after its end")
        return event

    def write(self, event: Json) -> bytes:
        """The inverse. Numbers that are missing in a record are 0. Raises: Malformed."""
        out = io.BytesIO()
        try:
            self._avro.schemaless_writer(out, self._parsed, self._complete(self._parsed, event))
        except (AttributeError, *_UNREADABLE) as error:
            raise Malformed(f"a value is not one of its policy: {error}") from None
        if out.tell() > EVENT_BYTES_MAX:
            raise Malformed(f"all policies of the topic would have over {EVENT_BYTES_MAX} bytes")
        return out.getvalue()

    def has(self, fields: Mapping[str, Json]) -> bool:
        """Whether it can hold these policies (names of the message)."""
        return fields.keys() <= self._policies.keys()

    def _collect(self, schema: Json) -> None:
        if isinstance(schema, list):
            for each in schema:
                self._collect(each)
        elif isinstance(schema, dict):
            if "name" in schema and schema["type"] in ("record", "enum", "fixed"):
                self._types[schema["name"]] = schema
            for field in schema.get("fields", ()):
                self._collect(field["type"])
            self._collect(schema.get("items") or schema.get("values"))

    def _check_bounded(self, schema: Json, within: tuple[str, ...]) -> None:
        """`within`: the types around it, named or not. Raises: ValueError."""
        if len(within) > SCHEMA_DEPTH_MAX:
            raise ValueError("its types are too deep")
        if isinstance(schema, list):
            for each in schema:
                if each != "null":
                    self._check_bounded(each, (*within, ""))
            return
        kind = schema if isinstance(schema, str) else schema["type"]
        if kind in _BYTES_MIN:
            if not isinstance(schema, str) and "logicalType" in schema:
                raise ValueError("it has logical types")
        elif isinstance(schema, str):
            if schema in within:
                raise ValueError("a type contains itself")
            if schema not in self._types:
                raise ValueError(f"{schema} takes no byte")
        elif kind == "record" and schema["fields"]:
            for field in schema["fields"]:
                self._check_bounded(field["type"], (*within, schema["name"]))
        elif kind in ("array", "map"):
            self._check_bounded(schema["items" if kind == "array" else "values"], (*within, ""))
        elif kind != "enum":
            raise ValueError(f"a type is a {kind}")

    @staticmethod
    def _fields(record: Json) -> dict[str, Json]:
        return {each["name"]: each["type"] for each in record["fields"]}

    def _record_in(self, schema: Json) -> Json:
        (branch,) = (each for each in schema if each != "null")
        return self._types[branch] if isinstance(branch, str) else branch

    def _complete(self, schema: Json, value: Json) -> Json:
        if isinstance(schema, list):
            others = [each for each in schema if each != "null"]
            if value is None and len(others) < len(schema):
                return None
            return self._complete(others[0], value)
        if isinstance(schema, str):
            if schema in self._types:
                return self._complete(self._types[schema], value)
            return _NOTHING[schema] if value is None else value
        if schema["type"] == "record":
            fields = self._fields(schema)
            return {name: self._complete(of, value.get(name)) for name, of in fields.items()}
        if schema["type"] == "array":
            return [self._complete(schema["items"], each) for each in value or ()]
        if schema["type"] == "map":
            values = (value or {}).items()
            return {name: self._complete(schema["values"], each) for name, each in values}
        return value


def message_key(topic: TopicName, *, is_global: bool) -> str:
    """The key of the messages of a topic, which is no partition."""
    return f"{GLOBAL_PREFIX}{topic.full}" if is_global else topic.full


def topic_of(key: str) -> TopicName:
    """The inverse. Raises: Malformed."""
    try:
        return TopicName.parse(key.removeprefix(GLOBAL_PREFIX)).partitioned_base
    except InvalidTopicName as error:
        raise Malformed(f"its key names no topic: {error.message}") from None


def policies_in(event: Json, key: str) -> Json:
    """The policies in a record that was read, names of the message, without what is not set.

    Raises: Malformed: it is about something else than its key says.
    """
    content = event.get(_EVENT)
    if event.get("eventType") != "TOPIC_POLICY" or not content:
        raise Malformed(f"it is a {event.get('eventType')}")
    if event.get("actionType") in ("DELETE", "NONE"):
        return None
    topic = topic_of(key)
    named = [content.get(part) for part in ("domain", "tenant", "namespace", "topic")]
    if named != [topic.domain, topic.tenant, topic.namespace, topic.local_name]:
        raise Malformed(f"it is about {named}")
    said = _said(content.get("policies") or {})
    said.pop("isGlobal", None)  # so says the key
    return said


def event_of(key: str, policies: Mapping[str, Json], cluster: str) -> Json:
    """The record with these policies (names of the message)."""
    topic, is_global = topic_of(key), key.startswith(GLOBAL_PREFIX)
    return {
        "actionType": "UPDATE",
        "eventType": "TOPIC_POLICY",
        "replicateTo": None if is_global else [cluster],
        _EVENT: {
            "domain": topic.domain,
            "tenant": topic.tenant,
            "namespace": topic.namespace,
            "topic": topic.local_name,
            "policies": {
                "backLogQuotaMap": {},
                "subscriptionPolicies": {},
                "subscriptionTypesEnabled": [],
                **policies,
                "isGlobal": is_global,
            },
        },
    }


def fields_in(policies: Mapping[str, Json], cluster: str) -> dict[str, Json]:
    """The policies with the names of a namespace's record."""
    fields: dict[str, Json] = {}
    for name, theirs in NAMES.items():
        value = policies.get(theirs)
        if value is not None:
            fields[name] = {cluster: value} if name in BY_CLUSTER else value
    if policies.get(_DELAYED_NAMES["active"]) is not None:
        delayed = {ours: policies.get(theirs) for ours, theirs in _DELAYED_NAMES.items()}
        fields[_DELAYED] = {name: each for name, each in delayed.items() if each is not None}
    return fields


def with_fields(
    policies: Mapping[str, Json], changes: Mapping[str, Json], cluster: str
) -> dict[str, Json]:
    """A copy of the policies (names of the message) with these fields of a namespace's record in
    place of theirs; None removes one. Raises: KeyError: no topic has such a field."""
    changed = dict(policies)
    for name, value in changes.items():
        if name == _DELAYED:
            changed |= {theirs: (value or {}).get(ours) for ours, theirs in _DELAYED_NAMES.items()}
        elif name in BY_CLUSTER:
            changed[NAMES[name]] = (value or {}).get(cluster)
        else:
            changed[NAMES[name]] = value
    return {name: each for name, each in changed.items() if each not in (None, {}, [])}


def _said(value: Json) -> Json:
    """Without null, and without empty lists and maps, which set nothing."""
    if isinstance(value, dict):
        said = {name: _said(each) for name, each in value.items()}
        return {name: each for name, each in said.items() if each not in (None, {}, [])}
    return value
