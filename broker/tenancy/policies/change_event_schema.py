"""The Avro schema of the events in `__change_events`. Pure.

Names, types and their order are those that Pulsar 4.0.8 registers for the topic, so that a broker
of either kind finds the version that the other one has registered. Every field may be null, except
for those of a primitive type of Java.
"""

from __future__ import annotations

import json
from typing import Any, Final

Json = Any

_POLICIES: Final = "org.apache.pulsar.common.policies.data"
_IMPLEMENTED: Final = f"{_POLICIES}.impl"


def _optional(name: str, kind: Json) -> Json:
    return {"name": name, "type": ["null", kind], "default": None}


def _always(name: str, kind: Json) -> Json:
    return {"name": name, "type": kind}


def _record(name: str, *fields: Json, namespace: str = "") -> Json:
    where = {"namespace": namespace} if namespace else {}
    return {"type": "record", "name": name, **where, "fields": list(fields)}


def _enum(name: str, *symbols: str, namespace: str = "") -> Json:
    where = {"namespace": namespace} if namespace else {}
    return {"type": "enum", "name": name, **where, "symbols": list(symbols)}


def _array(items: Json, java_class: str) -> Json:
    return {"type": "array", "items": items, "java-class": f"java.util.{java_class}"}


def _map(values: Json) -> Json:
    return {"type": "map", "values": values}


def _all_optional(kind: str, *names: str) -> dict[str, str]:
    return dict.fromkeys(names, kind)


