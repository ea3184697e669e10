"""Decides when a child process that has ended is started again. Pure.

The first restart is at once. A child that ends again soon after waits twice as long each time, up
to a bound: a disk that fails for an hour costs some starts per minute, and is used again when it is
back. A child that ran for long enough begins again without a wait.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RestartRules:
    """Seconds."""

    first_delay_seconds: float = 0.5
    """After the second end in a row."""
    delay_seconds_max: float = 30.0
    calm_seconds: float = 60.0
    """A child that ran for so long has recovered."""


@final
class Restarts:
    """The restarts of one child."""

    __slots__ = ("_delay", "_rules", "_started_at", "count")

    def __init__(self, rules: RestartRules, now: float) -> None:
        self._rules = rules
        self._delay = 0.0
        self._started_at = now
        self.count = 0
        """How often it was started again."""

    def started(self, now: float) -> None:
        """The child was started."""
        self._started_at = now

    def ended(self, now: float) -> float:
        """The child has ended: start it again after so many seconds."""
        rules = self._rules
        self.count += 1
        if now - self._started_at >= rules.calm_seconds:
            self._delay = 0.0
        delay = self._delay
        self._delay = min(max(delay * 2, rules.first_delay_seconds), rules.delay_seconds_max)
        return delay
