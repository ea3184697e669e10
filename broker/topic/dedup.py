"""Message deduplication of one topic: which publishes have been seen before. Pure.

For each producer name two numbers are kept apart: the highest sequence id *pushed* to the ledger,
and the highest *persisted*. A message at or below persisted is a duplicate and is answered at once.
One above persisted but not above pushed is in flight: its first copy may still fail, so it is
answered when that copy is (never dropped on suspicion).

A batch counts with its first and its last sequence id. One that overlaps what was seen only in part
cannot be split here; it is stored, because a duplicate is less bad than a loss.

Ids above 2^63 - 1, which are negative numbers for Pulsar's clients and cannot be stored, take no
part: such a message is always new, and changes nothing.

The numbers are restored from a snapshot kept with a cursor plus a replay of the entries behind it.
"""

from __future__ import annotations

from collections import deque
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, Generic, TypeVar, final

if TYPE_CHECKING:
    from collections.abc import Mapping

AnswerT = TypeVar("AnswerT")

SEQUENCE_ID_MAX: Final = 2**63 - 1


class Verdict(Enum):
    """What to do with a publish."""

    NEW = auto()
    DUPLICATE = auto()
    IN_FLIGHT = auto()


@final
class _Sequences(Generic[AnswerT]):
    """What is known of one producer name. Invariant: persisted <= pushed."""

    __slots__ = ("parked", "persisted", "pushed", "seen_at")

    def __init__(self, persisted: int, now: float) -> None:
        self.persisted = persisted
        self.pushed = persisted
        self.seen_at = now
        self.parked: deque[tuple[int, AnswerT]] = deque()
        """Duplicates of messages in flight: (last sequence id, what to answer)."""


@final
class Deduplication(Generic[AnswerT]):
    """All producer names of one topic; `AnswerT`: what is parked to be answered later."""

    __slots__ = ("_by_name",)

    def __init__(self, snapshot: Mapping[str, int], now: float) -> None:
        self._by_name: dict[str, _Sequences[AnswerT]] = {
            name: _Sequences(number, now) for name, number in snapshot.items()
        }

    def last_sequence_id(self, producer_name: str) -> int:
        """The highest persisted one; -1 when the name is new."""
        known = self._by_name.get(producer_name)
        return -1 if known is None else known.persisted

    def judge(
        self, producer_name: str, sequence_id: int, last_sequence_id: int, now: float
    ) -> Verdict:
        """Look at a publish and, if it is new, remember it as pushed.

        `last_sequence_id` is the batch's last one, or the same as the first.
        """
        if last_sequence_id > SEQUENCE_ID_MAX:
            return Verdict.NEW
        known = self._by_name.get(producer_name)
        if known is None:
            known = self._by_name[producer_name] = _Sequences(-1, now)
        known.seen_at = now
        if last_sequence_id <= known.persisted:
            return Verdict.DUPLICATE
        if last_sequence_id <= known.pushed:
            return Verdict.IN_FLIGHT
        known.pushed = last_sequence_id
        return Verdict.NEW

    def park(self, producer_name: str, last_sequence_id: int, answer: AnswerT) -> None:
        """Keep a duplicate of a message in flight until its first copy is answered."""
        self._by_name[producer_name].parked.append((last_sequence_id, answer))

    def persisted(self, producer_name: str, last_sequence_id: int) -> list[AnswerT]:
        """A message is durable; returns what was parked for it, to be answered now.

        One that was never judged (a chunk in front of the last one of its message) is above what
        was pushed and does not count.
        """
        known = self._by_name.get(producer_name)
        if known is None or last_sequence_id > known.pushed:
            return []
        known.persisted = max(known.persisted, last_sequence_id)
        if not known.parked:
            return []
        due: list[AnswerT] = []
        while known.parked and known.parked[0][0] <= known.persisted:
            due.append(known.parked.popleft()[1])
        return due

    def failed(self, producer_name: str) -> list[AnswerT]:
        """A message of this producer was not stored: everything pushed but not persisted counts as
        never seen. Returns what was parked, to be refused."""
        known = self._by_name.get(producer_name)
        if known is None:
            return []
        known.pushed = known.persisted
        refused = [answer for _, answer in known.parked]
        known.parked.clear()
        return refused

    def drop_parked(self) -> list[AnswerT]:
        """Deduplication ends: returns everything parked, to be refused."""
        refused = [answer for known in self._by_name.values() for _, answer in known.parked]
        for known in self._by_name.values():
            known.parked.clear()
        return refused

    def replay(self, producer_name: str, last_sequence_id: int, now: float) -> None:
        """An entry found in the ledger behind the snapshot."""
        if last_sequence_id > SEQUENCE_ID_MAX:
            return
        known = self._by_name.get(producer_name)
        if known is None:
            known = self._by_name[producer_name] = _Sequences(-1, now)
        known.persisted = max(known.persisted, last_sequence_id)
        known.pushed = max(known.pushed, known.persisted)

    def snapshot(self, names_max: int) -> dict[str, int]:
        """Highest persisted sequence ids; the names seen last when there are more than allowed."""
        known = sorted(self._by_name.items(), key=lambda item: item[1].seen_at, reverse=True)
        return {name: numbers.persisted for name, numbers in known[:names_max]}

    def forget_inactive(self, live_names: set[str], seen_before: float) -> int:
        """Drop names without a live producer that were last seen before; returns how many."""
        gone = [
            name
            for name, numbers in self._by_name.items()
            if numbers.seen_at < seen_before and name not in live_names
        ]
        for name in gone:
            del self._by_name[name]
        return len(gone)

    def __len__(self) -> int:
        return len(self._by_name)
