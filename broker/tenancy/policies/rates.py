"""Rates in policies: their JSON and its meaning. Pure.

Source: PublishRate of Pulsar 4.0 with its defaults. A rate without a limit counts as not set at its
level, so that the next level decides, as in Pulsar.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from broker.tenancy.policies.bodies import INT, LONG, number_in, object_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.ground.config import BrokerConfig
    from broker.tenancy.policies.levels import Levels

Json = Any
_MESSAGES: Final = "publishThrottlingRateInMsg"
_BYTES: Final = "publishThrottlingRateInByte"
_UNSET: Final = -1

RATE_KEYS: Final = frozenset(
    {
        "brokerPublisherThrottlingMaxByteRate",
        "brokerPublisherThrottlingMaxMessageRate",
        "maxPublishRatePerTopicInBytes",
        "maxPublishRatePerTopicInMessages",
    }
)
"""Keys of the configuration that these policies override."""


@final
@dataclass(frozen=True, slots=True)
class PublishRate:
    """0: no limit."""

    messages_per_second: int = 0
    bytes_per_second: int = 0

    def __bool__(self) -> bool:
        return self.messages_per_second > 0 or self.bytes_per_second > 0


NO_PUBLISH_RATE: Final = PublishRate()


def publish_rate(policy: str, value: Json) -> Json:
    """The body of a request, complete. Raises: Refusal."""
    given = object_of(policy, value)
    return {
        _MESSAGES: number_in(given, _MESSAGES, _UNSET, INT),
        _BYTES: number_in(given, _BYTES, _UNSET, LONG),
    }


def publish_rate_in(record: Mapping[str, Json] | None) -> PublishRate:
    """The rate of a level."""
    if not record:
        return NO_PUBLISH_RATE
    return PublishRate(
        max(0, int(record.get(_MESSAGES, _UNSET))), max(0, int(record.get(_BYTES, _UNSET)))
    )


@final
@dataclass(frozen=True, slots=True)
class Rates:
    """The rates in force for a topic."""

    publish: PublishRate
    """The rate of all producers of the topic together."""
    broker_publish: PublishRate
    """The rate of all topics of the broker together; no namespace and no topic overrides it."""


NO_RATES: Final = Rates(NO_PUBLISH_RATE, NO_PUBLISH_RATE)


def rates_of(config: BrokerConfig, levels: Levels) -> Rates:
    """The rates in force."""

    def said(field: str) -> list[Json]:
        return [(each.get(field) or {}).get(config.clusterName) for each in levels]

    publish = map(publish_rate_in, said("publishMaxMessageRate"))
    return Rates(
        publish=next(filter(None, publish), None)
        or PublishRate(
            config.maxPublishRatePerTopicInMessages, config.maxPublishRatePerTopicInBytes
        ),
        broker_publish=PublishRate(
            config.brokerPublisherThrottlingMaxMessageRate,
            config.brokerPublisherThrottlingMaxByteRate,
        ),
    )
