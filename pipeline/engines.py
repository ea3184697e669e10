"""Chooses how a slice is read, and applies its bounds inside batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline import engine_broker
from pipeline.engine_bookie import BookieEngine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pipeline.options import SourceOptions
    from pipeline.plan import Slice, Task
    from pipeline.rows import Rows


def read_task(options: SourceOptions, task: Task) -> Iterator[tuple[str, Rows]]:
    """Topic and messages, entry by entry, in order.

    Raises: DataLost, Unreadable, Refused.
    """
    with BookieEngine(options) as bookies:
        for part in task:
            if is_direct(options, part):
                groups = bookies.read_slice(part)
            else:
                groups = engine_broker.read_slice(options, part)
            for rows in groups:
                inside = within(part, rows)
                if inside.row_count:
                    yield part.topic, inside


def is_direct(options: SourceOptions, part: Slice) -> bool:
    """Whether a slice is read from the bookies. `auto` leaves the ledger that is being written to
    the broker, which has it in its cache."""
    return options.read_engine == "bookie" or (options.read_engine == "auto" and part.sealed)


def within(part: Slice, rows: Rows) -> Rows:
    """Without what the slice leaves out of its first and last entry."""
    if part.batch_after < 0 and part.batch_until < 0:
        return rows
    after, until = -1, None
    if part.batch_after >= 0 and rows.head.entry_id == part.first_entry:
        after = part.batch_after
    if part.batch_until >= 0 and rows.head.entry_id == part.last_entry:
        until = part.batch_until
    if after < 0 and until is None:
        return rows
    return rows.chosen(
        [
            number
            for number, index in enumerate(rows.batch_indexes)
            if (after < 0 or index > after) and (until is None or index <= until)
        ]
    )
