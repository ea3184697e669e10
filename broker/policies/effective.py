"""The policies in force for a namespace or a topic. Pure.

The nearest level that sets a policy decides it: the topic, else its namespace, else the broker's
configuration. Only this module knows which field and which key belong together. Other code reads
`EffectivePolicies`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from broker.config import SUBSCRIPTION_TYPES
from broker.policies.persistence import Persistence, persistence_in, persistence_of
from broker.policies.rates import Rates, rates_of
from broker.policies.record import Policies

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.config import BrokerConfig
    from ledgers.placement import BookieGroups

Json = Any

OVERRIDDEN_KEYS: Final = frozenset(
    {
        "allowAutoSubscriptionCreation",
        "allowAutoTopicCreation",
        "allowAutoTopicCreationType",
        "brokerDeduplicationEnabled",
        "brokerPublisherThrottlingMaxByteRate",
        "brokerPublisherThrottlingMaxMessageRate",
        "defaultNumPartitions",
        "defaultRetentionSizeInMB",
        "defaultRetentionTimeInMinutes",
        "encryptionRequireOnProducer",
        "isAllowAutoUpdateSchemaEnabled",
        "isSchemaValidationEnforced",
        "managedLedgerDefaultAckQuorum",
        "managedLedgerDefaultEnsembleSize",
        "managedLedgerDefaultMarkDeleteRateLimit",
        "managedLedgerDefaultWriteQuorum",
        "maxConsumersPerSubscription",
        "maxConsumersPerTopic",
        "maxProducersPerTopic",
        "maxPublishRatePerTopicInBytes",
        "maxPublishRatePerTopicInMessages",
        "maxSubscriptionsPerTopic",
        "maxTopicsPerNamespace",
        "maxUnackedMessagesPerConsumer",
        "maxUnackedMessagesPerSubscription",
        "schemaCompatibilityStrategy",
        "subscriptionTypesEnabled",
    }
)
"""Keys of the configuration that a policy may override. No other code uses them."""


@final
@dataclass(frozen=True, slots=True)
class EffectivePolicies:
    """Limits are 0 if there is none."""

    auto_topic_creation: bool
    """Whether a client may create a topic by using its name."""
    auto_created_partitions: int
    """Partitions of a topic created that way; 0 = not partitioned."""
    auto_subscription_creation: bool
    """Whether a consumer may create the subscription it names."""
    deduplication: bool
    encryption_required: bool
    """Producers that do not encrypt are refused."""
    bookie_groups: BookieGroups | None
    """The bookies of its entries; None: as the broker is configured."""
    persistence: Persistence
    """The bookies of its entries, and how often its cursors are stored."""
    retention_minutes: int
    """How long messages are kept after their acknowledgement; -1 = for ever."""
    retention_megabytes: int
    """How many of them by size; -1 = all."""
    schema_auto_update: bool
    """Whether producers may add schema versions."""
    schema_strategy: str
    """One of `SchemaStrategy`; never UNDEFINED."""
    schema_validation_enforced: bool
    """Producers without a schema are refused on a topic that has one."""
    topics_max: int
    """Limit of the namespace."""
    producers_max: int
    """Limit of a topic, as the next three."""
    consumers_max: int
    subscriptions_max: int
    message_size_bytes_max: int
    """In addition to that of the broker. The size is that of metadata and payload."""
    consumers_of_subscription_max: int
    unacked_of_consumer_max: int
    unacked_of_subscription_max: int
    subscription_types: frozenset[str]
    """Of new consumers."""
    rates: Rates


def resolve(
    config: BrokerConfig,
    namespace: Policies,
    topic: Mapping[str, Json] | None = None,
    bookie_groups: BookieGroups | None = None,
) -> EffectivePolicies:
    """The policies in force. `topic` has the fields of `Policies` that a topic may override.
    `bookie_groups` are the namespace's; Pulsar keeps them apart from its policies."""
    levels = (topic or {}, namespace.fields)

    def said(field: str, fallback: Json) -> Json:
        return next((each[field] for each in levels if each.get(field) is not None), fallback)

    def limit(field: str, fallback: int) -> int:
        given = (each.get(field) for each in levels)
        return next((int(each) for each in given if each is not None and each >= 0), fallback)

    topic_creation = said("autoTopicCreationOverride", None)
    subscription_creation = said("autoSubscriptionCreationOverride", None)
    retention = said("retention_policies", None) or {
        "retentionTimeInMinutes": config.defaultRetentionTimeInMinutes,
        "retentionSizeInMB": config.defaultRetentionSizeInMB,
    }
    persistence = said("persistence", None)
    return EffectivePolicies(
        auto_topic_creation=(
            config.allowAutoTopicCreation
            if topic_creation is None
            else bool(topic_creation.get("allowAutoTopicCreation", False))
        ),
        auto_created_partitions=_partitions(topic_creation, config),
        auto_subscription_creation=(
            config.allowAutoSubscriptionCreation
            if subscription_creation is None
            else bool(subscription_creation.get("allowAutoSubscriptionCreation", False))
        ),
        deduplication=bool(said("deduplicationEnabled", config.brokerDeduplicationEnabled)),
        encryption_required=(
            bool(said("encryption_required", False)) or config.encryptionRequireOnProducer
        ),
        bookie_groups=bookie_groups,
        persistence=(
            persistence_of(config) if persistence is None else persistence_in(persistence)
        ),
        retention_minutes=int(retention.get("retentionTimeInMinutes", 0)),
        retention_megabytes=int(retention.get("retentionSizeInMB", 0)),
        schema_auto_update=bool(
            said("is_allow_auto_update_schema", config.isAllowAutoUpdateSchemaEnabled)
        ),
        schema_strategy=_strategy(levels, config),
        schema_validation_enforced=(
            bool(said("schema_validation_enforced", False)) or config.isSchemaValidationEnforced
        ),
        # A negative limit is none for a namespace and says nothing about its topics, as in Pulsar.
        topics_max=max(0, int(said("max_topics_per_namespace", config.maxTopicsPerNamespace))),
        producers_max=limit("max_producers_per_topic", config.maxProducersPerTopic),
        consumers_max=limit("max_consumers_per_topic", config.maxConsumersPerTopic),
        subscriptions_max=limit("max_subscriptions_per_topic", config.maxSubscriptionsPerTopic),
        message_size_bytes_max=limit("max_message_size", 0),
        consumers_of_subscription_max=limit(
            "max_consumers_per_subscription", config.maxConsumersPerSubscription
        ),
        unacked_of_consumer_max=limit(
            "max_unacked_messages_per_consumer", config.maxUnackedMessagesPerConsumer
        ),
        unacked_of_subscription_max=limit(
            "max_unacked_messages_per_subscription", config.maxUnackedMessagesPerSubscription
        ),
        subscription_types=_subscription_types(levels, config),
        rates=rates_of(config, levels),
    )


