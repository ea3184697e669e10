"""The policies in force: the topic before its namespace before the configuration."""

from __future__ import annotations

from dataclasses import fields, replace
from operator import attrgetter

import pytest

from broker.ground.config import DEFAULT_CONFIG, BrokerConfig
from broker.tenancy.policies.effective import OVERRIDDEN_KEYS, EffectivePolicies, resolve
from broker.tenancy.policies.rates import PublishRate
from broker.tenancy.policies.record import Policies


def namespace(**given: object) -> Policies:
    return Policies.fresh(given, DEFAULT_CONFIG)


def retention(minutes: int, megabytes: int) -> dict[str, int]:
    return {"retentionTimeInMinutes": minutes, "retentionSizeInMB": megabytes}


BY_FIELD = [
    ("deduplicationEnabled", "brokerDeduplicationEnabled", "deduplication", True, False),
    ("max_producers_per_topic", "maxProducersPerTopic", "counts.producers_max", 3, 0),
    ("max_consumers_per_topic", "maxConsumersPerTopic", "counts.consumers_max", 3, 0),
    ("max_subscriptions_per_topic", "maxSubscriptionsPerTopic", "counts.subscriptions_max", 3, 0),
    ("max_topics_per_namespace", "maxTopicsPerNamespace", "counts.topics_max", 3, 0),
    (
        "max_consumers_per_subscription",
        "maxConsumersPerSubscription",
        "counts.consumers_of_subscription_max",
        3,
        0,
    ),
    (
        "max_unacked_messages_per_consumer",
        "maxUnackedMessagesPerConsumer",
        "counts.unacked_of_consumer_max",
        3,
        0,
    ),
    (
        "max_unacked_messages_per_subscription",
        "maxUnackedMessagesPerSubscription",
        "counts.unacked_of_subscription_max",
        3,
        0,
    ),
    (
        "schema_compatibility_strategy",
        "schemaCompatibilityStrategy",
        "schema_strategy",
        "BACKWARD",
        "FORWARD",
    ),
]


@pytest.mark.parametrize(("field", "key", "name", "one", "other"), BY_FIELD)
def test_the_nearest_level_that_says_something_decides(
    field: str, key: str, name: str, one: object, other: object
):
    def in_force(*levels: object) -> object:
        config, of_namespace, of_topic = levels
        policies = resolve(
            replace(DEFAULT_CONFIG, **{key: config}),
            namespace(**{field: of_namespace}),
            {field: of_topic},
        )
        return attrgetter(name)(policies)

    assert in_force(one, None, None) == one
    assert in_force(one, other, None) == other
    assert in_force(one, other, one) == one
    assert in_force(other, None, one) == one


def test_an_empty_list_of_subscription_types_says_nothing():
    def types(*levels: list[str]) -> frozenset[str]:
        of_broker, of_namespace, of_topic = levels
        config = replace(DEFAULT_CONFIG, subscriptionTypesEnabled=tuple(of_broker))
        record = namespace(subscription_types_enabled=of_namespace)
        topic = {"subscription_types_enabled": of_topic}
        return resolve(config, record, topic).subscription_types

    assert types(["Shared"], [], []) == {"Shared"}
    assert types(["Shared"], ["Failover"], []) == {"Failover"}
    assert types(["Shared"], ["Failover"], ["Exclusive", "Shared"]) == {"Exclusive", "Shared"}
    assert len(types([], [], [])) == 4


def publish_rate(messages: int, size_bytes: int) -> dict[str, object]:
    rate = {"publishThrottlingRateInMsg": messages, "publishThrottlingRateInByte": size_bytes}
    return {"publishMaxMessageRate": {"standalone": rate, "elsewhere": {}}}


