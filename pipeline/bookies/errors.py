"""Failures to read entries from bookies, by what a caller can do about them."""

from __future__ import annotations


class BookiesNotReachable(Exception):
    """The server names no addresses of bookies; the text says what to set."""


class BookieReadError(Exception):
    """Entry `entry_id` of ledger `ledger_id` could not be read; entries before it were."""

    def __init__(self, ledger_id: int, entry_id: int, detail: str) -> None:
        super().__init__(ledger_id, entry_id, detail)
        self.ledger_id = ledger_id
        self.entry_id = entry_id
        self.detail = detail

    def __str__(self) -> str:
        return f"entry {self.ledger_id}:{self.entry_id}: {self.detail}"


class LedgerMissing(BookieReadError):
    """Every bookie of the entry proved that it does not have the ledger: it was deleted."""


class EntryMissing(BookieReadError):
    """Every bookie of the entry proved that it does not have the entry, and one has the ledger."""


class EntryDamaged(BookieReadError):
    """No bookie has a copy with the right digest, and one has a wrong copy."""


class BookieUnavailable(BookieReadError):
    """A bookie of the entry could not be asked in time, so nothing is proved: try again."""
