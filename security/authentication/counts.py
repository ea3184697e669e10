"""How often credentials were accepted and refused, with the names and labels of Pulsar's metrics
(AuthenticationMetrics, AuthenticationMetricsToken). Pure.

No label contains a part of a credential, or a role: there is one series per provider and kind of
fault.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from typing import TYPE_CHECKING, Final, final

from security.authentication.identity import Flaw

if TYPE_CHECKING:
    from collections.abc import Callable

    from security.authentication.identity import AuthenticationFailed, Identity, Provider

_HOUR: Final = 60.0
_DAY: Final = 24 * _HOUR
MINUTES_LEFT: Final = (
    5.0,
    10.0,
    _HOUR,
    4 * _HOUR,
    _DAY,
    7 * _DAY,
    14 * _DAY,
    30 * _DAY,
    90 * _DAY,
    180 * _DAY,
    270 * _DAY,
    365 * _DAY,
)
"""Upper limits of the classes of Pulsar's histogram."""


@final
class AuthenticationCounts:
    """The counts of one server, since its start."""

    __slots__ = (
        "expired",
        "failed",
        "minutes_left",
        "minutes_left_sum",
        "succeeded",
        "wall_seconds",
        "watches_expiry",
    )

    def __init__(self, wall_seconds: Callable[[], float], *, watches_expiry: bool = False) -> None:
        """`wall_seconds` is Unix time; `watches_expiry`: whether a provider counts expiry."""
        self.wall_seconds = wall_seconds
        self.watches_expiry = watches_expiry
        self.succeeded: Counter[tuple[str, str]] = Counter()
        """By name and method of the provider."""
        self.failed: Counter[tuple[str, str, str]] = Counter()
        """By name and method of the provider, and reason."""
        self.expired = 0
        """Tokens that were shown after their end."""
        self.minutes_left = [0] * (len(MINUTES_LEFT) + 1)
        """Tokens that were accepted, by the minutes until their end (MINUTES_LEFT)."""
        self.minutes_left_sum = 0.0

    def accepted(self, provider: Provider, identity: Identity) -> None:
        """One attempt at one provider."""
        self.succeeded[provider.name, provider.method] += 1
        if provider.counts_expiry and identity.expires_at is not None:
            minutes = max(0.0, identity.expires_at - self.wall_seconds()) / 60
            self.minutes_left[bisect_left(MINUTES_LEFT, minutes)] += 1
            self.minutes_left_sum += minutes

    def refused(self, provider: Provider, error: AuthenticationFailed) -> None:
        """The same."""
        reason = provider.reasons.get(error.flaw) or provider.reasons[Flaw.OTHER]
        self.failed[provider.name, provider.method, reason] += 1
        if provider.counts_expiry and error.flaw is Flaw.EXPIRED:
            self.expired += 1
