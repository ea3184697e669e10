"""Errors of ledgers, as far as the managed ledger has to distinguish them."""

from __future__ import annotations


class LedgerError(Exception):
    """Root of all errors of the ledger client."""


class LedgerNotFound(LedgerError):
    """There is no metadata of this ledger: it was deleted or never existed."""


class LedgerFenced(LedgerError):
    """Another client decided, or is deciding, how this ledger ends: this writer has lost it."""


class EntryAbsent(LedgerError):
    """It is proved that the entry does not exist: every bookie that could have it said so."""


class LedgerUnavailable(LedgerError):
    """Bookies that are needed do not answer, or not as they should. Nothing is proved, and a later
    attempt may succeed."""


class EntryUnknown(LedgerUnavailable):
    """The entry could not be read, and nothing proves that it does not exist."""


class LedgerDamaged(LedgerUnavailable):
    """The record of a ledger in the metadata store is damaged. It can be restored there."""


class RecoveryFailed(LedgerUnavailable):
    """The end of a ledger cannot be decided without guessing."""


class NotEnoughBookies(LedgerUnavailable):
    """The cluster has too few bookies that may be used. It may have more later."""
