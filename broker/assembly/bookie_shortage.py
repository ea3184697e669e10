"""Warns the operator while a cluster has fewer bookies than a new ledger needs, and says to the
topics that wait for a bookie that one has joined."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn, final

import structlog

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledgers.remote.bookie_pool import BookiePool

log = structlog.get_logger()


@final
class BookieShortage:
    """Whether there are too few, and whether that is news. Pure."""

    def __init__(self, ensemble_size: int) -> None:
        self.ensemble_size = ensemble_size
        self._is_short = False

    def reason(self, writable: int) -> str:
        """The effect of too few bookies, for the operator; "": there are enough."""
        if writable >= self.ensemble_size:
            return ""
        accepting = "1 bookie accepts" if writable == 1 else f"{writable} bookies accept"
        return (
            f"{accepting} entries, and a new ledger needs {self.ensemble_size} "
            "(managedLedgerDefaultEnsembleSize): new topics, and topics whose ledger is full, take "
            "no messages"
        )

    def news(self, writable: int) -> str | None:
        """The reason if a shortage begins, "" if it ends, None if nothing is new. At first there is
        none."""
        reason = self.reason(writable)
        if bool(reason) == self._is_short:
            return None
        self._is_short = bool(reason)
        return reason


async def tell_shortages(pool: BookiePool, shortage: BookieShortage) -> NoReturn:
    """Log when a shortage of bookies begins and when it ends, until cancelled. The pool has read
    its members."""
    while True:
        members_moved = pool.members_moved
        news = shortage.news(len(pool.writable))
        if news:
            log.warning(
                "too few bookies",
                reason=news,
                advice="start bookies, or see why they do not register or are read-only",
            )
        elif news is not None:
            log.info(
                "enough bookies again",
                bookies=len(pool.writable),
                needed=shortage.ensemble_size,
            )
        await members_moved.wait()


async def tell_arrivals(pool: BookiePool, joined: Callable[[], None]) -> NoReturn:
    """Call `joined` when bookies take entries that did not before, until cancelled."""
    known = frozenset(pool.writable)
    while True:
        members_moved = pool.members_moved
        writable = frozenset(pool.writable)
        if writable - known:
            joined()
        known = writable
        await members_moved.wait()