def test_a_rate_that_limits_nothing_says_nothing_at_its_level():
    config = replace(DEFAULT_CONFIG, maxPublishRatePerTopicInMessages=9)

    def in_force(of_namespace: dict[str, object], of_topic: dict[str, object]) -> PublishRate:
        return resolve(config, namespace(**of_namespace), of_topic).rates.publish

    assert in_force({}, {}) == PublishRate(9, 0)
    assert in_force(publish_rate(-1, 0), publish_rate(-1, -1)) == PublishRate(9, 0)
    assert in_force(publish_rate(5, -1), publish_rate(0, 0)) == PublishRate(5, 0)
    # A level decides as a whole, as in Pulsar.
    assert in_force(publish_rate(5, -1), publish_rate(-1, 7)) == PublishRate(0, 7)


def test_a_negative_limit_refuses_nothing():
    config = replace(DEFAULT_CONFIG, maxProducersPerTopic=3, maxTopicsPerNamespace=3)
    policies = resolve(config, namespace(max_producers_per_topic=-1, max_topics_per_namespace=-1))
    assert policies.counts.producers_max == 3
    assert policies.counts.topics_max == 0
    none = resolve(config, namespace(max_producers_per_topic=0))
    assert none.counts.producers_max == 0


def test_retention_is_decided_as_a_whole():
    config = replace(DEFAULT_CONFIG, defaultRetentionTimeInMinutes=7, defaultRetentionSizeInMB=8)
    plain = resolve(config, namespace())
    assert (plain.retention_minutes, plain.retention_megabytes) == (7, 8)
    own = resolve(config, namespace(retention_policies=retention(1, -1)))
    assert (own.retention_minutes, own.retention_megabytes) == (1, -1)
    of_topic = resolve(
        config,
        namespace(retention_policies=retention(1, -1)),
        {"retention_policies": retention(0, 0)},
    )
    assert (of_topic.retention_minutes, of_topic.retention_megabytes) == (0, 0)


def test_what_the_broker_requires_a_namespace_cannot_waive():
    config = replace(
        DEFAULT_CONFIG, encryptionRequireOnProducer=True, isSchemaValidationEnforced=True
    )
    policies = resolve(
        config, namespace(encryption_required=False, schema_validation_enforced=False)
    )
    assert policies.encryption_required
    assert policies.schema_validation_enforced


def test_an_undefined_strategy_says_nothing():
    config = replace(DEFAULT_CONFIG, schemaCompatibilityStrategy="UNDEFINED")
    assert resolve(config, namespace()).schema_strategy == "FULL"


def test_automatic_creation():
    override = {"allowAutoTopicCreation": True, "topicType": "partitioned"}
    config = replace(DEFAULT_CONFIG, allowAutoTopicCreation=False, defaultNumPartitions=5)
    policies = resolve(config, Policies({"autoTopicCreationOverride": override}))
    assert policies.auto_topic_creation
    assert policies.auto_created_partitions == 5
    assert not resolve(config, namespace()).auto_topic_creation
    denied = namespace(autoSubscriptionCreationOverride={"allowAutoSubscriptionCreation": False})
    assert not resolve(DEFAULT_CONFIG, denied).auto_subscription_creation


def test_each_overridden_key_is_one_of_the_configuration_and_matters():
    assert {field.name for field in fields(BrokerConfig)} >= OVERRIDDEN_KEYS
    other: dict[str, object] = {"allowAutoTopicCreationType": "partitioned"}
    other["backlogQuotaDefaultLimitGB"] = 1.0
    other["backlogQuotaDefaultRetentionPolicy"] = "producer_exception"
    other["schemaCompatibilityStrategy"] = "BACKWARD"
    other["subscriptionTypesEnabled"] = ("Shared",)
    other["brokerDeleteInactiveTopicsMode"] = "delete_when_subscriptions_caught_up"
    before: EffectivePolicies = resolve(DEFAULT_CONFIG, namespace(is_allow_auto_update_schema=None))
    for key in OVERRIDDEN_KEYS - {"defaultNumPartitions", "isAllowAutoUpdateSchemaEnabled"}:
        value = getattr(DEFAULT_CONFIG, key)
        if key not in other:
            other[key] = not value if isinstance(value, bool) else value + 1
        after = resolve(
            replace(DEFAULT_CONFIG, **{key: other[key]}),
            namespace(is_allow_auto_update_schema=None),
        )
        assert after != before, key
