"""Frees the entries that a flush or a deletion has left: in a thread, in parts.

This module is not compiled: the interpreter lets other threads run between two calls, and compiled
code does not. Freeing 100,000 entries at once would stop all threads for 30 ms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bookie.entry_runs import EntryRuns


def free_all(dropped: list[EntryRuns]) -> None:
    """Free what is no longer used (blocking)."""
    for entries in dropped:
        while entries.free_some():
            pass
