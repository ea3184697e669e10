"""How much may be sent now under a rate of dispatch, and how often that was too little. Pure.

What is sent is taken afterwards, because only then it is known, and may leave a debt. So over any
span of time what is sent is at most the rate, one period's worth at once, and one step's excess.

Source: DispatchRateLimiterAsyncTokenBucketImpl of Pulsar 4.0, SubscriptionStats of Pulsar 4.0.8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, final

from runtime.token_bucket import TokenBucket
from settings.kinds import NO_LIMIT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.tenancy.policies.delivery_rates import DispatchRate

BROKER: Final = "broker"
TOPIC: Final = "topic"
SUBSCRIPTION: Final = "subscription"
GROUP: Final = "resource group"
"""Pulsar's statistics have no field for it."""
LEVELS: Final = (SUBSCRIPTION, TOPIC, BROKER)
"""The levels that a rate may belong to."""


class Published(Protocol):
    """How fast messages were published to the topic in the last window."""

    @property
    def messages_per_second(self) -> float:
        """Messages."""

    @property
    def bytes_per_second(self) -> float:
        """Bytes."""


@final
class DispatchBudget:
    """The tokens of one rate. `now` is in seconds and never goes back."""

    __slots__ = ("_bytes", "_messages", "_published", "_rate")

    def __init__(self, rate: DispatchRate, now: float, published: Published | None = None) -> None:
        """`published` is added to a rate that is relative to it."""
        self._rate = rate
        self._published = published if rate.is_relative else None
        period = rate.period_seconds
        self._messages = _bucket(rate.messages, period, now)
        self._bytes = _bucket(rate.size_bytes, period, now)

    def use(self, rate: DispatchRate, now: float) -> None:
        """Another rate from now on, of which nothing is relative."""
        self._rate = rate
        period = rate.period_seconds
        self._messages = _changed(self._messages, rate.messages, period, now)
        self._bytes = _changed(self._bytes, rate.size_bytes, period, now)

    def seconds_until_any(self, now: float) -> float:
        """How long to wait for a token of each kind; 0: something may be sent now."""
        self._follow(now)
        longest = 0.0
        for bucket in (self._messages, self._bytes):
            if bucket is not None:
                longest = max(longest, bucket.seconds_until(1, now))
        return longest

    def tokens(self, now: float) -> tuple[float, float]:
        """(messages, bytes) that may be sent now."""
        self._follow(now)
        messages, size_bytes = self._messages, self._bytes
        return (
            NO_LIMIT if messages is None else messages.tokens(now),
            NO_LIMIT if size_bytes is None else size_bytes.tokens(now),
        )

    def take(self, messages: int, size_bytes: int, now: float) -> None:
        """Take tokens for what was sent."""
        if self._messages is not None:
            self._messages.take(messages, now)
        if self._bytes is not None:
            self._bytes.take(size_bytes, now)

    def _follow(self, now: float) -> None:
        """Add what is published in a second to the tokens of a period, as Pulsar does."""
        published = self._published
        if published is None:
            return
        period = self._rate.period_seconds
        if self._messages is not None:
            amount = self._rate.messages + published.messages_per_second
            self._messages.use(amount / period, amount, now)
        if self._bytes is not None:
            amount = self._rate.size_bytes + published.bytes_per_second
            self._bytes.use(amount / period, amount, now)


def _bucket(amount: int, period_seconds: int, now: float) -> TokenBucket | None:
    """It holds the tokens of one period."""
    return TokenBucket(amount / period_seconds, amount, now) if amount > 0 else None


def _changed(
    before: TokenBucket | None, amount: int, period_seconds: int, now: float
) -> TokenBucket | None:
    """The same bucket, if there is to be one as before."""
    if before is None or amount <= 0:
        return _bucket(amount, period_seconds, now)
    before.use(amount / period_seconds, amount, now)
    return before


@final
class Throttled(NamedTuple):
    """How often rates allowed a subscription less than it could have sent: by the messages, and by
    the bytes of a rate."""

    messages: int = 0
    size_bytes: int = 0


NEVER: Final = Throttled()


def throttled_json(by_level: Mapping[str, Throttled]) -> dict[str, int]:
    """The fields of a subscription's statistics."""
    fields: dict[str, int] = {}
    for level in LEVELS:
        times = by_level.get(level, NEVER)
        fields[f"dispatchThrottledMsgEventsBy{level.title()}Limit"] = times.messages
        fields[f"dispatchThrottledBytesEventsBy{level.title()}Limit"] = times.size_bytes
    return fields
