"""Frees the entries that a flush or a deletion has left: in a thread, in parts.

Not one of the compiled modules: between two calls it is the interpreter that lets other threads
run, and compiled code has no such place. As a whole, to free 100,000 entries would stop everything
for 30 ms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bookie.entry_runs import EntryRuns


def free_all(dropped: list[EntryRuns]) -> None:
    """Free what nobody uses any more (blocking)."""
    for entries in dropped:
        while entries.free_some():
            pass
