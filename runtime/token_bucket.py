"""A token bucket: the rule of all rates. Pure.

A bucket gains `rate` tokens a second up to `burst`, and begins full. Over any span of time the
taken amount is therefore at most `rate * seconds + burst`. An amount above the burst waits for a
full bucket and leaves a debt, which later amounts wait for.

Source: PIP-322 of Pulsar, whose buckets hold the tokens of one period.
"""

from __future__ import annotations

from typing import final


@final
class TokenBucket:
    """See the module docstring. `now` is in seconds and never goes back."""

    __slots__ = ("_tokens", "_updated_at", "burst", "rate")

    def __init__(self, rate: float, burst: float, now: float) -> None:
        """`rate` per second and `burst` are above 0."""
        self.rate = rate
        self.burst = burst
        self._tokens = burst
        self._updated_at = now

    def use(self, rate: float, burst: float, now: float) -> None:
        """Another rate and burst from now on. Debts stay, and so do tokens up to the new burst: a
        rate that changes often lets no more pass than it says."""
        self._tokens = min(self.tokens(now), burst)
        self.rate = rate
        self.burst = burst

    def tokens(self, now: float) -> float:
        """Negative: a debt."""
        gained = (now - self._updated_at) * self.rate
        if gained > 0:
            self._tokens = min(self.burst, self._tokens + gained)
            self._updated_at = now
        return self._tokens

    def seconds_until(self, amount: float, now: float) -> float:
        """How long to wait before `amount` may be taken; 0: it may be taken now."""
        lacking = min(amount, self.burst) - self.tokens(now)
        return lacking / self.rate if lacking > 0 else 0.0

    def take(self, amount: float, now: float) -> None:
        """Take it, whether there is enough or not."""
        self.tokens(now)
        self._tokens -= amount
