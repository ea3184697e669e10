"""When a read without an answer is sent to one more replica. Pure.

A read is sent to one replica of an entry. If that fails, it is sent to the next one. If it is
silent for a time, the read is sent to the next one as well (an extra read), and so on, after longer
times. The first good answer counts. After an error the next replica is asked at once, also while
another one is silent.

Invariant: a client has at most `extra_reads_max` extra reads that wait for an answer. At the bound
a silent replica is waited for, as without speculation.

Source: DefaultSpeculativeRequestExecutionPolicy and PendingReadOp of BookKeeper.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculationRules:
    """How long a silent replica is waited for."""

    first_s: float = 0.0
    """Before the first extra read. 0: there are none."""
    max_s: float = 0.0
    """The longest time between two extra reads. At least `first_s` is used."""
    multiplier: float = 2.0
    """Each time is longer than the one before by this factor."""
    extra_reads_max: int = 64

    @classmethod
    def every(cls, seconds: float) -> SpeculationRules:
        """The same time before each extra read, as BookKeeper's client has it from one key
        (bookkeeperClientSpeculativeReadTimeoutInMillis)."""
        return cls(first_s=seconds, max_s=seconds)


@final
class Speculation:
    """Extra reads of one client."""

    __slots__ = ("_rules", "extra_reads")

    def __init__(self, rules: SpeculationRules | None = None) -> None:
        self._rules = rules if rules is not None else SpeculationRules()
        self.extra_reads = 0
        """Extra reads without an answer."""

    def turns(self, replicas: int, now: float) -> ReplicaTurns:
        """The turns of a read that is sent to the first replica now."""
        return ReplicaTurns(self, self._rules, replicas, now)

    def take(self) -> bool:
        """Whether there may be one more extra read. It is counted until `give_back`."""
        if self.extra_reads >= self._rules.extra_reads_max:
            return False
        self.extra_reads += 1
        return True

    def give_back(self, count: int) -> None:
        """Extra reads are over."""
        self.extra_reads -= count


@final
class ReplicaTurns:
    """Decides which replica of an entry is asked next, and when. Replica 0 has been asked
    already."""

    __slots__ = ("_asked", "_next", "_replicas", "_rules", "_shared", "_wait_s", "due_at")

    def __init__(
        self, shared: Speculation, rules: SpeculationRules, replicas: int, now: float
    ) -> None:
        self._shared = shared
        self._rules = rules
        self._replicas = replicas
        self._next = 1
        self._asked = 1
        """Replicas without an answer."""
        self._wait_s = rules.first_s
        self.due_at = now + rules.first_s if rules.first_s > 0 and replicas > 1 else math.inf
        """When `on_silence` is to be called; infinity: never."""

    @property
    def is_over(self) -> bool:
        """No replica is left that could have a good answer."""
        return not self._asked

    def on_silence(self, now: float) -> int | None:
        """There is no good answer. Returns the replica to ask as well, if it is `due_at`."""
        if now < self.due_at:
            return None
        rules = self._rules
        self._wait_s = min(self._wait_s * rules.multiplier, max(rules.max_s, rules.first_s))
        self.due_at = now + self._wait_s
        if not self._shared.take():
            return None
        self._asked += 1
        return self._take_next()

    def on_failure(self) -> int | None:
        """A replica has no good answer. Returns the one to ask instead."""
        if self._next < self._replicas:
            return self._take_next()
        if self._asked > 1:
            self._shared.give_back(1)
        self._asked -= 1
        return None

    def _take_next(self) -> int:
        replica = self._next
        self._next += 1
        if self._next == self._replicas:
            self.due_at = math.inf
        return replica

    def end(self) -> None:
        """The read is over. What has not been answered does not count any more."""
        self._shared.give_back(max(0, self._asked - 1))
        self._asked = 0
