"""Chooses how a slice is read, and applies its bounds inside batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline import engine_broker
from pipeline.engine_bookie import BookieEngine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pipeline.decode import Message
    from pipeline.options import SourceOptions
    from pipeline.plan import Slice, Task


def read_task(options: SourceOptions, task: Task) -> Iterator[tuple[str, list[Message]]]:
    """Topic and messages, entry by entry, in order.

    Raises: DataLost, Unreadable, Refused.
    """
    with BookieEngine(options) as bookies:
        for part in task:
            if is_direct(options, part):
                groups = bookies.read_slice(part)
            else:
                groups = engine_broker.read_slice(options, part)
            for messages in groups:
                inside = within(part, messages)
                if inside:
                    yield part.topic, inside


def is_direct(options: SourceOptions, part: Slice) -> bool:
    """Whether a slice is read from the bookies. `auto` leaves the ledger that is being written to
    the broker, which has it in its cache."""
    return options.read_engine == "bookie" or (options.read_engine == "auto" and part.sealed)


def within(part: Slice, messages: list[Message]) -> list[Message]:
    """Without what the slice leaves out of its first and last entry."""
    if not messages or (part.batch_after < 0 and part.batch_until < 0):
        return messages
    entry_id = messages[0].entry_id
    if part.batch_after >= 0 and entry_id == part.first_entry:
        messages = [each for each in messages if each.batch_index > part.batch_after]
    if part.batch_until >= 0 and entry_id == part.last_entry:
        messages = [each for each in messages if each.batch_index <= part.batch_until]
    return messages
