"""Rates of dispatch and of subscribing in policies: their JSON and its meaning. Pure.

Source: DispatchRate and SubscribeRate of Pulsar 4.0 with their defaults. A rate without a limit
counts as not set at its level, so that the next level decides, as in Pulsar. A subscription's own
rate of dispatch always decides, even without a limit.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, final

from broker.tenancy.policies.bodies import INT, LONG, flag_in, number_in, object_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.ground.config import BrokerConfig
    from broker.tenancy.policies.levels import Levels

Json = Any
_MESSAGES: Final = "dispatchThrottlingRateInMsg"
_BYTES: Final = "dispatchThrottlingRateInByte"
_RELATIVE: Final = "relativeToPublishRate"
_PERIOD: Final = "ratePeriodInSecond"
_REQUESTS: Final = "subscribeThrottlingRatePerConsumer"
_REQUESTS_UNSAID: Final = -1
_SUBSCRIBE_PERIOD_SECONDS: Final = 30

TOPIC_DISPATCH: Final = "topicDispatchRate"
"""Fields of the record of a namespace, and of a topic."""
SUBSCRIPTION_DISPATCH: Final = "subscriptionDispatchRate"
REPLICATOR_DISPATCH: Final = "replicatorDispatchRate"
SUBSCRIBE: Final = "clusterSubscribeRate"
OF_SUBSCRIPTIONS: Final = "subscriptionPolicies"
"""Field of the record of a topic: policies of single subscriptions, by name."""
OWN_DISPATCH: Final = "dispatchRate"
"""Field of the policies of one subscription."""

DELIVERY_RATE_KEYS: Final = frozenset(
    {
        "dispatchThrottlingOnBatchMessageEnabled",
        "dispatchThrottlingOnNonBacklogConsumerEnabled",
        "dispatchThrottlingRateInByte",
        "dispatchThrottlingRateInMsg",
        "dispatchThrottlingRatePerSubscriptionInByte",
        "dispatchThrottlingRatePerSubscriptionInMsg",
        "dispatchThrottlingRatePerTopicInByte",
        "dispatchThrottlingRatePerTopicInMsg",
        "dispatchThrottlingRateRelativeToPublishRate",
        "managedLedgerCursorBackloggedThreshold",
        "subscribeRatePeriodPerConsumerInSecond",
        "subscribeThrottlingRatePerConsumer",
    }
)
"""Keys of the configuration that only the policies use."""


@final
@dataclass(frozen=True, slots=True)
class DispatchRate:
    """Messages and bytes in each period; 0: no limit."""

    messages: int = 0
    size_bytes: int = 0
    period_seconds: int = 1
    is_relative: bool = False
    """Whether the publish rate of the topic is added."""

    def __bool__(self) -> bool:
        return self.messages > 0 or self.size_bytes > 0


NO_DISPATCH_RATE: Final = DispatchRate()


@final
@dataclass(frozen=True, slots=True)
class SubscribeRate:
    """SUBSCRIBEs of one consumer in each period; 0: no limit."""

    requests: int = 0
    period_seconds: int = _SUBSCRIBE_PERIOD_SECONDS

    def __bool__(self) -> bool:
        return self.requests > 0 and self.period_seconds > 0


@final
@dataclass(frozen=True, slots=True)
class DeliveryRates:
    """The rates in force for a topic."""

    topic: DispatchRate
    """The rate of all subscriptions of the topic together."""
    subscription: DispatchRate
    """The rate of each of them that has none of its own."""
    broker: DispatchRate
    """The rate of all subscriptions of the broker together; no namespace and no topic overrides
    it."""
    subscribe: SubscribeRate
    """The rate of each consumer of the topic."""
    counts_entries: bool
    """Whether a batch counts as one message."""
    limits_caught_up: bool
    """Whether subscriptions with a small backlog are limited, too."""
    backlog_entries_min: int
    """A smaller backlog is a small one."""
    own: Mapping[str, DispatchRate] = field(default_factory=dict)
    """The rates of single subscriptions, by name."""

    @property
    def free_below_entries(self) -> int:
        """Subscriptions with a smaller backlog are not limited."""
        return 0 if self.limits_caught_up else self.backlog_entries_min

    def of_subscription(self, name: str) -> DispatchRate:
        """The rate of one subscription."""
        return self.own.get(name, self.subscription)


NO_DELIVERY_RATES: Final = DeliveryRates(
    topic=NO_DISPATCH_RATE,
    subscription=NO_DISPATCH_RATE,
    broker=NO_DISPATCH_RATE,
    subscribe=SubscribeRate(),
    counts_entries=False,
    limits_caught_up=False,
    backlog_entries_min=0,
)


def dispatch_rate(policy: str, value: Json) -> Json:
    """The body of a request, complete. Raises: Refusal."""
    given = object_of(policy, value)
    return {
        _MESSAGES: number_in(given, _MESSAGES, 0, INT),
        _BYTES: number_in(given, _BYTES, 0, LONG),
        _RELATIVE: flag_in(given, _RELATIVE),
        _PERIOD: number_in(given, _PERIOD, 0, INT),
    }


def dispatch_rate_in(record: Mapping[str, Json] | None) -> DispatchRate:
    """The rate of a level. A period of less than a second counts as one, as in Pulsar."""
    if not record:
        return NO_DISPATCH_RATE
    return DispatchRate(
        max(0, int(record.get(_MESSAGES) or 0)),
        max(0, int(record.get(_BYTES) or 0)),
        max(1, int(record.get(_PERIOD) or 0)),
        bool(record.get(_RELATIVE)),
    )


def record_of_dispatch(rate: DispatchRate) -> dict[str, Json]:
    """The inverse of `dispatch_rate_in`."""
    return {
        _MESSAGES: rate.messages,
        _BYTES: rate.size_bytes,
        _RELATIVE: rate.is_relative,
        _PERIOD: rate.period_seconds,
    }


def subscribe_rate(policy: str, value: Json) -> Json:
    """The body of a request, complete. Raises: Refusal."""
    given = object_of(policy, value)
    return {
        _REQUESTS: number_in(given, _REQUESTS, _REQUESTS_UNSAID, INT),
        _PERIOD: number_in(given, _PERIOD, _SUBSCRIBE_PERIOD_SECONDS, INT),
    }


def subscribe_rate_in(record: Mapping[str, Json] | None) -> SubscribeRate:
    """The rate of a level."""
    if not record:
        return SubscribeRate()
    return SubscribeRate(
        int(record.get(_REQUESTS, _REQUESTS_UNSAID)),
        int(record.get(_PERIOD, _SUBSCRIBE_PERIOD_SECONDS)),
    )


def record_of_subscribe(rate: SubscribeRate) -> dict[str, Json]:
    """The inverse of `subscribe_rate_in`."""
    return {_REQUESTS: rate.requests, _PERIOD: rate.period_seconds}


def delivery_rates_of(config: BrokerConfig, levels: Levels) -> DeliveryRates:
    """The rates in force."""

    def said(name: str) -> list[Json]:
        return [(each.get(name) or {}).get(config.clusterName) for each in levels]

    relative = config.dispatchThrottlingRateRelativeToPublishRate
    topic = map(dispatch_rate_in, said(TOPIC_DISPATCH))
    subscription = map(dispatch_rate_in, said(SUBSCRIPTION_DISPATCH))
    return DeliveryRates(
        topic=next(filter(None, topic), None)
        or DispatchRate(
            config.dispatchThrottlingRatePerTopicInMsg,
            config.dispatchThrottlingRatePerTopicInByte,
            is_relative=relative,
        ),
        subscription=next(filter(None, subscription), None)
        or DispatchRate(
            config.dispatchThrottlingRatePerSubscriptionInMsg,
            config.dispatchThrottlingRatePerSubscriptionInByte,
            is_relative=relative,
        ),
        broker=DispatchRate(
            config.dispatchThrottlingRateInMsg, config.dispatchThrottlingRateInByte
        ),
        subscribe=next(filter(None, map(subscribe_rate_in, said(SUBSCRIBE))), None)
        or SubscribeRate(
            config.subscribeThrottlingRatePerConsumer,
            config.subscribeRatePeriodPerConsumerInSecond,
        ),
        counts_entries=config.dispatchThrottlingOnBatchMessageEnabled,
        limits_caught_up=config.dispatchThrottlingOnNonBacklogConsumerEnabled,
        backlog_entries_min=config.managedLedgerCursorBackloggedThreshold,
        own={
            name: dispatch_rate_in(each[OWN_DISPATCH])
            for name, each in (levels.topic.get(OF_SUBSCRIPTIONS) or {}).items()
            if each.get(OWN_DISPATCH) is not None
        },
    )
