"""Virtual cursors: the acks of each consumer of a broadcast subscription.

Pure. Entries of a topic are numbered densely; such a number is an ordinal (see `ordinals`). A
virtual cursor is a slot: an index into arrays, given to a consumer name when it joins and kept
until the name is dropped. Its state is one number, the ordinal up to which everything is
acknowledged. Only while a consumer has acknowledged out of order, or part of a batch, does it also
have a `Ragged`: a compressed bit set of the entries acknowledged after the position, and the
messages left of partly acknowledged batches.

The lowest position of all decides which storage may be freed. It is not found by scanning:
consumers are counted per position, and the distinct positions are in a heap. When all consumers are
in step that is two counters, whatever the number of consumers.

Invariants: `counts` holds, for each position, the number of slots in use there plus the holds
(`hold`), and nothing else; `minimum` is its lowest key; a Ragged holds nothing at or below the
position of its slot and never the entry right after it; a free slot has position `FREE`.

Acks at or below the position, or a second time, are no-ops; so are backward cumulative acks. The
caller, which knows the tail, must refuse entries that do not exist yet.
"""

from __future__ import annotations

from array import array
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final, final

from pyroaring import BitMap64

from native.broadcast import update_slots

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

FREE: Final = -1
"""Position of a free slot."""
NEVER: Final = float("inf")
CHUNK_SHIFT: Final = 9
CHUNK_SLOTS: Final = 1 << CHUNK_SHIFT
"""Slots stored together: changes are tracked per chunk of this size."""
_HEAP_SLACK: Final = 64


@final
class Ragged:
    """The entries a consumer has acknowledged out of order."""

    __slots__ = ("batches", "holes")

    def __init__(self) -> None:
        self.holes: BitMap64 = BitMap64()
        """Entries acknowledged after the position."""
        self.batches: dict[int, int] = {}
        """The messages left of partly acknowledged entries, as bits."""

    def __bool__(self) -> bool:
        return bool(self.holes) or bool(self.batches)


