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

Names are bounded in number and in bytes. Above a bound, names that take much room go first, then
those without a live producer, then those not seen for longest. Copies of their messages are stored
again. A name with a message in flight stays, and does not count: such messages are bounded.
"""

from __future__ import annotations

from enum import Enum, auto
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final, Generic, TypeVar, final

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

AnswerT = TypeVar("AnswerT")

SEQUENCE_ID_MAX: Final = 2**63 - 1
NAMES_BYTES_MAX: Final = 768 * 1024
"""Names that are kept, and so those in one snapshot. It must fit into an entry and, at rest, into a
node of ZooKeeper."""
_NUMBER_BYTES: Final = 16
"""About as much is stored with each name."""
_USUAL_NAME_BYTES: Final = 1024
"""A longer name must not drive out those of others."""
_KEPT_SHARE: Final = 0.9
"""The share of a bound that stays once the bound is passed, so that the names are searched once for
many that come."""


class Verdict(Enum):
    """The decision about a publish."""

    NEW = auto()
    DUPLICATE = auto()
    IN_FLIGHT = auto()
    FOREIGN = auto()
    """The message says that it is another producer's, or its command has a higher number than the
    message. It must not be stored: after a restart it would count for that one, or by its own
    number."""


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
    """All producer names of one topic. `AnswerT`: the pending answer of a parked duplicate.

    `names_max` bounds the names, `live` has those of the producers of the topic.
    """

    __slots__ = (
        "_by_name",
        "_bytes_tolerated",
        "_live",
        "_names_bytes",
        "_names_max",
        "_names_tolerated",
        "_parked",
    )

    def __init__(
        self, snapshot: Mapping[str, int], now: float, names_max: int, live: Container[str]
    ) -> None:
        self._by_name: dict[str, _Sequences[AnswerT]] = {}
        self._names_bytes = 0
        self._names_max = names_max
        self._live = live
        self._tolerate(0, 0)
        self._parked = 0
        """How many were parked. Copies of the same message are answered in this order."""
        for name, number in snapshot.items():
            self._new(name, number, now)
        self._forget_beyond()

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
            known = self._new(producer_name, -1, now)
            known.pushed = last_sequence_id
            self._forget_beyond()
            return Verdict.NEW
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
            known = self._new(producer_name, -1, now)
        known.seen_at = now
        known.persisted = max(known.persisted, last_sequence_id)
        known.pushed = max(known.pushed, known.persisted)
        self._forget_beyond()

    def snapshot(self) -> dict[str, int]:
        """Highest persisted sequence ids, within the bounds also of those that have messages in
        flight."""
        known = sorted(self._by_name.items(), key=self._rank, reverse=True)
        stored: dict[str, int] = {}
        room = NAMES_BYTES_MAX
        for name, numbers in known[: self._names_max]:
            size = _stored_bytes(name)
            if size <= room:
                room -= size
                stored[name] = numbers.persisted
        return stored

    def forget_inactive(self, seen_before: float) -> int:
        """Drop names without a live producer last seen before the time. Returns how many."""
        live = self._live
        gone = [
            name
            for name, numbers in self._by_name.items()
            if numbers.seen_at < seen_before and name not in live
        ]
        for name in gone:
            self._forget(name)
        self._tolerate(0, 0)
        self._forget_beyond()
        return len(gone)

    def _new(self, name: str, persisted: int, now: float) -> _Sequences[AnswerT]:
        self._names_bytes += _stored_bytes(name)
        known = self._by_name[name] = _Sequences(persisted, now)
        return known

    def _forget(self, name: str) -> None:
        self._names_bytes -= _stored_bytes(name)
        del self._by_name[name]

    def _tolerate(self, names: float, size_bytes: float) -> None:
        """Do not look for names to forget before there are more than that, and than the bounds."""
        self._names_tolerated = max(names, self._names_max)
        self._bytes_tolerated = max(size_bytes, NAMES_BYTES_MAX)

    def _forget_beyond(self) -> None:
        """Drop names if there are more of them than the bounds allow."""
        names = self._by_name
        if len(names) <= self._names_tolerated and self._names_bytes <= self._bytes_tolerated:
            return
        resting = [item for item in names.items() if item[1].pushed == item[1].persisted]
        left, left_bytes = len(resting), sum(_stored_bytes(name) for name, _ in resting)
        names_kept, bytes_kept = self._names_max * _KEPT_SHARE, NAMES_BYTES_MAX * _KEPT_SHARE
        for name, _ in sorted(resting, key=self._rank):
            if left <= names_kept and left_bytes <= bytes_kept:
                break
            self._forget(name)
            left, left_bytes = left - 1, left_bytes - _stored_bytes(name)
        self._tolerate(len(names) / _KEPT_SHARE, self._names_bytes / _KEPT_SHARE)

    def _rank(self, item: tuple[str, _Sequences[AnswerT]]) -> tuple[bool, bool, float]:
        """The lower, the sooner the name is forgotten."""
        name, known = item
        return (_stored_bytes(name) <= _USUAL_NAME_BYTES, name in self._live, known.seen_at)

    def __len__(self) -> int:
        return len(self._by_name)


def _stored_bytes(name: str) -> int:
    return len(name.encode()) + _NUMBER_BYTES


def _in_order(known: _Sequences[AnswerT]) -> list[AnswerT]:
    return [answer for _, _, answer in sorted(known.parked, key=lambda parked: parked[:2])]
