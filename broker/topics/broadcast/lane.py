"""A lane: the consumers of a broadcast on one connection, in groups of equal position.

Pure. `FanoutGroups` decides to which group a consumer belongs; `Fanout` serves the lanes in turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from array import array

    from broker.topics.subscription.consumer import AckRuns, ConsumerSession

    Slots = array[int]
    """An array of type "i"."""

GroupKey = tuple[int, int]
"""(ordinal sent last, epoch of the consumers)."""


@final
class Lane:
    """The consumers of one connection."""

    __slots__ = (
        "ack_runs",
        "full",
        "groups",
        "members",
        "queued",
        "served",
        "session",
        "solos",
        "starved",
    )

    def __init__(self, session: ConsumerSession) -> None:
        self.session = session
        self.ack_runs: AckRuns | None = None
        """The registry of its consumers, if their plain ACKs come by the run."""
        self.groups: dict[GroupKey, Slots] = {}
        self.solos: dict[int, None] = {}
        """Slots to be served alone, next one first."""
        self.members = 0
        self.queued = False
        """Waiting for its turn."""
        self.full = False
        """Waiting for room in the outbox."""
        self.starved = False
        """Waiting for a read."""
        self.served = 0
        """The newest entry that all members in step have been sent."""

    def front(self, tail: int) -> GroupKey | None:
        """The group nearest to the tail that has entries to get."""
        if len(self.groups) == 1:  # nearly always, when all are in step
            (key,) = self.groups
            return key if key[0] < tail else None
        return max((key for key in self.groups if key[0] < tail), default=None)

    def rear(self, tail: int) -> GroupKey | None:
        """The group farthest from the tail."""
        if len(self.groups) == 1:
            return self.front(tail)
        return min((key for key in self.groups if key[0] < tail), default=None)
