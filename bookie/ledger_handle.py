"""LedgerHandle: the state of one ledger in a bookie, with the places that store it. Pure.

There is exactly one handle per ledger (two would let an add slip past a fence).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from bookie.ledger_state import LedgerState

if TYPE_CHECKING:
    from bookie.journal import Journal
    from bookie.ledger_storage import LedgerStorage


@final
class LedgerHandle(LedgerState):
    """One ledger."""

    __slots__ = ("journal", "storage")

    def __init__(self, ledger_id: int, storage: LedgerStorage, journal: Journal) -> None:
        super().__init__(ledger_id)
        self.storage = storage
        self.journal = journal
