"""DamageReports: marks ledgers whose entries were served around damage, for autorecovery to repair.

Any reader of ledgers may report, and never waits. A copy is reported once in a while, however often
it is read meanwhile. The reports that wait for the metadata store are bounded: a report above the
bound is dropped, and the next read, or the auditor, finds the damage again.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, NoReturn, final

import structlog
import trio

from autorecovery.marks import WrongLayout
from metadata.store import MetadataUnavailable

if TYPE_CHECKING:
    from autorecovery.marks import Marks

log = structlog.get_logger()

REPORTED_MAX: Final = 1_000
"""Copies that are remembered, and that wait."""
AGAIN_S: Final = 3_600.0
"""After which a copy that is still damaged is reported again."""
RETRY_S: Final = 5.0


@final
class DamageReports:
    """See the module docstring."""

    def __init__(self, marks: Marks) -> None:
        self._marks = marks
        self._reported: dict[tuple[int, str], float] = {}
        """When, by ledger and bookie, in that order."""
        self._waiting: dict[tuple[int, str], int] = {}
        """The entry that was met."""
        self._some_wait = trio.Event()
        self.marked = 0
        """Copies that were named in marks."""

    def report(self, ledger_id: int, bookie_id: str, entry_id: int) -> None:
        """This entry was read from another bookie, because this one gave a damaged one, or failed
        to read it."""
        copy = ledger_id, bookie_id
        now = trio.current_time()
        if now < self._reported.get(copy, -AGAIN_S) + AGAIN_S:
            return
        if len(self._waiting) >= REPORTED_MAX:
            return
        self._reported.pop(copy, None)
        self._reported[copy] = now
        if len(self._reported) > REPORTED_MAX:
            del self._reported[next(iter(self._reported))]
        self._waiting[copy] = entry_id
        self._some_wait.set()

    async def run(self) -> NoReturn:
        """Write the marks, until cancelled."""
        while True:
            await self._some_wait.wait()
            try:
                await self._marks.prepare()
                while self._waiting:
                    (ledger_id, bookie_id), entry_id = next(iter(self._waiting.items()))
                    now_ms = time.time_ns() // 1_000_000
                    await self._marks.add_damaged(ledger_id, [bookie_id], now_ms, entry_id)
                    del self._waiting[ledger_id, bookie_id]
                    self.marked += 1
                    log.warning(
                        "damaged copy marked for repair",
                        ledger_id=ledger_id,
                        entry_id=entry_id,
                        bookie=bookie_id,
                    )
            except MetadataUnavailable as error:
                log.info("damaged copies are marked later", reason=str(error))
                await trio.sleep(RETRY_S)
                continue
            except WrongLayout as error:
                log.error("damaged copies cannot be marked for repair", reason=str(error))
                self._waiting.clear()
            self._some_wait = trio.Event()
