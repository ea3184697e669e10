"""Where a bookie keeps what: opens directories, indexes, journals, and decides which ledger goes
where. Used once, by `Bookie.open`, in a thread.

`<journalDirectory>/current/` has the journal files; `<ledgerDirectory>/current/` has entry logs,
`lastId`, `lastMark*`, and the RocksDB databases `locations` and `ledgers`; each has the cookie in
`VERSION`. A ledger belongs to journal (id mod journals) and ledger directory (id mod directories).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from bookie.checkpoint import MarkStore
from bookie.errors import BookieRefusesToStart
from bookie.journal import Journal
from bookie.journal_writer import JournalWriter
from bookie.ledger_handle import LedgerHandle, decode_ledger_data
from bookie.ledger_storage import LedgerStorage
from bookie.recovery import JournalReplay

if TYPE_CHECKING:
    from collections.abc import Callable

    from bookie.config import BookieConfig
    from bookie.disk import Disk
    from bookie.index import EntryIndex


@final
class Layout:
    """All directories of one bookie."""

    def __init__(
        self,
        config: BookieConfig,
        disk: Disk,
        open_index: Callable[[str], EntryIndex],
    ) -> None:
        self._config = config
        self._disk = disk
        self.journal_directories = [f"{d}/current" for d in config.journalDirectories]
        self.ledger_directories = [f"{d}/current" for d in config.ledgerDirectories]
        self.storages: list[LedgerStorage] = []
        self.marks: list[MarkStore] = []
        self.writers: list[JournalWriter | None] = []
        self.handles: dict[int, LedgerHandle] = {}
        self.journals = [Journal(config) for _ in config.journalDirectories]
        self._open_index = open_index
        self._recovered_ledgers: set[int] = set()
        """Ledgers of entries that the index did not know."""

    def open_storages(self) -> None:
        """Open indexes and entry logs, load the ledgers.

        Raises: StorageError.
        """
        config = self._config
        cache_bytes = (config.dbStorage_writeCacheMaxSizeMb << 20) // len(self.ledger_directories)
        for directory in self.ledger_directories:
            self._disk.make_directories(directory)
            self._disk.restrict(directory)
            index = self._open_index(directory)
            storage = LedgerStorage(self._disk, directory, index, config.logSizeLimit, cache_bytes)
            self.storages.append(storage)
            self._recovered_ledgers |= storage.recover()
        self.marks = [
            MarkStore(self._disk, self.ledger_directories, i)
            for i in range(len(self.journal_directories))
        ]

    def recover(self, now_ms: int) -> None:
        """Load ledgers, replay journals, flush, open new journals, remember where they start.

        Raises: StorageError.
        """
        for storage in self.storages:
            for ledger_id, data in storage.index.ledgers():
                handle = self._new_handle(ledger_id)
                try:
                    decode_ledger_data(data, handle)
                except ValueError as error:
                    raise BookieRefusesToStart(
                        f"{storage.directory}/ledgers: the row of ledger {ledger_id} cannot be "
                        f"read: {error}. Rebuild the index: vela bookie rebuild-index"
                    ) from error
                handle.deleted = not handle.exists
        for ledger_id in self._recovered_ledgers:
            self.handle_of(ledger_id)
        if not self._config.journalWriteData:
            self.writers = [None] * len(self.journal_directories)
            return
        last_ids = []
        for directory, mark_store in zip(self.journal_directories, self.marks, strict=True):
            self._disk.make_directories(directory)
            self._disk.restrict(directory)
            replay = JournalReplay(self._disk, directory, self.handle_of, self._flush_full)
            replay.run(mark_store.load())
            last_ids.append(replay.last_id)
        self._flush(everything=True)
        for directory, last_id, mark_store in zip(
            self.journal_directories, last_ids, self.marks, strict=True
        ):
            journal_id = last_id + 1 if last_id >= 0 else now_ms
            writer = JournalWriter(self._disk, directory, self._config, journal_id)
            mark_store.advance(writer.mark)
            writer.remove_before(writer.mark, self._config.journalMaxBackups)
            self.writers.append(writer)

    def handle_of(self, ledger_id: int) -> LedgerHandle:
        """The ledger's handle, made (with a row to be written) if it is new."""
        handle = self.handles.get(ledger_id)
        if handle is None:
            handle = self._new_handle(ledger_id)
            handle.storage.cache.row_changed(handle)
        return handle

    def _new_handle(self, ledger_id: int) -> LedgerHandle:
        storage = self.storages[ledger_id % len(self.storages)]
        journal = self.journals[ledger_id % len(self.journals)]
        handle = self.handles[ledger_id] = LedgerHandle(ledger_id, storage, journal)
        return handle

    def _flush_full(self) -> None:
        self._flush(everything=False)

    def _flush(self, *, everything: bool) -> None:
        for storage in self.storages:
            if everything or not storage.cache.has_room():
                storage.flush(storage.cache.swap())
                storage.cache.flushed()