def flaw_in(fields: Mapping[str, Json], config: BrokerConfig) -> str:
    """Why a record with these fields, of a namespace or a topic, cannot be in force; empty: it
    can."""
    try:
        said = resolve(config, Policies({}), fields).persistence
        for name in ("bundles", "auth_policies"):
            if not isinstance(fields.get(name) or {}, dict):
                raise TypeError(f"{name} is not a JSON object")
        if not isinstance((fields.get("bundles") or {}).get("boundaries") or [], list):
            raise TypeError("the boundaries of bundles are not an array")
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        return str(error)
    if not said.ensemble_size >= said.write_quorum_size >= said.ack_quorum_size > 0:
        return "the numbers of bookies in persistence do not go together"
    return ""


def _subscription_types(
    levels: tuple[Mapping[str, Json], ...], config: BrokerConfig
) -> frozenset[str]:
    """An empty list says nothing at any level."""
    own = (each.get("subscription_types_enabled") for each in levels)
    of_broker = config.subscriptionTypesEnabled or SUBSCRIPTION_TYPES
    return frozenset(next(filter(None, own), of_broker))


def _partitions(override: Json, config: BrokerConfig) -> int:
    if override is None:
        partitioned = config.allowAutoTopicCreationType == "partitioned"
        return config.defaultNumPartitions if partitioned else 0
    if override.get("topicType") != "partitioned":
        return 0
    return int(override.get("defaultNumPartitions") or config.defaultNumPartitions)


def _strategy(levels: tuple[Mapping[str, Json], ...], config: BrokerConfig) -> str:
    """UNDEFINED sets nothing at any level. In the configuration it means FULL, as in Pulsar."""
    for each in levels:
        own = each.get("schema_compatibility_strategy") or "UNDEFINED"
        if own != "UNDEFINED":
            return str(own)
    fallback = config.schemaCompatibilityStrategy
    return "FULL" if fallback == "UNDEFINED" else fallback
