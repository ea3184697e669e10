"""Who gets what next: consumers in step, laggards, and those that are served one by one.

Pure. Each connected consumer has a slot (that of its virtual cursor) and, in lists by slot, the
ordinal sent to it last and its permits. Those on one connection (a `Lane`) at the same position
form a group and are served together: one list of slots, one entry, one call. A consumer without
permits, or with too much unacknowledged, belongs to no group; when it may go on, it joins a group
at its own position, which catches up in slices of its own. Groups that meet become one.

A consumer is served alone ("solo") while something of its own is in its way: entries acknowledged
out of order ahead of it, part of a batch, redelivery counts; and its replays (single entries it
asked for again) are sent apart from the groups.

Invariants: an attached slot is in exactly one place: a group of its lane (key: position and the
options its heads carry), its lane's solos, or parked, which is none; `place` decides which, from
the arrays alone. A group is never empty. Permits: granted - sent = `permits[slot]`.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from broker.broadcast.virtual_cursors import VirtualCursors
    from protocol.ack_runs import AckRuns

GroupKey = tuple[int, bytes]
"""(ordinal sent last, options at the end of the command)."""

PERMITS_MAX: Final = 2**31 - 1


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

    def __init__(self, session: object) -> None:
        self.session = session
        self.ack_runs: AckRuns | None = None
        """Where its consumers are known, if their plain ACKs come by the run."""
        self.groups: dict[GroupKey, dict[int, None]] = {}
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
        """The newest entry that everybody in step has been sent."""

    def front(self, tail: int) -> GroupKey | None:
        """The group nearest to the tail that has something to get."""
        if len(self.groups) == 1:  # nearly always, when all are in step
            (key,) = self.groups
            return key if key[0] < tail else None
        return max((key for key in self.groups if key[0] < tail), default=None)

    def rear(self, tail: int) -> GroupKey | None:
        """The group farthest from the tail."""
        if len(self.groups) == 1:
            return self.front(tail)
        return min((key for key in self.groups if key[0] < tail), default=None)


@final
class FanoutGroups:
    """Delivery state of all connected consumers. `unacked_max` is in entries; 0: no bound."""

    __slots__ = (
        "_blocked",
        "_bounded",
        "_counts",
        "_cursors",
        "_parked",
        "_replays",
        "_solo_until",
        "_unacked_max",
        "bytes_out",
        "flow_ms",
        "granted",
        "heads",
        "lanes",
        "options",
        "permits",
        "redelivered",
        "sent",
    )

    def __init__(self, cursors: VirtualCursors, unacked_max: int) -> None:
        self._cursors = cursors
        self._unacked_max = unacked_max
        self.sent: list[int] = []
        self.permits: list[int] = []
        self.granted: list[int] = []
        """By slot: messages that FLOW has allowed in all; see `messages_out`."""
        self.bytes_out: list[int] = []
        self.flow_ms = array("q")
        """By slot: when permits came last, wall time."""
        self.lanes: list[Lane | None] = []
        self.heads: list[bytes] = []
        """By slot: the consumer id as a varint."""
        self.options: list[bytes] = []
        """By slot: what its heads carry behind the message id."""
        self.redelivered: dict[int, int] = {}
        """Messages sent again, by slot."""
        self._bounded = bytearray()
        """By slot: 1 when the bound on unacknowledged entries applies (Shared)."""
        self._blocked: set[int] = set()
        self._parked: set[int] = set()
        self._solo_until: dict[int, int] = {}
        self._counts: dict[int, dict[int, int]] = {}
        self._replays: dict[int, dict[int, None]] = {}

    def clear(self) -> None:
        """Forget everybody: nobody is attached any more."""
        del self.flow_ms[:]
        del self._bounded[:]
        for each in (
            self.sent,
            self.permits,
            self.granted,
            self.bytes_out,
            self.lanes,
            self.heads,
            self.options,
        ):
            each.clear()

    # --- coming and going ---------------------------------------------------------------

    def attach(
        self, slot: int, lane: Lane, consumer: bytes, options: bytes, *, bounded: bool
    ) -> None:
        """Its consumer is connected and gets what lies behind its virtual cursor."""
        while len(self.sent) <= slot:
            self.sent.append(0)
            self.permits.append(0)
            self.granted.append(0)
            self.bytes_out.append(0)
            self.flow_ms.append(0)
            self.lanes.append(None)
            self.heads.append(b"")
            self.options.append(b"")
            self._bounded.append(0)
        assert self.lanes[slot] is None
        self.sent[slot] = self._cursors.acked[slot]
        self.permits[slot] = self.granted[slot] = self.bytes_out[slot] = 0
        self.flow_ms[slot] = 0
        self.lanes[slot] = lane
        self.heads[slot] = consumer
        self.options[slot] = options
        self._bounded[slot] = bounded
        lane.members += 1
        if self._cursors.ragged_count:
            self._look_ahead(slot)
        self.place(slot)

    def detach(self, slot: int) -> Lane | None:
        """Its consumer is gone; returns the lane it was on."""
        lane = self.lanes[slot] if slot < len(self.lanes) else None
        if lane is None:
            return None
        self._unplace(slot, lane)
        self.lanes[slot] = None
        lane.members -= 1
        self._solo_until.pop(slot, None)
        self._counts.pop(slot, None)
        self._replays.pop(slot, None)
        self.redelivered.pop(slot, None)
        return lane

    def set_options(self, slot: int, options: bytes) -> None:
        """Its heads carry something else from now on."""
        lane = self.lanes[slot]
        assert lane is not None
        self._unplace(slot, lane)
        self.options[slot] = options
        self.place(slot)

    # --- where a consumer belongs -------------------------------------------------------

    def place(self, slot: int) -> Lane | None:
        """Put the slot where it belongs now. Its lane, unless it is parked."""
        lane = self.lanes[slot]
        assert lane is not None
        if self.permits[slot] <= 0:
            self._parked.add(slot)
            return None
        if self._bounded[slot] and self._is_over(slot):
            self._parked.add(slot)
            self._blocked.add(slot)
            return None
        self._parked.discard(slot)
        self._blocked.discard(slot)
        if slot in self._solo_until or slot in self._replays:
            lane.solos[slot] = None
        else:
            key = (self.sent[slot], self.options[slot])
            group = lane.groups.get(key)
            if group is None:
                lane.groups[key] = {slot: None}
            else:
                group[slot] = None
        return lane

    def _unplace(self, slot: int, lane: Lane) -> None:
        if slot in self._parked:
            self._parked.discard(slot)
            self._blocked.discard(slot)
            return
        if slot in lane.solos:
            del lane.solos[slot]
            return
        key = (self.sent[slot], self.options[slot])
        group = lane.groups[key]
        del group[slot]
        if not group:
            del lane.groups[key]

    def replace(self, slot: int) -> Lane | None:
        """Something about it changed: take it out and `place` it again."""
        lane = self.lanes[slot]
        assert lane is not None
        self._unplace(slot, lane)
        return self.place(slot)

    def _is_over(self, slot: int) -> bool:
        limit = self._unacked_max
        if not limit:
            return False
        unacked = self.unacked(slot)
        return unacked > limit // 2 if slot in self._blocked else unacked >= limit

    def unacked(self, slot: int) -> int:
        """Entries sent and not acknowledged."""
        count = self.sent[slot] - self._cursors.acked[slot]
        if count > 0 and self._cursors.ragged_count:
            ragged = self._cursors.ragged_of(slot)
            if ragged is not None:
                count -= ragged.holes.range_cardinality(0, self.sent[slot] + 1)
        return max(0, count)

    def _look_ahead(self, slot: int) -> None:
        """Serve it alone as far as something of its own lies ahead."""
        until = self._cursors.ragged_up_to(slot)
        counts = self._counts.get(slot)
        if counts:
            until = max(until, *counts)
        if until > self.sent[slot]:
            self._solo_until[slot] = until
        else:
            self._solo_until.pop(slot, None)

    # --- what happens to it -------------------------------------------------------------

    def grant(self, slot: int, permits: int) -> Lane | None:
        """More permits. The lane that has something to do now, if that is new."""
        before = self.permits[slot]
        after = min(before + permits, PERMITS_MAX)
        self.permits[slot] = after
        self.granted[slot] += after - before
        if before <= 0 < after:
            self._parked.discard(slot)
            return self.place(slot)
        return None

    def messages_out(self, slot: int) -> int:
        """Messages sent to it: what was granted less what is left."""
        return self.granted[slot] - self.permits[slot]

    def acked(self, slot: int) -> Lane | None:
        """Its virtual cursor moved: its lane, if that unblocked it."""
        if slot in self._blocked and not self._is_over(slot):
            self._parked.discard(slot)
            return self.place(slot)
        return None

    @property
    def any_blocked(self) -> bool:
        """Whether anybody waits for its own acks."""
        return bool(self._blocked)

    def overtaken(self, slot: int) -> None:
        """It acknowledged more than it was sent in this connection: leave that out."""
        lane = self.lanes[slot]
        assert lane is not None
        self._unplace(slot, lane)
        self._look_ahead(slot)
        self.place(slot)

    def rewind(self, slot: int, *, count: bool) -> Lane | None:
        """Deliver everything unacknowledged again, in order; `count` it as redelivered."""
        lane = self.lanes[slot]
        assert lane is not None
        self._unplace(slot, lane)
        cursors, sent = self._cursors, self.sent[slot]
        acked = cursors.acked[slot]
        if count:
            counts = self._counts.setdefault(slot, {})
            for ordinal in range(acked + 1, sent + 1):
                if not cursors.is_acked(slot, ordinal):
                    counts[ordinal] = counts.get(ordinal, 0) + 1
            if not counts:
                del self._counts[slot]
        self.sent[slot] = min(sent, acked)
        self._replays.pop(slot, None)
        self._look_ahead(slot)
        return self.place(slot)

    def replay(self, slot: int, ordinals: Iterable[int]) -> Lane | None:
        """Deliver these again, if they were sent and are not acknowledged."""
        lane = self.lanes[slot]
        assert lane is not None
        self._unplace(slot, lane)
        cursors, sent = self._cursors, self.sent[slot]
        counts = self._counts.setdefault(slot, {})
        wanted = self._replays.setdefault(slot, {})
        for ordinal in ordinals:
            if ordinal <= sent and ordinal not in wanted and not cursors.is_acked(slot, ordinal):
                counts[ordinal] = counts.get(ordinal, 0) + 1
                wanted[ordinal] = None
        if wanted:
            self._replays[slot] = dict.fromkeys(sorted(wanted))
        else:
            del self._replays[slot]
        return self.place(slot)

    def redeliveries(self, slot: int, ordinal: int) -> int:
        """How often it asked for the entry again."""
        counts = self._counts.get(slot)
        return counts.get(ordinal, 0) if counts else 0

    # --- serving ------------------------------------------------------------------------

    def take(self, lane: Lane, key: GroupKey, count_max: int) -> list[int]:
        """Take up to so many members out of a group; `advance` puts them to the next position."""
        group = lane.groups[key]
        if len(group) <= count_max:
            del lane.groups[key]
            return list(group)
        pop = group.popitem
        return [pop()[0] for _ in range(count_max)]

    def advance(
        self, lane: Lane, slots: list[int], options: bytes, ordinal: int, messages: int, size: int
    ) -> None:
        """The taken ones were sent the entry: they go on at it, or are parked."""
        sent, permits, bytes_out = self.sent, self.permits, self.bytes_out
        dry: list[int] = []
        for slot in slots:
            sent[slot] = ordinal
            bytes_out[slot] += size
            permits[slot] = left = permits[slot] - messages
            if left <= 0:
                dry.append(slot)
        over: list[int] = []
        limit = self._unacked_max
        if limit and ordinal - (self._cursors.minimum or 0) >= limit:
            bounded = self._bounded
            over = [slot for slot in slots if bounded[slot] and self._is_over(slot)]
        if dry or over:
            self._parked.update(dry)
            self._parked.update(over)
            self._blocked.update(over)
            parked = self._parked
            slots = [slot for slot in slots if slot not in parked]
            if not slots:
                return
        key = (ordinal, options)
        group = lane.groups.get(key)
        if group is None:
            lane.groups[key] = dict.fromkeys(slots)
        else:
            group.update(dict.fromkeys(slots))

    def wanted_alone(self, slot: int, tail: int) -> int | None:
        """The next entry of a solo: a replay, or what comes next; None: nothing, for now.

        Leaves out what is acknowledged; a solo with nothing of its own ahead goes to its group.
        """
        cursors = self._cursors
        replays = self._replays.get(slot)
        if replays is not None:
            for ordinal in list(replays):
                if not cursors.is_acked(slot, ordinal):
                    return ordinal
                del replays[ordinal]
            del self._replays[slot]
        lane = self.lanes[slot]
        assert lane is not None
        until = self._solo_until.get(slot)
        if until is not None:
            lane.solos.pop(slot, None)
            at = max(self.sent[slot], min(cursors.acked[slot], tail))
            while at < min(until, tail) and cursors.is_acked(slot, at + 1):
                at += 1
            self.sent[slot] = at
            if at < until:
                lane.solos[slot] = None
                return at + 1 if at < tail else None
            del self._solo_until[slot]
        lane.solos.pop(slot, None)
        self.place(slot)
        return None

    def sent_alone(self, slot: int, ordinal: int, messages: int, size: int) -> bool:
        """A solo was sent the entry. Whether it may be sent more."""
        replays = self._replays.get(slot)
        if replays is not None and ordinal in replays:
            del replays[ordinal]
            if not replays:
                del self._replays[slot]
        if ordinal > self.sent[slot]:
            self.sent[slot] = ordinal
        counts = self._counts.get(slot)
        if counts is not None and counts.get(ordinal):
            self.redelivered[slot] = self.redelivered.get(slot, 0) + messages
        self.permits[slot] -= messages
        self.bytes_out[slot] += size
        lane = self.lanes[slot]
        assert lane is not None
        del lane.solos[slot]
        self.place(slot)
        return slot in lane.solos

    def forget_count(self, slot: int, ordinal: int) -> None:
        """The entry is acknowledged: its redelivery count is not needed."""
        counts = self._counts.get(slot)
        if counts is not None and counts.pop(ordinal, None) is not None and not counts:
            del self._counts[slot]

    def forget_counts(self, slot: int) -> None:
        """Everything up to its virtual cursor is acknowledged."""
        counts = self._counts.get(slot)
        if counts is not None:
            at = self._cursors.acked[slot]
            left = {ordinal: count for ordinal, count in counts.items() if ordinal > at}
            if left:
                self._counts[slot] = left
            else:
                del self._counts[slot]

    # --- for statistics and checks ------------------------------------------------------

    def is_solo(self, slot: int) -> bool:
        """Whether it is served alone."""
        return slot in self._solo_until or slot in self._replays

    def is_blocked(self, slot: int) -> bool:
        """Whether it waits for its own acks."""
        return slot in self._blocked

    def is_parked(self, slot: int) -> bool:
        """Whether it cannot be sent anything: no permits, or blocked."""
        return slot in self._parked

    @property
    def parked_slots(self) -> set[int]:
        """Who cannot be sent anything; for reading only."""
        return self._parked

    @property
    def parked(self) -> int:
        """How many connected consumers cannot be sent anything."""
        return len(self._parked)

    @property
    def blocked(self) -> int:
        """How many of them wait for their own acks."""
        return len(self._blocked)

    @property
    def replaying(self) -> int:
        """Entries waiting to be delivered again."""
        return sum(map(len, self._replays.values()))

    @property
    def counted(self) -> bool:
        """Whether any consumer has redelivery counts."""
        return bool(self._counts)
