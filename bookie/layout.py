"""The directories of a bookie: opens them with their indexes and journals, and assigns ledgers to
them. Used once, by `Bookie.open`, in a thread.

`<journalDirectory>/current/` has the journal files. `<ledgerDirectory>/current/` has entry logs,
`lastId`, `lastMark*`, `newestJournal*`, and the RocksDB databases `locations` and `ledgers`. Each
has the cookie in `VERSION`. A ledger is in the ledger directory that has its row in `ledgers`,
wherever that is configured. A new ledger goes to directory (id mod directories). Its records go to
journal (id mod journals). A start replays all journals, so it does not depend on that choice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import structlog

from bookie.checkpoint import MarkStore
from bookie.cookie import belongs
from bookie.errors import BookieRefusesToStart, DiskFull
from bookie.index_progress import IndexProgress
from bookie.index_rocksdb import LEDGERS, LOCATIONS
from bookie.journal import Journal
from bookie.journal_writer import JournalWriter
from bookie.ledger_handle import LedgerHandle
from bookie.ledger_state import decode_ledger_data
from bookie.ledger_storage import LedgerStorage
from bookie.newest_journal import NewestJournal
from bookie.read_turns import JournalWrites
from bookie.recovery import JournalReplay

if TYPE_CHECKING:
    from collections.abc import Callable

    from bookie.config import BookieConfig
    from bookie.directories import DirectoryPlan
    from bookie.disk import Disk
    from bookie.index import EntryIndex

logger = structlog.get_logger()


@final
class Layout:
    """All directories of one bookie."""

    def __init__(
        self,
        config: BookieConfig,
        disk: Disk,
        open_index: Callable[[str], EntryIndex],
        plan: DirectoryPlan,
    ) -> None:
        self._config = config
        self._disk = disk
        self.plan = plan
        self.journal_directories = [f"{path}/current" for path in plan.journals]
        self.ledger_directories = [f"{path}/current" for _number, path in plan.ledgers]
        self.storages: list[LedgerStorage] = []
        self.marks: list[MarkStore] = []
        self.writers: list[JournalWriter | None] = []
        self.handles: dict[int, LedgerHandle] = {}
        self._writes = JournalWrites()
        self.journals = [Journal(config, self._writes) for _ in plan.journals]
        self._open_index = open_index
        self._recovered_ledgers: dict[int, LedgerStorage] = {}
        """Ledgers with entries that the index did not know."""

    def open_storages(self) -> None:
        """Open indexes and entry logs, load the ledgers.

        Raises: StorageError.
        """
        config = self._config
        cache_bytes = (config.dbStorage_writeCacheMaxSizeMb << 20) // len(self.ledger_directories)
        for (number, _path), directory in zip(
            self.plan.ledgers, self.ledger_directories, strict=True
        ):
            self._disk.make_directories(directory)
            self._disk.restrict(directory)
            index = self._open_index(directory)
            storage = LedgerStorage(
                self._disk, directory, index, config.logSizeLimit, cache_bytes, self._writes
            )
            self.storages.append(storage)
            self._refuse_foreign(index, directory, number)
            self._recovered_ledgers |= dict.fromkeys(storage.recover(), storage)
        self.marks = [
            MarkStore(self._disk, self.ledger_directories, i)
            for i in range(len(self.journal_directories))
        ]

    def _refuse_foreign(self, index: EntryIndex, directory: str, number: int) -> None:
        """A database of another directory lacks the entries of this one, and would say so."""
        owner = f"{self.plan.set_id}:{number}".encode()
        owners = index.owners()
        if not self.plan.is_new_set:
            for name, found in zip((LOCATIONS, LEDGERS), owners, strict=True):
                if found not in (b"", owner):
                    raise BookieRefusesToStart(
                        f"{directory}/{name}: the database was made for another ledger directory "
                        f"({found.decode(errors='replace')}, this one is {owner.decode()}). Put "
                        "the right one back. Without it, move the directories locations and "
                        "ledgers away and rebuild the index: vela bookie rebuild-index"
                    )
        if owners != (owner, owner):
            index.set_owner(owner)

    def recover(self, now_ms: int, live_ledgers: set[int] | None = None) -> None:
        """Load ledgers, replay journals, flush, open new journals, record where they start.

        `live_ledgers`, when known, are those that exist: only these keep a directory from being
        removed, and each of them that has entries must have a row.

        Raises: StorageError.
        """
        for storage in self.storages:
            for ledger_id, data in storage.index.ledgers():
                self._load(ledger_id, data, storage)
        for ledger_id, storage in self._recovered_ledgers.items():
            if ledger_id not in self.handles:
                handle = self._new_handle(ledger_id, storage)
                storage.cache.row_changed(handle)
        for number, path in self.plan.removed:
            self._carry_over(number, path, live_ledgers)
        if not self._config.journalWriteData:
            self.writers = [None] * len(self.journal_directories)
            return
        names = [
            NewestJournal(self._disk, self.ledger_directories, i)
            for i in range(len(self.journal_directories))
        ]
        last_ids = []
        for directory, mark_store, newest in zip(
            self.journal_directories, self.marks, names, strict=True
        ):
            self._disk.make_directories(directory)
            self._disk.restrict(directory)
            replay = JournalReplay(self._disk, directory, self.handle_of, self._flush_full)
            replay.run(mark_store.load(), newest.load())
            last_ids.append(replay.last_id)
        self._refuse_lost_rows(live_ledgers or set())
        is_flushed = self._flush(everything=True)
        for directory, last_id, mark_store, newest in zip(
            self.journal_directories, last_ids, self.marks, names, strict=True
        ):
            journal_id = last_id + 1 if last_id >= 0 else now_ms
            writer = JournalWriter(self._disk, directory, self._config, journal_id, newest)
            if is_flushed and writer.has_file:
                self._pass_journals(mark_store, writer)
            self.writers.append(writer)

    def _pass_journals(self, mark_store: MarkStore, writer: JournalWriter) -> None:
        try:
            mark_store.advance(writer.mark)
        except DiskFull as error:
            logger.warning("journal marks not advanced: disk full", error=str(error))
            return
        writer.remove_before(writer.mark, self._config.journalMaxBackups)

    def _refuse_lost_rows(self, live_ledgers: set[int]) -> None:
        """Entries of a ledger without a row would be said to be absent, and garbage collection
        would delete their logs. Rows are written with the entries or are in the journals."""
        for ledger_id in sorted(live_ledgers - self.handles.keys()):
            for storage in self.storages:
                if storage.index.last_entry_id(ledger_id) >= 0:
                    raise BookieRefusesToStart(
                        f"{storage.directory}/ledgers: the row of ledger {ledger_id}, which has "
                        "entries, is missing: the database is an older copy or lost the end of "
                        "its write-ahead log. Rebuild the index: vela bookie rebuild-index"
                    )

    def _load(self, ledger_id: int, data: bytes, storage: LedgerStorage) -> None:
        """A row was found in a directory, so the ledger is there."""
        other = self.handles.get(ledger_id)
        if other is not None:
            # A removal of a directory that was interrupted leaves a row without entries.
            is_empty = storage.index.last_entry_id(ledger_id) < 0
            if not is_empty and other.storage.index.last_entry_id(ledger_id) >= 0:
                raise BookieRefusesToStart(
                    f"ledger {ledger_id} has entries in {other.storage.directory} and in "
                    f"{storage.directory}: an earlier version ran with these directories in "
                    "another order. Restore both from a backup of the time before"
                )
            if is_empty:
                return
        handle = self._new_handle(ledger_id, storage)
        self._fill(handle, data, storage.directory)

    def _fill(self, handle: LedgerHandle, data: bytes, directory: str) -> None:
        try:
            decode_ledger_data(data, handle)
        except ValueError as error:
            raise BookieRefusesToStart(
                f"{directory}/ledgers: the row of ledger {handle.ledger_id} cannot be read: "
                f"{error}. Rebuild the index: vela bookie rebuild-index"
            ) from error
        handle.deleted = not handle.exists

    def _carry_over(self, number: int, path: str, live_ledgers: set[int] | None) -> None:
        """Keep the rows, without entries, of a directory that is going to be removed: fences.

        Raises: BookieRefusesToStart: it has entries that a client may still read, or its index lost
            changes, so that they cannot be seen.
        """
        name = f"{path} (ledger directory {number} of this bookie, not in ledgerDirectories)"
        if not belongs(self._disk, path, self.plan, number):
            raise BookieRefusesToStart(
                f"{name} is not there: put it back, or mount it, so that it can be seen whether "
                "anything in it is still needed"
            )
        index = self._open_index(f"{path}/current")
        try:
            IndexProgress(self._disk, f"{path}/current").check(index.sequences())
            for ledger_id, data in index.ledgers():
                if live_ledgers is not None and ledger_id not in live_ledgers:
                    continue
                former = LedgerHandle(ledger_id, self.storages[0], self.journals[0])
                self._fill(former, data, f"{path}/current")
                if former.exists and index.last_entry_id(ledger_id) >= 0:
                    raise BookieRefusesToStart(
                        f"{name} holds entries of ledger {ledger_id}, which exists: put it back "
                        "until the ledgers in it have been deleted"
                    )
                if ledger_id not in self.handles:
                    self._fill(self.handle_of(ledger_id), data, f"{path}/current")
        finally:
            index.close()

    def handle_of(self, ledger_id: int) -> LedgerHandle:
        """The ledger's handle, created (with a row to be written) if it is new."""
        handle = self.handles.get(ledger_id)
        if handle is None:
            handle = self._new_handle(ledger_id, self.storages[ledger_id % len(self.storages)])
            handle.storage.cache.row_changed(handle)
        return handle

    def _new_handle(self, ledger_id: int, storage: LedgerStorage) -> LedgerHandle:
        journal = self.journals[ledger_id % len(self.journals)]
        handle = self.handles[ledger_id] = LedgerHandle(ledger_id, storage, journal)
        return handle

    def _flush_full(self) -> None:
        self._flush(everything=False)

    def _flush(self, *, everything: bool) -> bool:
        """False: something stays in memory, so the journals that hold it are still needed."""
        complete = True
        for storage in self.storages:
            if everything or not storage.cache.has_room():
                complete = self._flush_storage(storage) and complete
        return complete

    def _flush_storage(self, storage: LedgerStorage) -> bool:
        """False: the directory is full. Both halves of the cache can wait, as in operation; more
        than that is refused."""
        cache = storage.cache
        try:
            if cache.flushing is not None:
                storage.flush(cache.flushing)
                cache.flushed()
            storage.flush(cache.swap())
        except DiskFull as error:
            if not cache.has_room():
                raise
            logger.warning(
                "ledger directory is full; the entries replayed stay in memory and in the journal",
                directory=storage.directory,
                error=str(error),
            )
            return False
        cache.flushed()
        return True
