"""How often replacing a failed ledger is tried, and when after that. Pure.

Attempts fail until an entry is confirmed. After `roll_attempts_max` of them the topic is broken:
appends fail at once, and after a delay the next append starts a single attempt. The delay doubles
with each failed attempt up to `broken_delay_max_s`; the first confirmed entry ends it. A full disk
therefore does not cost a ledger or a log line per publish.

A ledger may also fail soon after it confirmed something: with one of three bookies gone, and two
copies of each entry, an entry in three has both. The first such ledger is replaced without a pause,
and later ones after pauses that double up to `broken_delay_max_s`. A ledger that lived longer than
the pause before it, and confirmed more than a few entries, ends that.

Delays and pauses end early when a bookie joins, and begin short again.

Each attempt takes a turn of the broker (`roll_pace`): thousands of topics may lose their ledgers at
once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from bookie.api import Status
from ledgers.errors import LedgerError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.managed_ledger.config import ManagedLedgerConfig
    from broker.managed_ledger.roll_pace import RollPace
    from ledgers.errors import NotEnoughBookies

_CHECK_CONNECTIONS: Final = "see whether the bookies run, and whether this broker reaches them"
_ADVICE: Final[Mapping[Status, str]] = {
    Status.NOT_ENOUGH_BOOKIES: "start more bookies, or see why some take no entries;"
    " bookkeeper_opportunisticStriping=true lets new ledgers do with the bookies that there are, if"
    " they are enough for the write quorum",
    Status.READ_ONLY: "make room on the disks of the bookies, or start more of them",
    Status.TIMED_OUT: _CHECK_CONNECTIONS,
    Status.TOO_MANY_REQUESTS: "the bookies have more to do than they can: start more of them",
    Status.UNAUTHORIZED: "see which credentials the bookies want",
    Status.UNREACHABLE: _CHECK_CONNECTIONS,
}


def no_entries(status: Status) -> str:
    """Why a topic takes no messages when ledgers fail with this status, and what to do."""
    advice = _ADVICE.get(status, "check the disk")
    return f"new ledgers take no entries ({status.name}): {advice}"


def too_few_bookies(error: NotEnoughBookies) -> LedgerError:
    """The same with what to do."""
    return LedgerError(f"{error}: {_ADVICE[Status.NOT_ENOUGH_BOOKIES]}")


_DOUBLINGS_MAX: Final = 32


@final
class RollAttempts:
    """See the module docstring. `has_failed`: a ledger or an attempt has failed since the last
    confirmed entry, so the next attempt takes a turn of the broker."""

    __slots__ = (
        "_arrivals",
        "_config",
        "_delay_s",
        "_died_young",
        "_failed",
        "_pace",
        "_short_lived",
        "_until",
        "has_failed",
    )

    def __init__(self, config: ManagedLedgerConfig, pace: RollPace) -> None:
        """`pace`: of the broker, which learns what becomes of the attempts of each topic."""
        self._config = config
        self._pace = pace
        self._failed = 0
        self._died_young = 0
        """Ledgers in a row that confirmed entries and failed soon afterwards."""
        self._short_lived = 0
        """The same with a longer life, up to `broken_delay_max_s`."""
        self._delay_s = 0.0
        self._until = 0.0
        self._arrivals = pace.arrivals
        """Of the pace, when the delay began."""
        self.has_failed = False

    @property
    def is_broken(self) -> bool:
        """Whether the topic was given up and no entry has been confirmed since."""
        return self._delay_s > 0.0

    @property
    def is_left(self) -> bool:
        """Whether one more attempt may be made now."""
        return self._failed < self._config.roll_attempts_max

    @property
    def pause_s(self) -> float:
        """Seconds to wait before the next attempt."""
        config = self._config
        if self._died_young > 1:
            return self._young_pause_s()
        return config.roll_retry_delay_s if self._failed > 1 and not self.is_broken else 0.0

    @property
    def is_repeated(self) -> bool:
        """Whether the ledger before the one that is being replaced has failed as well, and not long
        ago."""
        return self._failed > 1 or self._short_lived > 1 or self.is_broken

    def is_due(self, now: float) -> bool:
        """Whether the delay of a broken topic is over, or a bookie has joined since it began."""
        return now >= self._until or self._arrivals != self._pace.arrivals

    def take_up(self) -> None:
        """A broken topic tries again."""
        if self._arrivals != self._pace.arrivals:
            self.begin_anew()

    def begin_anew(self) -> None:
        """A bookie has joined: the next pause, and the next delay, are the shortest again."""
        self._died_young = 0
        self._delay_s = min(self._delay_s, self._config.roll_retry_delay_s / 2)

    def failed(self) -> None:
        """A ledger could not be made, or took no entry at all."""
        self._failed += 1
        self.has_failed = True
        self._pace.failed()

    def ended(self, entries: int, lived_s: float) -> None:
        """A ledger that confirmed so many entries takes no more of them."""
        config = self._config
        self.has_failed = True
        self._short_lived = self._short_lived + 1 if lived_s < config.broken_delay_max_s else 0
        is_young = lived_s < max(config.young_ledger_s, self._young_pause_s()) or (
            entries <= config.young_ledger_entries and lived_s < config.broken_delay_max_s
        )
        self._died_young = self._died_young + 1 if is_young else 0
        if self.is_repeated:
            self._pace.failed()

    def rolled_over(self) -> None:
        """A ledger that took entries is replaced because it is full or old, and not because it
        failed: what failed before it is over."""
        self._short_lived = 0
        self._died_young = 0

    def _young_pause_s(self) -> float:
        if self._died_young < 2:
            return 0.0
        config = self._config
        doubled_s = config.roll_retry_delay_s * 2.0 ** min(self._died_young - 2, _DOUBLINGS_MAX)
        return min(doubled_s, config.broken_delay_max_s)

    def give_up(self, now: float) -> None:
        """None was left. One is left again when the delay is over."""
        config = self._config
        delay_s = max(config.roll_retry_delay_s, 2 * self._delay_s)
        self._delay_s = min(delay_s, config.broken_delay_max_s)
        self._until = now + self._delay_s
        self._arrivals = self._pace.arrivals
        self._failed = config.roll_attempts_max - 1
        self.has_failed = True

    def succeeded(self) -> None:
        """An entry was confirmed."""
        if self.has_failed:
            self._pace.succeeded()
        self._failed = 0
        self._delay_s = 0.0
        self.has_failed = False
