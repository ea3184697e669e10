"""Planning: which entries of which ledgers a read covers, cut into tasks. Pure.

A range `(start, end]` of a topic is cut at ledger boundaries, because a ledger that is closed never
changes and can be read from its bookies. Batch reads cut further by size, so that a topic without
partitions is read by as many tasks as it has data for. Streams must plan the same tasks when a
micro-batch is repeated after a crash (sinks that drop duplicates count rows by task), so for them
only numbers decide that cannot change: ids and entry counts of the range, and how many entries a
task may have. That last number comes from the sizes of when the micro-batch was first planned, and
is kept in the checkpoint with its end.

Admission control walks the same ledgers to find the end of a micro-batch of bounded size. Its unit
is the entry: a micro-batch holds at least one, whatever the bound says.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import groupby
from math import ceil
from operator import attrgetter
from typing import TYPE_CHECKING, Final, final

from pipeline.offsets import NOTHING_YET, Offset, Offsets

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

STREAM_ENTRIES_PER_TASK_MAX: Final = 50_000


@final
@dataclass(frozen=True, slots=True)
class LedgerRow:
    """One ledger of a topic; a ledger that is still written to has the numbers of that moment."""

    ledger_id: int
    entries: int
    size_bytes: int
    sealed: bool


@final
@dataclass(frozen=True, slots=True)
class Slice:
    """Consecutive entries of one ledger: `first_entry` to `last_entry`, both inside.

    Of the first entry the messages up to batch index `batch_after` are left out, of the last one
    those after `batch_until`; -1 leaves nothing out.
    """

    topic: str
    ledger_id: int
    first_entry: int
    last_entry: int
    size_bytes: int
    sealed: bool
    batch_after: int = -1
    batch_until: int = -1

    @property
    def entries(self) -> int:
        """How many entries it covers."""
        return self.last_entry - self.first_entry + 1


@final
@dataclass(frozen=True, slots=True)
class Cut:
    """The slices of one topic's range; `start_gone`: the ledger of its start is no longer held,
    so entries after the start may have been deleted with it."""

    slices: tuple[Slice, ...]
    start_gone: bool


Task = tuple[Slice, ...]
"""The slices that one Spark task reads, in order."""


def cut(topic: str, start: Offset, end: Offset, ledgers: Sequence[LedgerRow]) -> Cut:
    """Cut `(start, end]` at the boundaries of ledgers."""
    if start.sort_key >= end.sort_key:
        return Cut((), start_gone=False)
    slices = []
    for row in sorted(ledgers, key=lambda row: row.ledger_id):
        if row.ledger_id < start.ledger_id or row.ledger_id > end.ledger_id:
            continue
        first, last, after, until = 0, row.entries - 1, -1, -1
        if row.ledger_id == start.ledger_id:
            whole = start.batch_index < 0
            first = start.entry_id + 1 if whole else start.entry_id
            after = start.batch_index
        if row.ledger_id == end.ledger_id and end.entry_id <= last:
            last, until = end.entry_id, end.batch_index
        if first > last:
            continue
        size_bytes = row.size_bytes * (last - first + 1) // max(row.entries, 1)
        slices.append(
            Slice(topic, row.ledger_id, first, last, size_bytes, row.sealed, after, until)
        )
    held = {row.ledger_id for row in ledgers}
    gone = start != NOTHING_YET and start.ledger_id not in held
    return Cut(tuple(slices), gone)


def back_from(
    ledger_id: int, entry_id: int, distance: int, ledgers: Sequence[LedgerRow]
) -> tuple[int, int]:
    """Ledger and entry `distance` entries before one, or the first that there is."""
    for row in sorted(ledgers, key=lambda row: row.ledger_id, reverse=True):
        if entry_id >= distance:
            break
        if row.ledger_id < ledger_id and row.entries:
            distance -= entry_id + 1
            ledger_id, entry_id = row.ledger_id, row.entries - 1
    return ledger_id, max(entry_id - distance, 0)


def batch_tasks(
    slices: Sequence[Slice], *, bytes_per_partition_max: int, partitions_min: int
) -> list[Task]:
    """Cut by size, into at least `partitions_min` tasks where there are entries enough; small
    neighbours of one topic share a task."""
    total = sum(part.size_bytes for part in slices)
    wanted = max(min(bytes_per_partition_max, ceil(total / max(partitions_min, 1))), 1)
    pieces: list[Slice] = []
    for part in slices:
        count = min(max(ceil(part.size_bytes / wanted), 1), part.entries)
        pieces += _split(part, count)
    return _grouped(pieces, [piece.size_bytes for piece in pieces], wanted)


def entries_per_task(slices: Sequence[Slice], bytes_per_partition_max: int) -> int:
    """How many entries of one topic a stream's task may have, by the ledger with the largest ones.

    From 1 to `STREAM_ENTRIES_PER_TASK_MAX`.
    """
    largest = max((ceil(part.size_bytes / part.entries) for part in slices), default=1)
    return min(max(bytes_per_partition_max // max(largest, 1), 1), STREAM_ENTRIES_PER_TASK_MAX)


def stream_tasks(slices: Sequence[Slice], entries_max: Mapping[str, int]) -> list[Task]:
    """The same tasks every time for the same slices, whatever the sizes are.

    `entries_max`: the most entries of a task by topic, `STREAM_ENTRIES_PER_TASK_MAX` when absent.
    """
    tasks: list[Task] = []
    for topic, parts in groupby(slices, key=attrgetter("topic")):
        most = entries_max.get(topic, STREAM_ENTRIES_PER_TASK_MAX)
        pieces: list[Slice] = []
        for part in parts:
            pieces += _split(part, ceil(part.entries / most))
        tasks += _grouped(pieces, [piece.entries for piece in pieces], most)
    return tasks


def _split(part: Slice, count: int) -> list[Slice]:
    pieces = []
    for index in range(count):
        first = part.first_entry + part.entries * index // count
        last = part.first_entry + part.entries * (index + 1) // count - 1
        piece = replace(
            part,
            first_entry=first,
            last_entry=last,
            size_bytes=part.size_bytes * (last - first + 1) // part.entries,
            batch_after=part.batch_after if index == 0 else -1,
            batch_until=part.batch_until if index == count - 1 else -1,
        )
        pieces.append(piece)
    return pieces


def _grouped(pieces: Sequence[Slice], weights: Sequence[int], weight_max: int) -> list[Task]:
    tasks: list[list[Slice]] = []
    weight = 0
    for piece, own in zip(pieces, weights, strict=True):
        if tasks and tasks[-1][-1].topic == piece.topic and weight + own <= weight_max:
            tasks[-1].append(piece)
            weight += own
        else:
            tasks.append([piece])
            weight = own
    return [tuple(task) for task in tasks]


@final
@dataclass(frozen=True, slots=True)
class Budget:
    """How much a micro-batch may hold. `rows_per_entry` is an estimate by topic, 1 when absent."""

    size_bytes_max: int | None = None
    rows_max: int | None = None


def admitted(
    start: Offsets,
    latest: Offsets,
    ledgers: Mapping[str, Sequence[LedgerRow]],
    budget: Budget,
    rows_per_entry: Mapping[str, float],
) -> Offsets:
    """The end of the next micro-batch: `latest`, or less where the budget says so.

    Every topic gets the same fraction of what it has, rounded up to entries, so none starves.
    """
    slices = {
        topic: cut(topic, start.get(topic, NOTHING_YET), end, ledgers[topic]).slices
        for topic, end in latest.items()
    }
    size_bytes = sum(part.size_bytes for parts in slices.values() for part in parts)
    rows = Fraction()
    for topic, parts in slices.items():
        rows += sum(part.entries for part in parts) * Fraction(rows_per_entry.get(topic, 1.0))
    fraction = Fraction(1)  # exact: rounding up what is a whole number must not add an entry
    if budget.size_bytes_max is not None and size_bytes > budget.size_bytes_max:
        fraction = min(fraction, Fraction(budget.size_bytes_max, size_bytes))
    if budget.rows_max is not None and rows > budget.rows_max:
        fraction = min(fraction, budget.rows_max / rows)
    if fraction == 1:
        return dict(latest)
    return {topic: _end_of(slices[topic], fraction, end) for topic, end in latest.items()}


def _end_of(slices: Sequence[Slice], fraction: Fraction, end: Offset) -> Offset:
    left = ceil(sum(part.entries for part in slices) * fraction)
    for part in slices:
        if left <= part.entries:
            entry_id = part.first_entry + left - 1
            whole = entry_id < part.last_entry
            return Offset(part.ledger_id, entry_id, -1 if whole else part.batch_until)
        left -= part.entries
    return end
