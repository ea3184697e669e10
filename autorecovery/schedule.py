"""When the auditor looks for lost bookies, and when a failed repair is tried again. Pure.

A bookie that ends is lost at once, unless lostBookieRecoveryDelay gives it time to come back (an
upgrade, say). A second one that is lost meanwhile ends the wait: two copies may be at stake. While
no bookie is registered at all nothing is audited: all sessions have ended with ZooKeeper, and there
would be no place for a copy.

Source: BookKeeper's Auditor. Times are seconds on one monotonic scale.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

BACK_OFF_FIRST_S: Final = 5.0
BACK_OFF_MAX_S: Final = 1800.0
REMEMBERED_MAX: Final = 100_000
"""Ledgers whose repair failed. Beyond that the oldest is forgotten, and tried again earlier."""


@final
class AuditSchedule:
    """See the module docstring."""

    def __init__(self, bookie_check_s: float, delay_s: float, now: float) -> None:
        """`bookie_check_s`: auditorPeriodicBookieCheckInterval; 0: only after changes."""
        self._bookie_check_s = bookie_check_s if bookie_check_s > 0 else math.inf
        self._delay_s = delay_s
        self._registered: frozenset[str] = frozenset()
        self._missing: frozenset[str] = frozenset()
        """Lost since the last audit."""
        self._due = now
        self._is_waiting = False
        """Whether a lost bookie has time to come back."""
        self.audits_delayed = 0
        """Audits that were put off, to give a lost bookie that time."""
        self.delays_cancelled = 0
        """The number of these that ended early: the bookie came back, or another one was lost
        meanwhile."""

    @property
    def delay_s(self) -> float:
        """lostBookieRecoveryDelay as it is in force."""
        return self._delay_s

    def on_registered(self, registered: AbstractSet[str], now: float) -> None:
        """The registered bookies, writable or not, have been read again."""
        lost = self._registered - registered
        missing = (self._missing | lost) - registered
        self._registered = frozenset(registered)
        if missing == self._missing:
            return
        had, self._missing = self._missing, missing
        if self._is_waiting:
            self._is_waiting = False
            self.delays_cancelled += 1
        if not missing:
            self._due = max(self._due, now + self._bookie_check_s)
        elif missing - had:
            wait = self._delay_s if len(missing) == 1 else 0.0
            self._due = min(self._due, now + wait)
            if wait > 0:
                self._is_waiting = True
                self.audits_delayed += 1

    def on_delay(self, delay_s: float, now: float) -> None:
        """lostBookieRecoveryDelay was written. No delay, and the same one again, ask for an audit
        at once, as from BookKeeper's auditor."""
        if delay_s in (0, self._delay_s):
            self._due = now
        elif self._missing:
            self._due = now + delay_s
        self._delay_s = delay_s

    def audit_now(self, now: float) -> None:
        """Replication was enabled again, or an audit did not finish."""
        self._due = now

    def next_audit(self) -> float:
        """When the next audit is due; math.inf: after a change only."""
        return self._due if self._registered else math.inf

    def on_audit_begun(self, now: float) -> None:
        """An audit begins, with all bookies that are lost now. Those that are lost while it is
        under way are the next one's."""
        self._missing = frozenset()
        self._is_waiting = False
        self._due = now + self._bookie_check_s


@final
@dataclass(slots=True)
class _Failure:
    count: int
    again_at: float


@final
class BackOff:
    """Ledgers whose repair failed, and when each is tried again: without an end, and ever more
    rarely, because a lost bookie with the only copy may never come back (apache/bookkeeper#4872).
    """

    def __init__(self) -> None:
        self._failures: dict[int, _Failure] = {}

    def __len__(self) -> int:
        return len(self._failures)

    def on_failure(self, ledger_id: int, now: float) -> bool:
        """Whether it is the first failure of this ledger that is remembered."""
        failure = self._failures.pop(ledger_id, None) or _Failure(0, now)
        pause = min(BACK_OFF_MAX_S, BACK_OFF_FIRST_S * 2 ** min(failure.count, 20))
        self._failures[ledger_id] = _Failure(failure.count + 1, now + pause)
        if len(self._failures) > REMEMBERED_MAX:
            del self._failures[next(iter(self._failures))]
        return failure.count == 0

    def wait_until(self, ledger_id: int, again_at: float) -> None:
        """Try again then: not a failure, the time has not come."""
        failure = self._failures.pop(ledger_id, None)
        self._failures[ledger_id] = _Failure(failure.count if failure else 0, again_at)

    def on_success(self, ledger_id: int) -> None:
        """Forget the ledger."""
        self._failures.pop(ledger_id, None)

    def on_bookies_changed(self, now: float) -> None:
        """Another bookie is there, which may have, or take, what was missing."""
        for failure in self._failures.values():
            if failure.count:
                failure.count = 1
                failure.again_at = min(failure.again_at, now)

    def is_waiting(self, ledger_id: int, now: float) -> bool:
        """Whether it is too early to try again."""
        failure = self._failures.get(ledger_id)
        return failure is not None and failure.again_at > now

    def next_at(self) -> float:
        """When the first of them is due; math.inf: there is none."""
        return min((each.again_at for each in self._failures.values()), default=math.inf)
