"""The messages of `__change_events`, in which Pulsar keeps the policies of single topics. Pure.

A message has all policies of one topic. Its key is the full name of the topic, which is never a
partition; policies for all clusters together have a prefix before it. A message without a payload
says that the topic has none any more. The newest message of a key counts. Observed on 4.0.8.

Policies have other names here than in the record of a namespace, whose names Vela uses for both.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

import fastavro

from broker.policies.change_event_schema import EVENT_SCHEMA
from protocol.topic_name import TopicName

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Json = dict[str, Any]

_SCHEMA: Final = fastavro.parse_schema(EVENT_SCHEMA)
GLOBAL_PREFIX: Final = "__G__"
_SAME_NAMES: Final = frozenset(
    {
        "autoSubscriptionCreationOverride",
        "deduplicationEnabled",
        "deduplicationSnapshotIntervalSeconds",
        "dispatcherPauseOnAckStatePersistentEnabled",
        "entryFilters",
        "persistence",
        "shadowTopics",
        "subscriptionPolicies",
    }
)
_NAMES: Final[Mapping[str, str]] = {
    **{name: name for name in _SAME_NAMES},
    "backLogQuotaMap": "backlog_quota_map",
    "compactionThreshold": "compaction_threshold",
    "inactiveTopicPolicies": "inactive_topic_policies",
    "maxConsumerPerTopic": "max_consumers_per_topic",
    "maxConsumersPerSubscription": "max_consumers_per_subscription",
    "maxMessageSize": "max_message_size",
    "maxProducerPerTopic": "max_producers_per_topic",
    "maxSubscriptionsPerTopic": "max_subscriptions_per_topic",
    "maxUnackedMessagesOnConsumer": "max_unacked_messages_per_consumer",
    "maxUnackedMessagesOnSubscription": "max_unacked_messages_per_subscription",
    "messageTTLInSeconds": "message_ttl_in_seconds",
    "offloadPolicies": "offload_policies",
    "replicationClusters": "replication_clusters",
    "retentionPolicies": "retention_policies",
    "schemaCompatibilityStrategy": "schema_compatibility_strategy",
    "schemaValidationEnforced": "schema_validation_enforced",
    "subscriptionTypesEnabled": "subscription_types_enabled",
}
"""Of events, and of the record of a namespace."""
_NAMES_BY_CLUSTER: Final[Mapping[str, str]] = {
    "dispatchRate": "topicDispatchRate",
    "publishRate": "publishMaxMessageRate",
    "replicatorDispatchRate": "replicatorDispatchRate",
    "subscribeRate": "clusterSubscribeRate",
    "subscriptionDispatchRate": "subscriptionDispatchRate",
}
"""The same for policies that a record has for each cluster, and an event for one."""
_DELAY_FIELD: Final = "delayed_delivery_policies"
_DELAYS: Final[Mapping[str, str]] = {
    "delayedDeliveryEnabled": "active",
    "delayedDeliveryTickTimeMillis": "tickTime",
    "delayedDeliveryMaxDelayInMillis": "maxDeliveryDelayInMillis",
}
"""Parts of one policy in a record, and policies of their own in an event."""
_NEVER_NULL: Final[Mapping[str, Any]] = {
    "backLogQuotaMap": {},
    "subscriptionPolicies": {},
    "subscriptionTypesEnabled": [],
}
"""Pulsar writes these when nothing is set."""


@final
@dataclass(frozen=True, slots=True)
class ChangeEvent:
    """What one message says."""

    topic: TopicName
    is_global: bool
    record: Json | None
    """The policies, with the names of a namespace's record; None: there are none any more."""


def key_of(topic: TopicName, *, is_global: bool = False) -> str:
    """The key of the messages about a topic."""
    return f"{GLOBAL_PREFIX if is_global else ''}{topic.full}"


def encode(topic: TopicName, record: Mapping[str, Any], cluster: str) -> bytes:
    """The payload that gives the topic these policies in this cluster.

    Raises: ValueError: a policy has no place in an event, or a value is of another type.
    """
    policies = dict(_NEVER_NULL)
    policies.update(_policies_of(record, cluster))
    event = {
        "actionType": "UPDATE",
        "eventType": "TOPIC_POLICY",
        "replicateTo": [cluster],
        "topicPoliciesEvent": {
            "domain": topic.domain,
            "tenant": topic.tenant,
            "namespace": topic.namespace,
            "topic": topic.local_name,
            "policies": {**policies, "isGlobal": False},
        },
    }
    out = io.BytesIO()
    try:
        fastavro.schemaless_writer(out, _SCHEMA, event)
    except (TypeError, ValueError, AttributeError, KeyError, OverflowError) as error:
        raise ValueError(f"the policies of {topic.full} fit in no event: {error}") from None
    return out.getvalue()


def _policies_of(record: Mapping[str, Any], cluster: str) -> Iterator[tuple[str, Any]]:
    known = {_DELAY_FIELD, *_NAMES.values(), *_NAMES_BY_CLUSTER.values()}
    if unknown := record.keys() - known:
        raise ValueError(f"no event has a place for {', '.join(sorted(unknown))}")
    for name, field in _NAMES.items():
        if record.get(field) is not None:
            yield name, record[field]
    for name, field in _NAMES_BY_CLUSTER.items():
        value = (record.get(field) or {}).get(cluster)
        if value is not None:
            yield name, value
    delays = record.get(_DELAY_FIELD) or {}
    for name, part in _DELAYS.items():
        if delays.get(part) is not None:
            yield name, delays[part]


def decode(key: str, payload: bytes, cluster: str) -> ChangeEvent | None:
    """What a message says; None: it is not about the policies of a topic.

    Raises: ValueError: it says nothing that could be understood.
    """
    is_global = key.startswith(GLOBAL_PREFIX)
    topic = TopicName.parse(key.removeprefix(GLOBAL_PREFIX))
    if not payload:
        return ChangeEvent(topic, is_global, None)
    source = io.BytesIO(payload)
    try:
        event: Any = fastavro.schemaless_reader(source, _SCHEMA, None)
    except Exception as error:  # of any kind: the bytes are a stranger's
        raise ValueError(f"no event of Pulsar 4.0: {error}") from None
    if source.read(1):
        raise ValueError("no event of Pulsar 4.0: there are bytes after its end")
    if event["eventType"] != "TOPIC_POLICY":
        return None
    policies = (event["topicPoliciesEvent"] or {}).get("policies")
    return ChangeEvent(topic, is_global, None if policies is None else _record(policies, cluster))


def _record(policies: Mapping[str, Any], cluster: str) -> Json:
    said = {
        name: value
        for name, value in policies.items()
        if value is not None and value != _NEVER_NULL.get(name)
    }
    record = {field: said[name] for name, field in _NAMES.items() if name in said}
    record.update(
        (field, {cluster: said[name]}) for name, field in _NAMES_BY_CLUSTER.items() if name in said
    )
    delays = {part: said[name] for name, part in _DELAYS.items() if name in said}
    if delays:
        record[_DELAY_FIELD] = delays
    return record
