"""What must hold for one named consumer of a broadcast, whichever brokers served it. Pure.

A *stay* is one connection of a consumer, from SUBSCRIBE on. In each stay:

- The first message is at or before the one after its last acknowledgement: whatever comes before it
  was acknowledged by this consumer in an earlier stay.
- From there on every message comes once and in order, and only what it acknowledged in an earlier
  stay is left out.

The last stay reaches the end of the topic. An acknowledgement counts from the moment it was sent,
because it may take effect without its receipt: the consumer may be gone when the broker finds it in
a socket. Then its message does not come again, and neither does a receipt. One whose receipt came
may still be lost with the broker: then its message comes again, which is counted and is no
violation. So receipts are owed only on the connection on which they were asked for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

Place = tuple[int, int]
"""(ledger id, entry id)"""

SENTENCES_MAX = 5


@dataclass
class ConsumerHistory:
    """A consumer whose subscription began before the first message."""

    name: str
    stays: list[list[Place]] = field(default_factory=list)
    """What was delivered in each, in order."""
    acknowledged: dict[Place, int] = field(default_factory=dict)
    """What it has acknowledged -> the number of the first stay in which it did."""
    receipts: dict[Place, int] = field(default_factory=dict)
    """The same for acknowledgements whose receipt came."""
    unanswered: set[Place] = field(default_factory=set)
    """What it has acknowledged in the last stay, while the receipt has not come."""

    def begin_stay(self) -> None:
        """It subscribes on another connection. Receipts of the one before do not come any more."""
        self.stays.append([])
        self.unanswered.clear()

    def ask(self, place: Place) -> None:
        """It acknowledges in the last stay."""
        self.acknowledged.setdefault(place, len(self.stays) - 1)
        self.unanswered.add(place)

    def answer(self, place: Place) -> None:
        """The receipt has come."""
        self.receipts.setdefault(place, len(self.stays) - 1)
        self.unanswered.discard(place)


def check_consumer(
    history: ConsumerHistory, log: Sequence[Place], *, is_over: bool = True
) -> list[str]:
    """All that is wrong, as sentences; bounded. `log`: what the topic holds, ascending. `is_over`:
    the last stay was given the time to end."""
    found: list[str] = []
    known = frozenset(log)
    for number, stay in enumerate(history.stays):
        found += _check_order(number, stay, known)
        if not stay:
            continue
        missing = _missing(history, number, log)
        late = [each for each in missing if each < stay[0]]
        skipped = [each for each in missing if stay[0] < each < max(stay)]
        if late:
            found.append(
                f"RESUMED LATE: stay {number} begins at {stay[0]}, and {late[0]} was not "
                f"acknowledged ({len(late)} such; the last receipt before was for "
                f"{last_receipt(history, number)})"
            )
        if skipped:
            found.append(f"SKIPPED: {skipped[0]} in stay {number} ({len(skipped)} such)")
    if is_over and (lacking := lacking_of(history, log)):
        found.append(f"NOT DELIVERED: {lacking[0]} in the last stay ({len(lacking)} such)")
    return [f"{history.name}: {sentence}" for sentence in found[:SENTENCES_MAX]]


def lacking_of(history: ConsumerHistory, log: Sequence[Place]) -> list[Place]:
    """What is still to come in the last stay."""
    return _missing(history, len(history.stays) - 1, log)


def again_of(history: ConsumerHistory) -> int:
    """How many messages came again in a stay although the receipt of their acknowledgement had come
    in an earlier one."""
    return sum(
        history.receipts.get(place, number) < number
        for number, stay in enumerate(history.stays)
        for place in stay
    )


def last_receipt(history: ConsumerHistory, number: int) -> Place | None:
    """The last acknowledged position before a stay, as far as the consumer knows."""
    return max((place for place, stay in history.receipts.items() if stay < number), default=None)


def earliest_held(history: ConsumerHistory, log: Sequence[Place]) -> Place | None:
    """The first message that has to be kept for this consumer."""
    return next((place for place in log if place not in history.acknowledged), None)


def check_kept(
    mark_delete: Place, histories: Sequence[ConsumerHistory], log: Sequence[Place]
) -> list[str]:
    """Whether the owner of the topic may delete something that a consumer has not acknowledged."""
    found: list[str] = []
    for history in histories:
        held = earliest_held(history, log)
        if held is not None and held <= mark_delete:
            found.append(
                f"NOT KEPT: {history.name} has not acknowledged {held}, and the owner has deleted "
                f"up to {mark_delete}"
            )
    return found[:SENTENCES_MAX]


def _missing(history: ConsumerHistory, number: int, log: Sequence[Place]) -> list[Place]:
    """What did not come in a stay and was not acknowledged before it."""
    came = frozenset(history.stays[number]) if history.stays else frozenset()
    acknowledged = history.acknowledged
    return [
        place for place in log if place not in came and acknowledged.get(place, number) >= number
    ]


def _check_order(number: int, stay: Sequence[Place], known: frozenset[Place]) -> list[str]:
    found: list[str] = []
    newest: Place = (-1, -1)
    for place in stay:
        if place == newest:
            found.append(f"DOUBLED: {place} in stay {number}")
        elif place < newest:
            found.append(f"REORDERED: {place} after {newest} in stay {number}")
        if place not in known:
            found.append(f"INVENTED: {place} in stay {number}, which the topic does not hold")
        newest = max(newest, place)
    return found
