"""The records that wait for a journal, and the choice of the next group. Pure; used by one thread.

As long as everything fits into one group, it is written as it came. If more waits, ledgers take
turns by bytes (`runtime.fair_queue`). While several ledgers are written, groups are smaller,
because each record waits for the whole group before its own. Ledgers that bring little then get a
group of their own before those that bring much, every second time at most. The records of a ledger
keep their order. A record of no ledger is a barrier: it is answered after everything that came
before it.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Final, final

from runtime.fair_queue import FairQueue

if TYPE_CHECKING:
    from bookie.api import AddSink, EntryBody

RUN_BYTES_MAX: Final = 1024 * 1024
"""A run of as many bytes is not continued."""
SHARED_GROUP_BYTES_MAX: Final = 2 * 1024 * 1024
"""A few milliseconds of a disk's work. Smaller groups cost busy ledgers CPU."""
LITTLE_BYTES: Final = 32 * 1024
"""A larger run is much. To write so little takes a disk hardly longer than to write nothing."""
SHARED_GROUPS: Final = 64
"""How many groups are small after the last one with another ledger."""
LEDGER_QUANTUM_BYTES: Final = 64 * 1024
"""The bytes that a ledger may bring before the next one that waits."""


@final
class AddRun:
    """Bodies of the entries `first_entry_id`, `first_entry_id + 1`, ... of a ledger, or one other
    record of it. Changed only while it is the last of `Journal.pending`."""

    __slots__ = ("bodies", "first_entry_id", "ledger_id", "sink", "size_bytes")

    def __init__(
        self,
        sink: AddSink,
        ledger_id: int,
        first_entry_id: int,
        bodies: list[EntryBody],
        size_bytes: int,
    ) -> None:
        self.sink = sink
        self.ledger_id = ledger_id
        self.first_entry_id = first_entry_id
        self.bodies = bodies
        self.size_bytes = size_bytes
        """The size of all bodies together."""


Batch = list[AddRun]


def is_urgent(batch: Batch) -> bool:
    """Whether a caller waits for it alone: barriers, fences and other records of the bookie's own,
    and refusals."""
    return not batch or any(run.first_entry_id < 0 or not run.size_bytes for run in batch)


@final
class _Stretch:
    """The runs between two barriers."""

    __slots__ = ("barrier", "handed_at", "waiting")

    def __init__(self) -> None:
        self.waiting = 0
        """How many of them are not in a group yet."""
        self.barrier: AddRun | None = None
        """The one that ends it; None: it has not come."""
        self.handed_at = 0.0


@final
class JournalTurns:
    """See the module docstring."""

    __slots__ = (
        "_batches",
        "_batches_bytes",
        "_batches_much_bytes",
        "_fair",
        "_ledger_id",
        "_shared_groups",
        "_stretches",
        "_was_cut",
    )

    def __init__(self) -> None:
        self._batches: list[tuple[Batch, float]] = []
        """In the order in which they came, after what is in `_fair`."""
        self._batches_bytes = 0
        self._batches_much_bytes = 0
        """The part of it in runs that are much."""
        self._was_cut = False
        """The last group was little, with much left for this one."""
        self._ledger_id = -1
        """The ledger of the last run."""
        self._shared_groups = 0
        """How many of the next groups are small."""
        self._fair: FairQueue[int, tuple[AddRun, _Stretch, float]] = FairQueue(LEDGER_QUANTUM_BYTES)
        self._stretches: deque[_Stretch] = deque((_Stretch(),))

    def __bool__(self) -> bool:
        return bool(self._batches) or bool(self._fair)

    def add_batch(self, batch: Batch, handed_at: float) -> None:
        """A batch has come."""
        self._batches.append((batch, handed_at))
        for run in batch:
            self._batches_bytes += run.size_bytes
            if run.size_bytes > LITTLE_BYTES:
                self._batches_much_bytes += run.size_bytes
            if run.ledger_id != self._ledger_id and run.ledger_id >= 0:
                self._ledger_id = run.ledger_id
                self._shared_groups = SHARED_GROUPS

    def may_grow(self, size_bytes_max: int) -> bool:
        """Whether the next group has everything that waits, and less than belongs into one."""
        if self._shared_groups:
            size_bytes_max = min(size_bytes_max, SHARED_GROUP_BYTES_MAX)
        return not self._fair and self._batches_bytes < size_bytes_max

    @property
    def handed_at(self) -> float:
        """When the first batch came. There is one that `group` has not seen."""
        return self._batches[0][1]

    def group(self, size_bytes_max: int) -> tuple[list[Batch], float]:
        """The next group, which may exceed the size by one batch or one run, and the time at which
        the first of it was handed over."""
        is_shared = self._shared_groups > 0
        if is_shared:
            self._shared_groups -= 1
            size_bytes_max = min(size_bytes_max, SHARED_GROUP_BYTES_MAX)
        is_mixed = is_shared and 0 < self._batches_much_bytes < self._batches_bytes
        self._batches_much_bytes = 0
        if not self._fair and self._batches_bytes <= size_bytes_max and not is_mixed:
            handed = self._batches
            self._batches, self._batches_bytes = [], 0
            self._was_cut = False
            return [batch for batch, _ in handed], min(
                (handed_at for _, handed_at in handed), default=math.inf
            )
        for batch, handed_at in self._batches:
            for run in batch:
                self._wait(run, handed_at)
        self._batches, self._batches_bytes = [], 0
        return self._fair_group(size_bytes_max, is_shared=is_shared)

    def _wait(self, run: AddRun, handed_at: float) -> None:
        stretch = self._stretches[-1]
        if run.ledger_id < 0:
            stretch.barrier, stretch.handed_at = run, handed_at
            self._stretches.append(_Stretch())
        else:
            stretch.waiting += 1
            self._fair.append(run.ledger_id, (run, stretch, handed_at))

    def _fair_group(self, size_bytes_max: int, *, is_shared: bool) -> tuple[list[Batch], float]:
        fair = self._fair
        group: Batch = []
        first_handed_at = math.inf
        size = 0
        may_cut = is_shared and not self._was_cut
        self._was_cut = False
        while fair and (size < size_bytes_max or not group):
            if may_cut and group and size <= LITTLE_BYTES < fair.first()[0].size_bytes:
                self._was_cut = True
                break
            run, stretch, handed_at = fair.take()
            fair.charge(run.size_bytes)
            stretch.waiting -= 1
            size += run.size_bytes
            first_handed_at = min(first_handed_at, handed_at)
            group.append(run)
        stretches = self._stretches
        while not stretches[0].waiting:
            barrier = stretches[0].barrier
            if barrier is None:
                break
            group.append(barrier)
            first_handed_at = min(first_handed_at, stretches.popleft().handed_at)
        return [group], first_handed_at