_DISPATCH_RATE: Final = _record(
    "DispatchRateImpl",
    _always("dispatchThrottlingRateInByte", "long"),
    _always("dispatchThrottlingRateInMsg", "int"),
    _always("ratePeriodInSecond", "int"),
    _always("relativeToPublishRate", "boolean"),
    namespace=_IMPLEMENTED,
)
_SAME_DISPATCH_RATE: Final = f"{_IMPLEMENTED}.DispatchRateImpl"
_BACKLOG_QUOTA: Final = _record(
    "BacklogQuotaImpl",
    _always("limit", "long"),
    _optional("limitSize", "long"),
    _always("limitTime", "int"),
    _optional(
        "policy",
        _enum(
            "RetentionPolicy",
            "producer_request_hold",
            "producer_exception",
            "consumer_backlog_eviction",
            namespace=f"{_POLICIES}.BacklogQuota",
        ),
    ),
    namespace=_IMPLEMENTED,
)
_OFFLOAD_KINDS: Final = {
    **_all_optional(
        "string",
        "fileSystemProfilePath",
        "fileSystemURI",
        "gcsManagedLedgerOffloadBucket",
        "gcsManagedLedgerOffloadRegion",
        "gcsManagedLedgerOffloadServiceAccountKeyFile",
        "managedLedgerOffloadBucket",
        "managedLedgerOffloadDriver",
        "managedLedgerOffloadRegion",
        "managedLedgerOffloadServiceEndpoint",
        "offloadersDirectory",
        "s3ManagedLedgerOffloadBucket",
        "s3ManagedLedgerOffloadCredentialId",
        "s3ManagedLedgerOffloadCredentialSecret",
        "s3ManagedLedgerOffloadRegion",
        "s3ManagedLedgerOffloadRole",
        "s3ManagedLedgerOffloadRoleSessionName",
        "s3ManagedLedgerOffloadServiceEndpoint",
    ),
    **_all_optional(
        "int",
        "gcsManagedLedgerOffloadMaxBlockSizeInBytes",
        "gcsManagedLedgerOffloadReadBufferSizeInBytes",
        "managedLedgerOffloadMaxBlockSizeInBytes",
        "managedLedgerOffloadMaxThreads",
        "managedLedgerOffloadPrefetchRounds",
        "managedLedgerOffloadReadBufferSizeInBytes",
        "managedLedgerOffloadReadThreads",
        "s3ManagedLedgerOffloadMaxBlockSizeInBytes",
        "s3ManagedLedgerOffloadReadBufferSizeInBytes",
    ),
    **_all_optional(
        "long",
        "managedLedgerOffloadDeletionLagInMillis",
        "managedLedgerOffloadThresholdInBytes",
        "managedLedgerOffloadThresholdInSeconds",
    ),
    "managedLedgerExtraConfigurations": _map("string"),
    "managedLedgerOffloadedReadPriority": _enum(
        "OffloadedReadPriority", "BOOKKEEPER_FIRST", "TIERED_STORAGE_FIRST"
    ),
}
_POLICY_FIELDS: Final = (
    _optional(
        "autoSubscriptionCreationOverride",
        _record(
            "AutoSubscriptionCreationOverrideImpl",
            _always("allowAutoSubscriptionCreation", "boolean"),
            namespace=_IMPLEMENTED,
        ),
    ),
    _optional("backLogQuotaMap", _map(_BACKLOG_QUOTA)),
    _optional("compactionThreshold", "long"),
    _optional("deduplicationEnabled", "boolean"),
    _optional("deduplicationSnapshotIntervalSeconds", "int"),
    _optional("delayedDeliveryEnabled", "boolean"),
    _optional("delayedDeliveryMaxDelayInMillis", "long"),
    _optional("delayedDeliveryTickTimeMillis", "long"),
    _optional("dispatchRate", _DISPATCH_RATE),
    _optional("dispatcherPauseOnAckStatePersistentEnabled", "boolean"),
    _optional("entryFilters", _record("EntryFilters", _optional("entryFilterNames", "string"))),
    _optional(
        "inactiveTopicPolicies",
        _record(
            "InactiveTopicPolicies",
            _always("deleteWhileInactive", "boolean"),
            _optional(
                "inactiveTopicDeleteMode",
                _enum(
                    "InactiveTopicDeleteMode",
                    "delete_when_no_subscriptions",
                    "delete_when_subscriptions_caught_up",
                ),
            ),
            _always("maxInactiveDurationSeconds", "int"),
        ),
    ),
    _optional("isGlobal", "boolean"),
    _optional("maxConsumerPerTopic", "int"),
    _optional("maxConsumersPerSubscription", "int"),
    _optional("maxMessageSize", "int"),
    _optional("maxProducerPerTopic", "int"),
    _optional("maxSubscriptionsPerTopic", "int"),
    _optional("maxUnackedMessagesOnConsumer", "int"),
    _optional("maxUnackedMessagesOnSubscription", "int"),
    _optional("messageTTLInSeconds", "int"),
    _optional(
        "offloadPolicies",
        _record(
            "OffloadPoliciesImpl",
            # Upper case goes before lower case, as in Java's order of names.
            *(_optional(name, kind) for name, kind in sorted(_OFFLOAD_KINDS.items())),
        ),
    ),
    _optional(
        "persistence",
        _record(
            "PersistencePolicies",
            _always("bookkeeperAckQuorum", "int"),
            _always("bookkeeperEnsemble", "int"),
            _always("bookkeeperWriteQuorum", "int"),
            _always("managedLedgerMaxMarkDeleteRate", "double"),
            _optional("managedLedgerStorageClassName", "string"),
        ),
    ),
    _optional(
        "publishRate",
        _record(
            "PublishRate",
            _always("publishThrottlingRateInByte", "long"),
            _always("publishThrottlingRateInMsg", "int"),
        ),
    ),
    _optional("replicationClusters", _array("string", "List")),
    _optional("replicatorDispatchRate", _SAME_DISPATCH_RATE),
    _optional(
        "retentionPolicies",
        _record(
            "RetentionPolicies",
            _always("retentionSizeInMB", "long"),
            _always("retentionTimeInMinutes", "int"),
        ),
    ),
    _optional(
        "schemaCompatibilityStrategy",
        _enum(
            "SchemaCompatibilityStrategy",
            "UNDEFINED",
            "ALWAYS_INCOMPATIBLE",
            "ALWAYS_COMPATIBLE",
            "BACKWARD",
            "FORWARD",
            "FULL",
            "BACKWARD_TRANSITIVE",
            "FORWARD_TRANSITIVE",
            "FULL_TRANSITIVE",
        ),
    ),
    _optional("schemaValidationEnforced", "boolean"),
    _optional("shadowTopics", _array("string", "List")),
    _optional(
        "subscribeRate",
        _record(
            "SubscribeRate",
            _always("ratePeriodInSecond", "int"),
            _always("subscribeThrottlingRatePerConsumer", "int"),
        ),
    ),
    _optional("subscriptionDispatchRate", _SAME_DISPATCH_RATE),
    _optional(
        "subscriptionPolicies",
        _map(_record("SubscriptionPolicies", _optional("dispatchRate", _SAME_DISPATCH_RATE))),
    ),
    _optional(
        "subscriptionTypesEnabled",
        _array(
            _enum(
                "SubType",
                "Exclusive",
                "Shared",
                "Failover",
                "Key_Shared",
                namespace="org.apache.pulsar.common.api.proto.CommandSubscribe",
            ),
            "List",
        ),
    ),
)
EVENT_SCHEMA: Final[Json] = _record(
    "PulsarEvent",
    _optional("actionType", _enum("ActionType", "INSERT", "DELETE", "UPDATE", "NONE")),
    _optional(
        "eventType",
        _enum(
            "EventType",
            "TOPIC_POLICY",
            "TRANSACTION_BUFFER_SNAPSHOT",
            "TRANSACTION_BUFFER_SNAPSHOT_SEGMENTS",
            "TRANSACTION_BUFFER_SNAPSHOT_INDEXES",
        ),
    ),
    _optional("replicateTo", _array("string", "HashSet")),
    _optional(
        "topicPoliciesEvent",
        _record(
            "TopicPoliciesEvent",
            _optional("domain", "string"),
            _optional("namespace", "string"),
            _optional("policies", _record("TopicPolicies", *_POLICY_FIELDS, namespace=_POLICIES)),
            _optional("tenant", "string"),
            _optional("topic", "string"),
        ),
    ),
    namespace="org.apache.pulsar.common.events",
)
EVENT_SCHEMA_TEXT: Final = json.dumps(EVENT_SCHEMA, separators=(",", ":"))
"""As it is registered."""
EVENT_SCHEMA_PROPERTIES: Final = {
    "__alwaysAllowNull": "true",
    "__jsr310ConversionEnabled": "false",
}
