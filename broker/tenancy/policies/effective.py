"""The policies in force for a namespace or a topic. Pure.

The nearest level that sets a policy decides it: the topic, else its namespace, else the broker's
configuration. Only this module knows which field and which key belong together. Other code reads
`EffectivePolicies`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, final

from broker.ground.config import SUBSCRIPTION_TYPES
from broker.tenancy.policies.backlog_quotas import QUOTA_KEYS, BacklogQuotas, quotas_of
from broker.tenancy.policies.clusters import REPLICATION_FIELD
from broker.tenancy.policies.counts import COUNT_KEYS, Counts, counts_of
from broker.tenancy.policies.delays import DELAY_KEYS, Delays, delays_of
from broker.tenancy.policies.delivery_rates import (
    DELIVERY_RATE_KEYS,
    NO_DELIVERY_RATES,
    DeliveryRates,
    delivery_rates_of,
)
from broker.tenancy.policies.given import AUTO_UPDATE_STRATEGIES
from broker.tenancy.policies.grants import grants_in
from broker.tenancy.policies.idle import IDLE_KEYS, Idle, idle_of
from broker.tenancy.policies.levels import Levels
from broker.tenancy.policies.persistence import Persistence, persistence_in, persistence_of
from broker.tenancy.policies.rates import NO_RATES, RATE_KEYS, Rates, rates_of
from broker.tenancy.policies.record import Policies

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.ground.config import BrokerConfig
    from ledgers.placement import BookieGroups

Json = Any

OVERRIDDEN_KEYS: Final = frozenset(
    {
        "allowAutoSubscriptionCreation",
        "allowAutoTopicCreation",
        "allowAutoTopicCreationType",
        "brokerDeduplicationEnabled",
        "brokerDeduplicationSnapshotIntervalSeconds",
        "defaultNumPartitions",
        "defaultRetentionSizeInMB",
        "defaultRetentionTimeInMinutes",
        "dispatcherPauseOnAckStatePersistentEnabled",
        "encryptionRequireOnProducer",
        "isAllowAutoUpdateSchemaEnabled",
        "isSchemaValidationEnforced",
        "managedLedgerDefaultAckQuorum",
        "managedLedgerDefaultEnsembleSize",
        "managedLedgerDefaultMarkDeleteRateLimit",
        "managedLedgerDefaultWriteQuorum",
        "schemaCompatibilityStrategy",
        "subscriptionExpirationTimeMinutes",
        "subscriptionTypesEnabled",
        "ttlDurationDefaultInSeconds",
        *COUNT_KEYS,
        *DELAY_KEYS,
        *DELIVERY_RATE_KEYS,
        *IDLE_KEYS,
        *QUOTA_KEYS,
        *RATE_KEYS,
    }
)
"""Keys of the configuration that a policy may override. No other code uses them."""


@final
@dataclass(frozen=True, slots=True)
class EffectivePolicies:
    """Each group of policies has a module of its own. Limits are 0 if there is none."""

    auto_topic_creation: bool
    """Whether a client may create a topic by using its name."""
    auto_created_partitions: int
    """Partitions of a topic created that way; 0 = not partitioned."""
    auto_subscription_creation: bool
    """Whether a consumer may create the subscription it names."""
    deduplication: bool
    deduplication_snapshot_seconds: int
    """Between two snapshots; 0: only the number of entries counts."""
    encryption_required: bool
    """Producers that do not encrypt are refused."""
    bookie_groups: BookieGroups | None
    """The bookies of its entries; None: as the broker is configured."""
    backlog_quotas: BacklogQuotas
    """How much may wait in the backlog, and how long."""
    message_ttl_seconds: int
    """How long messages wait in the backlog; 0 = for ever."""
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
    compaction_threshold_bytes: int
    """Bytes of backlog; 0: never. Vela does not compact topics yet."""
    dispatch_waits_for_acks: bool
    """Whether delivery pauses while there are more holes between acknowledgements than are
    stored."""
    replication_clusters: tuple[str, ...]
    counts: Counts
    delays: Delays
    idle: Idle
    subscription_expiration_minutes: int
    """How long subscriptions without consumers are kept; 0 = for ever. No topic overrides it."""
    subscription_types: frozenset[str]
    """The permitted types of new consumers."""
    rates: Rates
    delivery: DeliveryRates
    resource_group: str
    """The group of its namespace; empty: none."""


def resolve(
    config: BrokerConfig,
    namespace: Policies,
    topic: Mapping[str, Json] | None = None,
    bookie_groups: BookieGroups | None = None,
) -> EffectivePolicies:
    """The policies in force. `topic` has the fields of `Policies` that a topic may override.
    `bookie_groups` are the namespace's; Pulsar keeps them apart from its policies."""
    levels = Levels(topic or {}, namespace.fields)
    said = levels.said
    topic_creation = said("autoTopicCreationOverride")
    subscription_creation = said("autoSubscriptionCreationOverride")
    retention = said("retention_policies") or {
        "retentionTimeInMinutes": config.defaultRetentionTimeInMinutes,
        "retentionSizeInMB": config.defaultRetentionSizeInMB,
    }
    persistence = said("persistence")
    return EffectivePolicies(
        auto_topic_creation=_allowed(topic_creation, config.allowAutoTopicCreation),
        auto_created_partitions=_partitions(topic_creation, config),
        auto_subscription_creation=_allowed(
            subscription_creation, config.allowAutoSubscriptionCreation
        ),
        deduplication=bool(said("deduplicationEnabled", config.brokerDeduplicationEnabled)),
        deduplication_snapshot_seconds=int(
            said(
                "deduplicationSnapshotIntervalSeconds",
                config.brokerDeduplicationSnapshotIntervalSeconds,
            )
        ),
        encryption_required=(
            bool(said("encryption_required", False)) or config.encryptionRequireOnProducer
        ),
        bookie_groups=bookie_groups,
        backlog_quotas=quotas_of(config, levels),
        message_ttl_seconds=_positive(
            said("message_ttl_in_seconds", config.ttlDurationDefaultInSeconds)
        ),
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
        compaction_threshold_bytes=int(said("compaction_threshold", 0)),
        dispatch_waits_for_acks=bool(
            said(
                "dispatcherPauseOnAckStatePersistentEnabled",
                config.dispatcherPauseOnAckStatePersistentEnabled,
            )
        ),
        replication_clusters=tuple(said(REPLICATION_FIELD, ())),
        counts=counts_of(config, levels),
        delays=delays_of(config, levels),
        idle=idle_of(config, levels),
        subscription_expiration_minutes=_positive(
            said("subscription_expiration_time_minutes", config.subscriptionExpirationTimeMinutes)
        ),
        subscription_types=_subscription_types(levels, config),
        rates=rates_of(config, levels),
        delivery=delivery_rates_of(config, levels),
        resource_group=str(namespace.fields.get("resource_group_name") or ""),
    )


