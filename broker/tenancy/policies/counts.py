"""Limits by count in policies. Pure. 0 is no limit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from broker.ground.config import BrokerConfig
    from broker.tenancy.policies.levels import Levels

COUNT_KEYS: Final = frozenset(
    {
        "maxConsumersPerSubscription",
        "maxConsumersPerTopic",
        "maxProducersPerTopic",
        "maxSubscriptionsPerTopic",
        "maxTopicsPerNamespace",
        "maxUnackedMessagesPerConsumer",
        "maxUnackedMessagesPerSubscription",
    }
)
"""Keys of the configuration that these policies override."""


@final
@dataclass(frozen=True, slots=True)
class Counts:
    """The limits in force for a topic."""

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


def counts_of(config: BrokerConfig, levels: Levels) -> Counts:
    """The limits in force."""
    limit = levels.limit
    return Counts(
        # A negative limit is none for a namespace and says nothing about its topics, as in Pulsar.
        topics_max=max(
            0, int(levels.said("max_topics_per_namespace", config.maxTopicsPerNamespace))
        ),
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
    )
