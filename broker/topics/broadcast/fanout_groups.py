"""Selects the next entries for consumers: those in step, laggards, and those served one by one.

Pure. Each connected consumer has a slot (that of its virtual cursor). Lists by slot hold its
permits and the ordinal sent to it last. Consumers on one connection (a `Lane`) at the same position
form a group and are served together: one array of slots, one entry, one call. A consumer without
permits, or with too much unacknowledged, belongs to no group. When it may continue, it joins a
group at its own position, which catches up in slices of its own. Groups that meet are merged.

A consumer is served alone ("solo") while it has individual state ahead of it: entries acknowledged
out of order, part of a batch, redelivery counts. Its replays (single entries it requested again)
are sent separately from the groups.

The state of a slot alone determines its place:

| state | the slot is |
|---|---|
| `ABSENT` | nowhere: its consumer is not connected |
| `IN_STEP` | in a group of its lane; the key is its position and the epoch of its consumer |
| `ALONE` | among the solos of its lane |
| `DRY` | parked without permits |
| `BLOCKED` | parked with too much unacknowledged, permits or not |
| `LOOSE` | taken out of its place, for as long as one call of this class takes |

`place` decides, from the arrays alone, where a loose slot belongs. `_NEXT` lists the possible
transitions, and `_enter` makes them. Invariants: a group is never empty; granted - sent =
`permits[slot]`.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final, final

from native.broadcast import update_slots
from protocol.left_out import EPOCH_UNSET

if TYPE_CHECKING:
    from collections.abc import Iterable

    from broker.topics.broadcast.lane import GroupKey, Lane, Slots
    from broker.topics.broadcast.virtual_cursors import VirtualCursors

PERMITS_MAX: Final = 2**31 - 1
_SLOTS_ADDED: Final = 64

ABSENT: Final = 0
LOOSE: Final = 1
IN_STEP: Final = 2
ALONE: Final = 3
DRY: Final = 4
BLOCKED: Final = 5
_NEXT: Final = bytes(
    (
        1 << LOOSE,  # ABSENT: attach
        1 << IN_STEP | 1 << ALONE | 1 << DRY | 1 << BLOCKED | 1 << ABSENT,  # LOOSE: place, detach
        1 << LOOSE | 1 << DRY | 1 << BLOCKED,  # IN_STEP: advance parks what it puts in no group
        1 << LOOSE,  # ALONE
        1 << LOOSE,  # DRY: grant, and what moves it
        1 << LOOSE,  # BLOCKED: acked, and what moves it
    )
)
"""By state: those that may follow it, as bits. Compiled, a tuple of tuples would be made anew for
each look at it."""


@final
class FanoutGroups:
    """Delivery state of all connected consumers. `unacked_max` is in entries; 0: no bound."""

    __slots__ = (
        "_bounded",
        "_counts",
        "_cursors",
        "_places",
        "_replays",
        "_solo_until",
        "_states",
        "_unacked_max",
        "blocked",
        "bytes_out",
        "consumer_ids",
        "epochs",
        "flow_ms",
        "granted",
        "lanes",
        "permits",
        "redelivered",
        "sent",
    )

    def __init__(self, cursors: VirtualCursors, unacked_max: int) -> None:
        self._cursors = cursors
        self._unacked_max = unacked_max
        self.sent = array("q")
        self.permits = array("q")
        self.granted = array("q")
        """By slot: messages that FLOW has allowed in all; see `messages_out`."""
        self.bytes_out = array("q")
        self._places = array("q")
        """By slot: its index in its group."""
        self.flow_ms = array("q")
        """By slot: when permits came last, wall time."""
        self.lanes: list[Lane | None] = []
        self.consumer_ids = array("Q")
        """By slot."""
        self.epochs: list[int] = []
        """Of the consumers; EPOCH_UNSET: its client has given none."""
        """By slot: the part of its heads after the message id."""
        self.redelivered: dict[int, int] = {}
        """Redelivered messages, by slot."""
        self._bounded = bytearray()
        """By slot: 1 when the bound on unacknowledged entries applies (Shared)."""
        self._states = bytearray()
        """By slot."""
        self.blocked = 0
        """Number of `BLOCKED` slots: they wait for their own acks."""
        self._solo_until: dict[int, int] = {}
        """By slot: individual state lies ahead up to this ordinal."""
        self._counts: dict[int, dict[int, int]] = {}
        """By slot and ordinal: how often redelivery of the entry was requested."""
        self._replays: dict[int, dict[int, None]] = {}
        """By slot: ordinals to be redelivered separately from the groups."""

    def clear(self) -> None:
        """Remove all slots: no consumer is attached any more."""
        for column in (self.sent, self.permits, self.granted, self.bytes_out, self._places):
            del column[:]
        del self.flow_ms[:]
        del self.consumer_ids[:]
        del self._bounded[:]
        del self._states[:]
        self.blocked = 0
        self.lanes.clear()
        self.epochs.clear()

    # --- coming and going ---------------------------------------------------------------

    def attach(self, slot: int, lane: Lane, consumer_id: int, epoch: int, *, bounded: bool) -> None:
        """Its consumer is connected and gets the entries after its virtual cursor."""
        while len(self.lanes) <= slot:
            self._add_slots(_SLOTS_ADDED)
        self._enter(slot, LOOSE)
        self.sent[slot] = self._cursors.acked[slot]
        self.permits[slot] = self.granted[slot] = self.bytes_out[slot] = 0
        self.flow_ms[slot] = 0
        self.lanes[slot] = lane
        self.consumer_ids[slot] = consumer_id
        self.epochs[slot] = epoch
        self._bounded[slot] = bounded
        lane.members += 1
        if self._cursors.ragged_count:
            self._look_ahead(slot)
        self.place(slot)

    def _add_slots(self, count: int) -> None:
        """More than are needed, as one by one costs a dozen calls for each consumer."""
        for column in (self.sent, self.permits, self.granted, self.bytes_out, self._places):
            column.extend([0] * count)
        self.flow_ms.extend([0] * count)
        self.consumer_ids.extend([0] * count)
        self.lanes.extend([None] * count)
        self.epochs.extend([EPOCH_UNSET] * count)
        self._bounded.extend(bytes(count))
        self._states.extend(bytes([ABSENT]) * count)

    def detach(self, slot: int) -> Lane | None:
        """Its consumer has left. Returns the lane it was on."""
        lane = self.lanes[slot] if slot < len(self.lanes) else None
        if lane is None:
            return None
        self._take_out(slot, lane)
        self._enter(slot, ABSENT)
        self.lanes[slot] = None
        lane.members -= 1
        self._solo_until.pop(slot, None)
        self._counts.pop(slot, None)
        self._replays.pop(slot, None)
        self.redelivered.pop(slot, None)
        return lane

    def set_epoch(self, slot: int, epoch: int) -> None:
        """Its consumer has another epoch from now on."""
        self._take_out(slot, self._lane(slot))
        self.epochs[slot] = epoch
        self.place(slot)

    # --- where a consumer belongs -------------------------------------------------------

    def _enter(self, slot: int, state: int) -> None:
        """The only place where a state changes."""
        before = self._states[slot]
        assert _NEXT[before] >> state & 1, f"slot {slot} cannot go from state {before} to {state}"
        self._states[slot] = state
        if state == BLOCKED:
            self.blocked += 1
        elif before == BLOCKED:
            self.blocked -= 1

    def _lane(self, slot: int) -> Lane:
        lane = self.lanes[slot]
        assert lane is not None
        return lane

    def place(self, slot: int) -> Lane | None:
        """Put a loose slot where it belongs now. Returns its lane, unless it is parked."""
        if self._bounded[slot] and self._is_over(slot):
            self._enter(slot, BLOCKED)
            return None
        if self.permits[slot] <= 0:
            self._enter(slot, DRY)
            return None
        lane = self._lane(slot)
        if slot in self._solo_until or slot in self._replays:
            self._enter(slot, ALONE)
            lane.solos[slot] = None
            return lane
        self._enter(slot, IN_STEP)
        key = (self.sent[slot], self.epochs[slot])
        group = lane.groups.get(key)
        if group is None:
            group = lane.groups[key] = array("i")
        self._places[slot] = len(group)
        group.append(slot)
        return lane

    def _take_out(self, slot: int, lane: Lane) -> None:
        state = self._states[slot]
        if state == ALONE:
            del lane.solos[slot]
        elif state == IN_STEP:
            key = (self.sent[slot], self.epochs[slot])
            group = lane.groups[key]
            last = group.pop()
            if last != slot:  # which takes its place
                place = self._places[slot]
                group[place] = last
                self._places[last] = place
            if not group:
                del lane.groups[key]
        self._enter(slot, LOOSE)

    def _is_over(self, slot: int) -> bool:
        """Whether too much is unacknowledged. A blocked slot stays blocked until half of it."""
        limit = self._unacked_max
        if not limit:
            return False
        unacked = self.unacked(slot)
        return unacked > limit // 2 if self._states[slot] == BLOCKED else unacked >= limit

    def unacked(self, slot: int) -> int:
        """Entries sent and not acknowledged."""
        count = self.sent[slot] - self._cursors.acked[slot]
        if count > 0 and self._cursors.ragged_count:
            ragged = self._cursors.ragged_of(slot)
            if ragged is not None:
                count -= ragged.holes.range_cardinality(0, self.sent[slot] + 1)
        return max(0, count)

    def _look_ahead(self, slot: int) -> None:
        """Serve it alone while individual state lies ahead."""
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
        """More permits. Returns the lane if it newly has something to send."""
        before = self.permits[slot]
        after = min(before + permits, PERMITS_MAX)
        self.permits[slot] = after
        self.granted[slot] += after - before
        if after > 0 and self._states[slot] == DRY:
            self._enter(slot, LOOSE)
            return self.place(slot)
        return None

    def messages_out(self, slot: int) -> int:
        """Messages sent to it: permits granted minus permits left."""
        return self.granted[slot] - self.permits[slot]

    def bound_unacked(self, unacked_max: int) -> bool:
        """Another bound from now on. Returns whether it is another; then `acked` frees those that
        the former one blocked."""
        before, self._unacked_max = self._unacked_max, unacked_max
        return before != unacked_max

    def acked(self, slot: int) -> Lane | None:
        """Its virtual cursor moved. Returns its lane if that unblocked it."""
        if self._states[slot] == BLOCKED and not self._is_over(slot):
            self._enter(slot, LOOSE)
            return self.place(slot)
        return None

    def overtaken(self, slot: int) -> None:
        """It acknowledged more than it was sent in this connection: skip those entries."""
        self._take_out(slot, self._lane(slot))
        self._look_ahead(slot)
        self.place(slot)

    def rewind(self, slot: int, *, count: bool) -> Lane | None:
        """Redeliver everything unacknowledged, in order. `count`: count it as redelivered."""
        self._take_out(slot, self._lane(slot))
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
        """Redeliver these entries if they were sent and are not acknowledged."""
        self._take_out(slot, self._lane(slot))
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
        """How often it requested the entry again."""
        counts = self._counts.get(slot)
        return counts.get(ordinal, 0) if counts else 0

    # --- serving ------------------------------------------------------------------------

    def take(self, lane: Lane, key: GroupKey, count_max: int) -> Slots:
        """Take up to `count_max` members of a group. `advance` moves them to the next position."""
        group = lane.groups[key]
        count = len(group)
        if count <= count_max:
            del lane.groups[key]
            return group
        taken = group[count - count_max :]
        del group[count - count_max :]
        return taken

    def advance(
        self, lane: Lane, slots: Slots, epoch: int, ordinal: int, messages: int, size: int
    ) -> None:
        """The taken members, which are given up, were sent the entry: they continue from it, or are
        parked."""
        update_slots(slots, self.sent, 0, ordinal, 0)
        update_slots(slots, self.bytes_out, 1, size, 0)
        least_permits, _ = update_slots(slots, self.permits, 1, -messages, 0)
        limit = self._unacked_max
        is_far = bool(limit) and ordinal - (self._cursors.minimum or 0) >= limit
        if least_permits <= 0 or is_far:
            slots = self._parked(slots, is_far=is_far)
            if not slots:
                return
        key = (ordinal, epoch)
        group = lane.groups.get(key)
        if group is None:
            lane.groups[key] = slots
            update_slots(slots, self._places, 0, 0, 1)
        else:
            update_slots(slots, self._places, 0, len(group), 1)
            group.extend(slots)

    def _parked(self, slots: Slots, *, is_far: bool) -> Slots:
        """Park those that cannot be sent more. Returns the others. `is_far`: some may have too much
        unacknowledged."""
        permits, bounded = self.permits, self._bounded
        others: Slots = array("i")
        for slot in slots:
            if is_far and bounded[slot] and self._is_over(slot):
                self._enter(slot, BLOCKED)
            elif permits[slot] <= 0:
                self._enter(slot, DRY)
            else:
                others.append(slot)
        return others

    def wanted_alone(self, slot: int, tail: int) -> int | None:
        """The next entry of a solo: a replay or the next in order; None: nothing for now.

        Skips acknowledged entries. A solo without individual state ahead joins its group.
        """
        cursors = self._cursors
        replays = self._replays.get(slot)
        if replays is not None:
            for ordinal in list(replays):
                if not cursors.is_acked(slot, ordinal):
                    return ordinal
                del replays[ordinal]
            del self._replays[slot]
        until = self._solo_until.get(slot)
        lane = self._lane(slot)
        if until is not None:
            at = max(self.sent[slot], min(cursors.acked[slot], tail))
            while at < min(until, tail) and cursors.is_acked(slot, at + 1):
                at += 1
            self.sent[slot] = at
            if at < until:
                del lane.solos[slot]  # to the end of the queue
                lane.solos[slot] = None
                return at + 1 if at < tail else None
            del self._solo_until[slot]
        self._take_out(slot, lane)
        self.place(slot)
        return None

    def sent_alone(self, slot: int, ordinal: int, messages: int, size: int) -> bool:
        """A solo was sent the entry. Returns whether it may be sent more."""
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
        self._take_out(slot, self._lane(slot))
        self.place(slot)
        return self._states[slot] == ALONE

    def forget_count(self, slot: int, ordinal: int) -> None:
        """The entry is acknowledged, so its redelivery count is not needed."""
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

    # --- for statistics -----------------------------------------------------------------

    def is_blocked(self, slot: int) -> bool:
        """Whether it waits for its own acks."""
        return self._states[slot] == BLOCKED

    def parked_slots(self) -> list[int]:
        """Slots that cannot be sent anything. The cost is proportional to their number."""
        found: list[int] = []
        states = self._states
        for state in (DRY, BLOCKED):
            at = states.find(state)
            while at >= 0:
                found.append(at)
                at = states.find(state, at + 1)
        return found

    @property
    def dry(self) -> int:
        """Number of slots without permits that have entries to get."""
        return self._states.count(DRY)

    @property
    def replaying(self) -> int:
        """Entries waiting for redelivery."""
        return sum(map(len, self._replays.values()))

    @property
    def counted(self) -> bool:
        """Whether any consumer has redelivery counts."""
        return bool(self._counts)
