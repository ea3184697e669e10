"""How often each consumer may subscribe to a topic. Pure.

A consumer is known by its host, its name and its id, so only one that comes back again and again is
refused. It may use the requests of one period at once (SubscribeRateLimiter of Pulsar 4.0).
"""

from __future__ import annotations

from typing import Final, NamedTuple, final

from broker.tenancy.policies.delivery_rates import SubscribeRate
from runtime.token_bucket import TokenBucket

CONSUMERS_MAX: Final = 10_000
"""How many are counted at once, because clients choose the names. Above it the one that has not
subscribed for the longest time is forgotten."""


@final
class SubscribingConsumer(NamedTuple):
    """A consumer whose requests are counted together."""

    host: str
    name: str
    consumer_id: int


@final
class SubscribeRates:
    """The requests for one topic."""

    __slots__ = ("_buckets", "_rate")

    def __init__(self) -> None:
        self._rate = SubscribeRate()
        self._buckets: dict[SubscribingConsumer, TokenBucket] = {}

    def admits(self, consumer: SubscribingConsumer, rate: SubscribeRate, now: float) -> bool:
        """Whether one more request is within the rate in force. If so it is counted."""
        if rate != self._rate:
            self._rate = rate
            self._buckets.clear()
        if not rate:
            return True
        buckets = self._buckets
        bucket = buckets.pop(consumer, None)
        if bucket is None:
            if len(buckets) >= CONSUMERS_MAX:
                del buckets[next(iter(buckets))]
            bucket = TokenBucket(rate.requests / rate.period_seconds, rate.requests, now)
        buckets[consumer] = bucket
        if bucket.seconds_until(1, now) > 0:
            return False
        bucket.take(1, now)
        return True