def without_rates(policies: EffectivePolicies) -> EffectivePolicies:
    """The same without those of namespaces and groups, and of the broker: for what brokers say to
    each other, which would otherwise wait for the messages of a tenant."""
    return replace(policies, rates=NO_RATES, delivery=NO_DELIVERY_RATES, resource_group="")


def _positive(value: Json) -> int:
    """A number below 0 is as good as 0."""
    return max(0, int(value))


def _allowed(override: Json, fallback: bool) -> bool:
    """Whether clients may create topics, or subscriptions, where a level may say so."""
    if override is None:
        return fallback
    names = ("allowAutoTopicCreation", "allowAutoSubscriptionCreation")
    return any(override.get(name) for name in names)


def flaw_in(fields: Mapping[str, Json], config: BrokerConfig) -> str:
    """Why a record with these fields, of a namespace or a topic, cannot be in force; empty: it
    can."""
    try:
        said = resolve(config, Policies({}), fields).persistence
        grants_in(fields)
        if not isinstance(fields.get("bundles") or {}, dict):
            raise TypeError("bundles is not a JSON object")
        if not isinstance((fields.get("bundles") or {}).get("boundaries") or [], list):
            raise TypeError("the boundaries of bundles are not an array")
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        return str(error)
    if not said.ensemble_size >= said.write_quorum_size >= said.ack_quorum_size > 0:
        return "the numbers of bookies in persistence do not go together"
    return ""


def violated_type_rule(config: BrokerConfig) -> str:
    """The violated rule about types of subscriptions in the configuration, or an empty text."""
    unknown = [each for each in config.subscriptionTypesEnabled if each not in SUBSCRIPTION_TYPES]
    if not unknown:
        return ""
    return (
        f"subscriptionTypesEnabled must name types of {', '.join(SUBSCRIPTION_TYPES)}, found "
        f"{', '.join(unknown)}"
    )


def _subscription_types(levels: Levels, config: BrokerConfig) -> frozenset[str]:
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


def _strategy(levels: Levels, config: BrokerConfig) -> str:
    """UNDEFINED sets nothing at any level. The former kind of strategy is asked last. In the
    configuration it means FULL, as in Pulsar."""
    for each in levels:
        own = each.get("schema_compatibility_strategy") or "UNDEFINED"
        if own != "UNDEFINED":
            return str(own)
    former = levels.namespace.get("schema_auto_update_compatibility_strategy")
    if former is not None:
        return AUTO_UPDATE_STRATEGIES[former]
    fallback = config.schemaCompatibilityStrategy
    return "FULL" if fallback == "UNDEFINED" else fallback
