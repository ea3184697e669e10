"""LedgerHandle: the state of one ledger in a bookie, with the places that store it. Pure.

There is exactly one handle per ledger (two would let an add slip past a fence).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from bookie.ledger_state import LedgerState

if TYPE_CHECKING:
    from bookie.journal import Journal
    from bookie.ledger_storage import LedgerStorage

MASTER_KEY_SIZE_BYTES_MAX: Final = 20
"""A key is a SHA-1 digest, or empty. The keys of all ledgers are in memory."""


def is_storable(ledger_id: int, master_key: bytes) -> bool:
    """Whether a client may have a ledger with this id and key. Ids below zero are those of rows
    that are not ledgers."""
    return ledger_id >= 0 and len(master_key) <= MASTER_KEY_SIZE_BYTES_MAX


@final
class LedgerHandle(LedgerState):
    """One ledger."""

    __slots__ = ("journal", "storage")

    def __init__(self, ledger_id: int, storage: LedgerStorage, journal: Journal) -> None:
        super().__init__(ledger_id)
        self.storage = storage
        self.journal = journal
