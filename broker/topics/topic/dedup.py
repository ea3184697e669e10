"""Message deduplication of one topic: which publishes have been seen before. Pure.

Two numbers are kept for each producer name: the highest sequence id *pushed* to the ledger and the
highest *persisted*. A message at or below persisted is a duplicate and is answered at once. A
message above persisted but not above pushed is in flight. Its first copy may still fail, so it is
answered together with that copy and never dropped on suspicion.

A batch counts with its last sequence id. A batch that overlaps seen ids only in part cannot be
split here. It is stored, because a duplicate is less harmful than a loss.

The chunks of a message share its sequence id, which counts with the last chunk: before that the
message is not whole. An earlier chunk is only looked up (`judge_part`). Until the last chunk is
pushed it is new each time it is sent, so it may be stored twice. Pulsar stores it twice, too, and
consumers expect it: both copies have the uuid of the message.

Ids above 2^63 - 1 are negative numbers for Pulsar's clients and cannot be stored, so they take no
part: such a message is always new and changes nothing.

The numbers are restored from a snapshot kept with a cursor and a replay of the entries after it.
"""

from __future__ import annotations

from enum import Enum, auto
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final, Generic, TypeVar, final

if TYPE_CHECKING:
    from collections.abc import Mapping

AnswerT = TypeVar("AnswerT")

SEQUENCE_ID_MAX: Final = 2**63 - 1
SNAPSHOT_BYTES_MAX: Final = 768 * 1024
"""Names in one snapshot. It must fit into an entry and, at rest, into a node of ZooKeeper."""
_NUMBER_BYTES: Final = 16
"""About as much is stored with each name."""


class Verdict(Enum):
    """The decision about a publish."""

    NEW = auto()
    DUPLICATE = auto()
    IN_FLIGHT = auto()


@final
class _Sequences(Generic[AnswerT]):
    """The state of one producer name. Invariant: persisted <= pushed."""

    __slots__ = ("parked", "persisted", "pushed", "seen_at")

    def __init__(self, persisted: int, now: float) -> None:
        self.persisted = persisted
        self.pushed = persisted
        self.seen_at = now
        self.parked: list[tuple[int, int, AnswerT]] = []
        """Duplicates of messages in flight: (last sequence id, number, pending answer). A heap,
        because a producer that comes back again sends earlier ids after later ones."""


@final
class Deduplication(Generic[AnswerT]):
    """All producer names of one topic. `AnswerT`: the pending answer of a parked duplicate."""

    __slots__ = ("_by_name", "_parked")

    def __init__(self, snapshot: Mapping[str, int], now: float) -> None:
        self._by_name: dict[str, _Sequences[AnswerT]] = {
            name: _Sequences(number, now) for name, number in snapshot.items()
        }
        self._parked = 0
        """How many were parked. Copies of the same message are answered in this order."""

    def last_sequence_id(self, producer_name: str) -> int:
        """The highest persisted sequence id; -1 when the name is new."""
        known = self._by_name.get(producer_name)
        return -1 if known is None else known.persisted

    def judge(self, producer_name: str, last_sequence_id: int, now: float) -> Verdict:
        """Judge a publish and, if it is new, record it as pushed.

        `last_sequence_id` is that of the last message of a batch, or of the only message.
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

    def judge_part(self, producer_name: str, last_sequence_id: int) -> Verdict:
        """Judge a chunk before the last of its message. Records nothing: were the id seen now, the
        last chunk would be a duplicate."""
        known = self._by_name.get(producer_name)
        if known is None or last_sequence_id > known.pushed:
            return Verdict.NEW
        return Verdict.DUPLICATE if last_sequence_id <= known.persisted else Verdict.IN_FLIGHT

    def park(self, producer_name: str, last_sequence_id: int, answer: AnswerT) -> None:
        """Keep a duplicate of a message in flight until its first copy is answered."""
        self._parked += 1
        heappush(self._by_name[producer_name].parked, (last_sequence_id, self._parked, answer))

    def persisted(self, producer_name: str, last_sequence_id: int) -> list[AnswerT]:
        """A message is durable as a whole. Returns the answers parked for it, to be sent now.

        A message that was never judged (taken before deduplication was switched on) is above
        pushed and does not count.
        """
        known = self._by_name.get(producer_name)
        if known is None or last_sequence_id > known.pushed:
            return []
        known.persisted = max(known.persisted, last_sequence_id)
        if not known.parked:
            return []
        due: list[AnswerT] = []
        while known.parked and known.parked[0][0] <= known.persisted:
            due.append(heappop(known.parked)[2])
        return due

    def failed(self, producer_name: str) -> list[AnswerT]:
        """A message of this producer was not stored. All ids pushed but not persisted count as
        never seen. Returns the parked answers, to be refused."""
        known = self._by_name.get(producer_name)
        if known is None:
            return []
        known.pushed = known.persisted
        refused = _in_order(known)
        known.parked.clear()
        return refused

    def drop_parked(self) -> list[AnswerT]:
        """Deduplication ends. Returns all parked answers, to be refused."""
        refused = [answer for known in self._by_name.values() for answer in _in_order(known)]
        for known in self._by_name.values():
            known.parked.clear()
        return refused

    def replay(self, producer_name: str, last_sequence_id: int, now: float) -> None:
        """Replay a message of the ledger after the snapshot."""
        if last_sequence_id > SEQUENCE_ID_MAX:
            return
        known = self._by_name.get(producer_name)
        if known is None:
            known = self._by_name[producer_name] = _Sequences(-1, now)
        known.persisted = max(known.persisted, last_sequence_id)
        known.pushed = max(known.pushed, known.persisted)

    def snapshot(self, names_max: int) -> dict[str, int]:
        """Highest persisted sequence ids. Above the allowed number or size, the names seen last."""
        known = sorted(self._by_name.items(), key=lambda item: item[1].seen_at, reverse=True)
        stored: dict[str, int] = {}
        room = SNAPSHOT_BYTES_MAX
        for name, numbers in known[:names_max]:
            size = len(name.encode()) + _NUMBER_BYTES
            if size <= room:  # a huge name must not drive out those of others
                room -= size
                stored[name] = numbers.persisted
        return stored

    def forget_inactive(self, live_names: set[str], seen_before: float) -> int:
        """Drop names without a live producer last seen before the time. Returns how many."""
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


def _in_order(known: _Sequences[AnswerT]) -> list[AnswerT]:
    return [answer for _, _, answer in sorted(known.parked, key=lambda parked: parked[:2])]