@final
class VirtualCursors:
    """See the module docstring. The snapshot reads and clears `changed_names` and
    `changed_positions`."""

    __slots__ = (
        "_counts",
        "_deadlines",
        "_expiries",
        "_free",
        "_heap",
        "_ragged",
        "_slots",
        "acked",
        "changed_names",
        "changed_positions",
        "durable",
        "names",
    )

    def __init__(self) -> None:
        self.acked = array("q")
        """By slot: everything up to this ordinal is acknowledged."""
        self.names: list[str | None] = []
        self.durable = bytearray()
        """By slot: 0 when the cursor ends with its connection."""
        self.changed_names: set[int] = set()
        self.changed_positions: set[int] = set()
        """Chunks of slots that differ from their last stored state."""
        self._slots: dict[str, int] = {}
        self._free: list[int] = []
        self._ragged: dict[int, Ragged] = {}
        self._counts: dict[int, int] = {}
        self._heap: list[int] = []
        self._deadlines: dict[int, float] = {}
        self._expiries: list[tuple[float, int]] = []

    def clear(self) -> None:
        """Release all state, because it is not needed any more."""
        del self.acked[:]
        del self.durable[:]
        for each in (
            self.names,
            self.changed_names,
            self.changed_positions,
            self._slots,
            self._free,
            self._ragged,
            self._counts,
            self._heap,
            self._deadlines,
            self._expiries,
        ):
            each.clear()

    # --- names --------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._slots)

    def __bool__(self) -> bool:
        return len(self) > 0

    def __iter__(self) -> Iterator[int]:
        """Slots in use."""
        return iter(self._slots.values())

    def slot_of(self, name: str) -> int | None:
        """The slot of a known consumer name."""
        return self._slots.get(name)

    def join(self, name: str, acked: int, *, durable: bool = True) -> int:
        """Add a name that gets nothing up to `acked`. Returns its slot."""
        assert name not in self._slots
        assert acked >= 0
        if self._free:
            slot = heappop(self._free)
            self.names[slot] = name
            self.acked[slot] = acked
            self.durable[slot] = durable
        else:
            slot = len(self.names)
            self.names.append(name)
            self.acked.append(acked)
            self.durable.append(durable)
        self._slots[name] = slot
        self._count(acked)
        self._name_changed(slot)
        return slot

    def restore(self, slot: int, name: str, acked: int, deadline: float) -> None:
        """Load the stored cursor of a consumer that is not connected. `restored` frees slots in
        between that were not loaded."""
        while len(self.names) <= slot:
            self.names.append(None)
            self.acked.append(FREE)
            self.durable.append(0)
        self.names[slot] = name
        self.acked[slot] = acked
        self.durable[slot] = 1
        self._slots[name] = slot
        self._count(acked)
        self.detach(slot, deadline)

    def restored(self) -> None:
        """All stored cursors are loaded."""
        self._free = [slot for slot, name in enumerate(self.names) if name is None]
        heapify(self._free)
        self.changed_names.clear()
        self.changed_positions.clear()

    def drop(self, slot: int) -> None:
        """Remove the name and its position."""
        name = self.names[slot]
        assert name is not None
        self._uncount(self.acked[slot])
        self._ragged.pop(slot, None)
        self._deadlines.pop(slot, None)
        del self._slots[name]
        self.names[slot] = None
        self.acked[slot] = FREE
        heappush(self._free, slot)
        self._name_changed(slot)

    def _name_changed(self, slot: int) -> None:
        chunk = slot >> CHUNK_SHIFT
        self.changed_names.add(chunk)
        self.changed_positions.add(chunk)

    # --- retention of absent consumers --------------------------------------------------

    def attach(self, slot: int) -> None:
        """Its consumer is connected: it does not expire."""
        if self._deadlines.pop(slot, None) is not None:
            self.changed_names.add(slot >> CHUNK_SHIFT)

    def detach(self, slot: int, deadline: float) -> None:
        """Its consumer has left: it is kept until the deadline."""
        self._deadlines[slot] = deadline
        if deadline != NEVER:
            heappush(self._expiries, (deadline, slot))
        self.changed_names.add(slot >> CHUNK_SHIFT)

    def deadline_of(self, slot: int) -> float | None:
        """Its deadline; None while its consumer is connected."""
        return self._deadlines.get(slot)

    def deadlines_between(self, first: int, last: int) -> list[tuple[int, float]]:
        """(slot, deadline) of those with a deadline among the slots."""
        deadlines = self._deadlines
        if not deadlines:
            return []
        return [(slot, deadlines[slot]) for slot in range(first, last) if slot in deadlines]

    @property
    def detached(self) -> int:
        """Number of cursors kept for consumers that have left."""
        return len(self._deadlines)

    def expire(self, now: float) -> list[int]:
        """Drop those whose deadline has passed. Returns their slots."""
        dropped = []
        expiries = self._expiries
        while expiries and expiries[0][0] <= now:
            deadline, slot = heappop(expiries)
            if self._deadlines.get(slot) == deadline:
                self.drop(slot)
                dropped.append(slot)
        return dropped

    # --- acknowledgements ---------------------------------------------------------------

    def ack(self, slot: int, ordinal: int) -> bool:
        """Acknowledge one whole entry. Returns whether anything changed."""
        at = self.acked[slot]
        if ordinal != at + 1 or slot in self._ragged:
            return self._ack_out_of_order(slot, at, ordinal)
        self.acked[slot] = ordinal
        counts = self._counts
        left = counts[at] - 1
        if left:
            counts[at] = left
        else:
            del counts[at]
        if ordinal in counts:
            counts[ordinal] += 1
        else:
            self._count(ordinal)
        self.changed_positions.add(slot >> CHUNK_SHIFT)
        return True

    def ack_next_of(self, slots: array[int], ordinal: int, sent: array[int]) -> Sequence[int]:
        """`ack` of the same entry by many slots (type "i") that were sent it (`sent` by slot says
        how far). Returns those slots that need `ack` itself."""
        if self._are_in_step(slots, ordinal - 1, sent):
            # A slot that is there twice is seen by this, and undone.
            if update_slots(slots, self.acked, 1, 1, 0) == (ordinal, ordinal):
                self._have_moved(slots, ordinal)
                return ()
            update_slots(slots, self.acked, 1, -1, 0)
        acked, ragged, before = self.acked, self._ragged, ordinal - 1
        moved = array("i")
        rest: list[int] = []
        for slot in slots:
            if acked[slot] == before and sent[slot] > before and slot not in ragged:
                acked[slot] = ordinal
                moved.append(slot)
            else:
                rest.append(slot)
        if moved:
            self._have_moved(moved, ordinal)
        return rest

    def _are_in_step(self, slots: array[int], at: int, sent: array[int]) -> bool:
        """Whether nothing sets them apart: nearly always, and known without a look at each."""
        if update_slots(slots, self.acked, 1, 0, 0) != (at, at):
            return False
        least_sent, _ = update_slots(slots, sent, 1, 0, 0)
        return least_sent > at and (not self._ragged or self._ragged.keys().isdisjoint(slots))

    def _have_moved(self, slots: array[int], ordinal: int) -> None:
        """They have acknowledged this entry, and before all up to the previous one."""
        self._uncount(ordinal - 1, len(slots))
        self._count(ordinal, len(slots))
        self.changed_positions |= {slot >> CHUNK_SHIFT for slot in slots}

    def _ack_out_of_order(self, slot: int, at: int, ordinal: int) -> bool:
        if ordinal <= at:
            return False
        ragged = self._ragged.get(slot)
        if ragged is None:
            ragged = self._ragged[slot] = Ragged()
        elif ordinal in ragged.holes:
            return False
        ragged.batches.pop(ordinal, None)
        if ordinal == at + 1:
            self._move(slot, ordinal)
            self._absorb(slot, ragged)
        else:
            ragged.holes.add(ordinal)
            self.changed_positions.add(slot >> CHUNK_SHIFT)
        return True

    def ack_cumulative(self, slot: int, ordinal: int) -> bool:
        """Acknowledge everything up to and including the entry. Returns whether anything
        changed."""
        if ordinal <= self.acked[slot]:
            return False
        self._move(slot, ordinal)
        ragged = self._ragged.get(slot)
        if ragged is not None:
            ragged.holes.remove_range(0, ordinal + 1)
            for old in [old for old in ragged.batches if old <= ordinal]:
                del ragged.batches[old]
            self._absorb(slot, ragged)
        return True

    def ack_batch(self, slot: int, ordinal: int, remaining: int) -> bool:
        """Acknowledge the messages of an entry that are not in `remaining`. Returns whether the
        whole entry is acknowledged now (also when it was before)."""
        if self.is_acked(slot, ordinal):
            return True
        ragged = self._ragged.get(slot)
        known = None if ragged is None else ragged.batches.get(ordinal)
        left = remaining if known is None else known & remaining
        if not left:
            self.ack(slot, ordinal)
            return True
        if ragged is None:
            ragged = self._ragged[slot] = Ragged()
        ragged.batches[ordinal] = left
        self.changed_positions.add(slot >> CHUNK_SHIFT)
        return False

    def seek(self, slot: int, acked: int) -> None:
        """Make everything up to the ordinal acknowledged, and nothing after it."""
        assert acked >= 0
        self._ragged.pop(slot, None)
        self._move(slot, acked)

    def hold(self, ordinal: int) -> None:
        """Keep the minimum from passing the ordinal, like a virtual cursor, until `release`."""
        self._count(ordinal)

    def release(self, ordinal: int) -> None:
        """End a `hold`."""
        self._uncount(ordinal)

    def put_back(self, slot: int, acked: int, ragged: Ragged | None) -> None:
        """Restore the former place. `ragged` is the result of `ragged_of` there."""
        self.seek(slot, acked)
        if ragged:
            self._ragged[slot] = ragged

    def _absorb(self, slot: int, ragged: Ragged) -> None:
        """Move through entries acknowledged contiguously after the position."""
        holes = ragged.holes
        at = self.acked[slot]
        end = at
        while end + 1 in holes:
            end += 1
        if end != at:
            holes.remove_range(at + 1, end + 1)
            self._move(slot, end)
        if not ragged:
            del self._ragged[slot]

    def _move(self, slot: int, ordinal: int) -> None:
        self._uncount(self.acked[slot])
        self.acked[slot] = ordinal
        self._count(ordinal)
        self.changed_positions.add(slot >> CHUNK_SHIFT)

    # --- questions ----------------------------------------------------------------------

    def is_acked(self, slot: int, ordinal: int) -> bool:
        """Whether the whole entry is acknowledged."""
        if ordinal <= self.acked[slot]:
            return True
        ragged = self._ragged.get(slot)
        return ragged is not None and ordinal in ragged.holes

    def remaining(self, slot: int, ordinal: int) -> int | None:
        """The messages left of a partly acknowledged entry; None: all or none are acked."""
        ragged = self._ragged.get(slot)
        return None if ragged is None else ragged.batches.get(ordinal)

    def ragged_of(self, slot: int) -> Ragged | None:
        """The entries acknowledged out of order. Callers only read it."""
        return self._ragged.get(slot)

    def ragged_up_to(self, slot: int) -> int:
        """After this ordinal nothing is acknowledged, not even in part."""
        ragged = self._ragged.get(slot)
        if ragged is None:
            return self.acked[slot]
        return max(ragged.holes.max() if ragged.holes else 0, *ragged.batches, self.acked[slot])

    def restore_ragged(self, slot: int, ragged: Ragged) -> None:
        """Load its stored state."""
        at = self.acked[slot]
        ragged.holes.remove_range(0, at + 1)
        ragged.batches = {
            ordinal: left
            for ordinal, left in ragged.batches.items()
            if ordinal > at and ordinal not in ragged.holes
        }
        if ragged:
            self._ragged[slot] = ragged
            self._absorb(slot, ragged)

    @property
    def ragged_count(self) -> int:
        """How many consumers have acknowledged out of order."""
        return len(self._ragged)

    @property
    def minimum(self) -> int | None:
        """The lowest position; None when there is no virtual cursor."""
        counts, heap = self._counts, self._heap
        while heap and heap[0] not in counts:
            heappop(heap)
        return heap[0] if heap else None

    @property
    def maximum(self) -> int | None:
        """The highest position; None when there is no virtual cursor."""
        return max(self._counts, default=None)

    def acked_total_of_attached(self) -> int:
        """The sum of the positions, without cursors kept for consumers that have left."""
        acked = self.acked
        free = len(acked) - len(self._slots)
        return sum(acked) - free * FREE - sum([acked[slot] for slot in self._deadlines])

    def behind(self, ordinal: int) -> int:
        """How many virtual cursors are below the ordinal."""
        return sum(count for at, count in self._counts.items() if at < ordinal)

    # --- counting per position ----------------------------------------------------------

    def _count(self, ordinal: int, number: int = 1) -> None:
        counts = self._counts
        if ordinal in counts:
            counts[ordinal] += number
            return
        counts[ordinal] = number
        heap = self._heap
        heappush(heap, ordinal)
        if len(heap) > 2 * len(counts) + _HEAP_SLACK:
            self._heap = sorted(counts)

    def _uncount(self, ordinal: int, number: int = 1) -> None:
        left = self._counts[ordinal] - number
        if left:
            self._counts[ordinal] = left
        else:
            del self._counts[ordinal]
