"""DiskMonitor: a ledger directory that is too full refuses plain adds until it has space again.

Ledgers belong to directories, so each directory is checked by itself. The bookie counts as
read-only when all of them are full. Reads always continue. Recovery adds continue while there is
headroom. A journal that is too full, or finds no space to reserve, stops all directories.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import structlog
import trio

if TYPE_CHECKING:
    from collections.abc import Callable

    from bookie.config import BookieConfig
    from bookie.disk import Disk
    from bookie.layout import Layout
    from bookie.ledger_storage import LedgerStorage

logger = structlog.get_logger()


@final
class DiskMonitor:
    """Checks the disks every diskCheckInterval."""

    def __init__(
        self, config: BookieConfig, disk: Disk, layout: Layout, changed: Callable[[], None]
    ) -> None:
        self._config = config
        self._disk = disk
        self._layout = layout
        self._changed = changed

    async def run(self) -> None:
        """Check until cancelled."""
        while True:
            await trio.sleep(self._config.diskCheckInterval / 1000)
            for journal in self._layout.journals:
                journal.try_again()
            self.check_now()

    def free_and_total_bytes(self) -> tuple[int, int]:
        """Over all ledger directories."""
        spaces = [
            self._disk.free_and_total_bytes(storage.directory) for storage in self._layout.storages
        ]
        return sum(free for free, _total in spaces), sum(total for _free, total in spaces)

    def check_now(self) -> None:
        """One check (statvfs: no waiting)."""
        changed = False
        no_journal = any(journal.is_full for journal in self._layout.journals)
        journal_full = no_journal or any(
            self._usage(directory)[0] >= self._config.diskUsageThreshold
            for directory in self._layout.journal_directories
            if self._config.journalWriteData
        )
        for storage in self._layout.storages:
            usage, free = self._usage(storage.directory)
            full = journal_full or usage >= self._config.diskUsageThreshold
            storage.headroom = (
                not no_journal and free >= self._config.minUsableSizeForHighPriorityWrites
            )
            storage.compaction_allowed = usage < self._config.diskUsageThreshold
            storage.major_compaction_allowed = usage < self._config.diskUsageWarnThreshold
            if full == storage.writable:
                changed = True
                self._switch(storage, full, usage)
        if changed:
            self._changed()

    def _usage(self, directory: str) -> tuple[float, int]:
        free, total = self._disk.free_and_total_bytes(directory)
        return 1 - free / max(total, 1), free

    def _switch(self, storage: LedgerStorage, full: bool, usage: float) -> None:
        storage.writable = not full
        if full:
            logger.warning(
                "disk too full: read-only until there is space",
                directory=storage.directory,
                usage=round(usage, 3),
                threshold=self._config.diskUsageThreshold,
            )
        else:
            logger.info("disk has space again: writable", directory=storage.directory)
