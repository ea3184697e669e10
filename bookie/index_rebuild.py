"""Rebuilds the index of one ledger directory from its entry logs and the journals.

All locations are in the entry logs: the newest copy of an entry counts. The rows of ledgers are
taken from the old `ledgers` database if that is intact; all of them are fenced if it lost changes
(`IndexProgress`). If it is not intact, and for ledgers that it lacks (it may be an older copy):

- Every ledger of the entry logs exists. Garbage collection removes those that were deleted.
- Every ledger is fenced. A forgotten fence would admit two writers; a superfluous one only makes a
  writer continue in a new ledger.
- Master keys and explicit last-add-confirmed come from the journals that still exist. Without a
  key, the first one presented is accepted.

The new databases are made in `index.rebuild`; the old ones are moved to `index.replaced.<n>` and
stay there. A bookie does not start while `index.rebuild` exists, so that an interrupted rebuild is
noticed. The rebuild is then started again from the beginning.

Damage in an entry log stops the rebuild, unless it is to be skipped. Then ledgers that may have
lost entries are in limbo, as BookKeeper calls it: a missing entry is an error, not "no such entry".
These are the ledgers that the log's map names if the map verifies, else all: without a map, any
ledger may have had an entry in the damaged part. A log that is missing or shorter than before, as
far as the old index can be read, is damaged as well; without it, the record of the logs shows
which ones are missing (`recorded_logs`).
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

import structlog
from rocksdict import WriteBatch

from bookie import entry_log_format as fmt
from bookie import journal_format
from bookie.disk import RealDisk
from bookie.entry_log_scan import LogScan
from bookie.errors import BookieRefusesToStart, Corruption, DiskFailed, StorageError
from bookie.index import (
    END_KEY,
    FLAGS_LEDGER,
    pack_ledger_key,
    pack_location_key,
    pack_u64,
)
from bookie.index_progress import FILE_NAME as PROGRESS
from bookie.index_progress import IndexProgress
from bookie.index_rocksdb import LEDGERS, LOCATIONS, REBUILD, open_index_database
from bookie.journal_writer import journal_ids, journal_path
from bookie.ledger_state import decode_ledger_data, encode_ledger_data
from bookie.old_locations import read_old_locations
from bookie.recorded_logs import RecordedLogs, compare
from rocks.database import lock_database
from rocks.errors import DatabaseError, DatabaseInUse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from bookie.disk import DiskFile
    from bookie.old_locations import OldLocations
    from bookie.recorded_logs import Comparison
    from rocks.database import Database

logger = structlog.get_logger()

REPLACED: Final = "index.replaced."
_BATCH_ROWS: Final = 4096


@final
@dataclass(slots=True)
class _Ledger:
    """A row of the ledgers index."""

    exists: bool = True
    fenced: bool = False
    limbo: bool = False
    master_key: bytes = b""
    explicit_lac: bytes = b""


@final
@dataclass(slots=True)
class Rebuilt:
    """The result of a rebuild."""

    logs: int = 0
    entries: int = 0
    ledgers: int = 0
    rows_kept: bool = True
    """Whether the old `ledgers` database was intact."""
    without_key: int = 0
    """Ledgers whose master key is unknown."""
    damaged_bytes: int = 0
    """Damaged parts that were skipped."""
    missing_logs: int = 0
    """Logs that are gone, and were skipped."""
    in_limbo: set[int] = field(default_factory=set)
    replaced: str = ""
    """Where the old databases are."""


def rebuild_index(
    directory: str,
    journal_directories: Sequence[str],
    is_intact: Callable[[bytes], bool],
    *,
    skip_damaged: bool = False,
) -> Rebuilt:
    """Rebuild the index of `directory` (`<ledgerDirectory>/current`). The bookie must be stopped.

    Raises: StorageError.
    """
    return _Rebuild(Path(directory), is_intact, skip_damaged).run(journal_directories)


@final
class _Rebuild:
    """One rebuild."""

    def __init__(
        self, directory: Path, is_intact: Callable[[bytes], bool], skip_damaged: bool
    ) -> None:
        self._directory = directory
        self._is_intact = is_intact
        self._skip_damaged = skip_damaged
        self._disk = RealDisk()
        self._ledger_ids: set[int] = set()
        self._all_in_limbo = False
        self._are_fences_lost = False
        self._result = Rebuilt()

    def run(self, journal_directories: Sequence[str]) -> Rebuilt:
        """See `rebuild_index`."""
        if not self._directory.is_dir():
            raise BookieRefusesToStart(f"{self._directory} is not a ledger directory")
        place = self._directory / REBUILD
        lock = -1
        try:
            was_swapping = (place / LEDGERS).exists() and not (place / LOCATIONS).exists()
            synced = IndexProgress(self._disk, str(self._directory)).synced()
            rows = self._old_rows(synced, may_be_moved=was_swapping)
            deleted = {key for key, row in (rows or {}).items() if not _decoded(key, row).exists}
            log_ids = self._log_ids()
            old = read_old_locations(
                self._old_locations(place), log_ids, deleted, None if synced is None else synced[0]
            )
            if (self._directory / LOCATIONS).exists():
                lock = lock_database(self._directory / LOCATIONS)
            # From here on a start is refused until the rebuild has ended.
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir(0o700)
            if not self._are_fences_lost:
                (self._directory / PROGRESS).unlink(missing_ok=True)
            self._disk.sync_directory(str(self._directory))
            compared = compare(self._disk, str(self._directory), log_ids)
            self._check_missing(log_ids, old, compared)
            self._write_locations(place, log_ids, deleted, old.end)
            rows = rows or {}
            without_row = self._ledger_ids - {*rows}
            if without_row:
                rows |= self._new_rows(without_row, journal_directories)
            self._write_ledgers(place, rows)
            self._swap(place)
            # Only now: a repeated rebuild has to miss the same logs.
            recorded = RecordedLogs(self._disk, str(self._directory))
            recorded.begin(compared.newest_id, log_ids)
            self._end(place)
        except (DatabaseError, OSError) as error:
            raise DiskFailed(f"rebuilding the index of {self._directory}: {error}") from error
        finally:
            if lock >= 0:
                os.close(lock)
        return self._result

    def _old_rows(
        self, synced: tuple[int, int] | None, *, may_be_moved: bool
    ) -> dict[int, bytes] | None:
        """The rows of the old `ledgers` database; None: it is damaged. All are fenced if it lost
        changes (`synced`: see IndexProgress). `may_be_moved`: a rebuild that moved databases away
        was interrupted."""
        path = self._directory / LEDGERS
        if may_be_moved and not path.exists():
            replaced = self._replaced()
            path = replaced[-1] / LEDGERS if replaced else path
        try:
            database = open_index_database(path, may_create=False)
            try:
                rows = {int.from_bytes(k, "big", signed=True): v for k, v in database.items()}
                known = {ledger_id: _decoded(ledger_id, row) for ledger_id, row in rows.items()}
                self._are_fences_lost = synced is not None and database.sequence() < synced[1]
                if self._are_fences_lost:
                    logger.warning(
                        "fences may be lost, so all ledgers are fenced", database=str(path)
                    )
                    for ledger_id in (each for each in known if each >= 0):
                        known[ledger_id].fenced = True
                        rows[ledger_id] = encode_ledger_data(known[ledger_id])
            finally:
                database.close()
        except DatabaseInUse:
            raise
        except (DatabaseError, ValueError) as error:
            logger.warning("the rows of ledgers are lost, rebuilding them too", error=str(error))
            self._result.rows_kept = False
            return None
        return rows

    def _old_locations(self, place: Path) -> Path:
        """The old `locations` database, which a rebuild may have moved away before it was
        interrupted."""
        path = self._directory / LOCATIONS
        is_moved = not (place / LOCATIONS).exists() or not path.exists()
        replaced = self._replaced()
        if (place / LEDGERS).exists() and is_moved and replaced:
            return replaced[-1] / LOCATIONS
        return path

    def _log_ids(self) -> list[int]:
        return sorted(
            int(path.stem, 16) for path in self._directory.glob("*.log") if _is_hex(path.stem)
        )

    def _check_missing(self, log_ids: list[int], old: OldLocations, compared: Comparison) -> None:
        """Whether all logs are there of which something is known."""
        for log_id, ledger_ids in sorted(old.without_log.items()):
            self._missing(log_id, f"the old index has entries of {len(ledger_ids)} ledgers in it")
            self._in_limbo(ledger_ids)
        if old.is_whole:
            return  # no existing ledger has entries in the others
        for log_id in sorted(compared.missing - old.without_log.keys()):
            self._missing(log_id, "the record of the entry logs, or lastId, names it")
            self._in_limbo(None)
        if compared.doubt:
            self._check_numbers(log_ids, compared)

    def _check_numbers(self, log_ids: list[int], compared: Comparison) -> None:
        """Without a record: numbers without a log are those of collected ones, or of lost ones. The
        first log of a directory has number 1."""
        absent = compared.newest_id - len([log_id for log_id in log_ids if log_id > 0])
        if absent <= 0:
            return
        doubt = (
            f"{compared.doubt}. So it is not known which entry logs are missing: {absent} of the "
            f"numbers up to {compared.newest_id:x} have none, as after garbage collection"
        )
        if not self._skip_damaged:
            raise BookieRefusesToStart(
                f"{doubt}. Restore the file from a backup. Without one, use --skip-damaged: all "
                "ledgers are then in limbo, so that a missing entry is an error"
            )
        logger.warning("entry logs may be missing, skipped", reason=doubt)
        self._in_limbo(None)

    def _missing(self, log_id: int, evidence: str) -> None:
        path = self._directory / f"{log_id:x}.log"
        if not self._skip_damaged:
            raise BookieRefusesToStart(
                f"{path}: the entry log is missing, and {evidence}. Restore it from a backup. "
                "Without one, use --skip-damaged: ledgers that may have lost entries with it are "
                "then in limbo, so that a missing entry is an error"
            )
        self._result.missing_logs += 1
        logger.warning("missing entry log skipped", file=str(path), reason=evidence)

    def _write_locations(
        self, place: Path, log_ids: list[int], deleted: set[int], old_end: int
    ) -> None:
        database = open_index_database(place / LOCATIONS, may_create=True)
        try:
            end = 0
            for log_id in log_ids:
                self._check_length(log_id, old_end)
                end = self._index_log(database, log_id, deleted, newest=log_id == log_ids[-1])
            if end:
                batch = WriteBatch(raw_mode=True)
                batch.put(END_KEY, pack_u64(end))
                database.write(batch)
            database.sync()
        finally:
            database.close()

    def _check_length(self, log_id: int, old_end: int) -> None:
        """`old_end`: see OldLocations."""
        old_log_id, size_before = fmt.split_location(old_end)
        path = self._directory / f"{log_id:x}.log"
        size = path.stat().st_size
        if log_id == old_log_id and size < size_before:
            missing = size_before - size
            self._damaged(str(path), size, missing, "the entry log is shorter than its index")
            self._in_limbo(None)

    def _index_log(
        self, database: Database, log_id: int, deleted: set[int], *, newest: bool
    ) -> int:
        """Index one log. Returns the location of its end."""
        file = self._disk.open(str(self._directory / f"{log_id:x}.log"))
        try:
            size = file.size()
            scan = LogScan(file.read_at, fmt.HEADER_SIZE, size, self._is_intact)
            found = scan.intact + scan.strays
            end = max(size, fmt.HEADER_SIZE)
            if scan.intact_end < size:
                if newest and scan.torn:
                    end = scan.intact_end  # the next start reports it and cuts it off
                else:
                    lost = scan.damaged_bytes
                    self._damaged(file.path, scan.intact_end, lost, "not an intact entry")
                    self._in_limbo(_ledgers_of_map(file, size))
        finally:
            file.close()
        alive = (item for item in found if item[0] not in deleted)
        while part := list(islice(alive, _BATCH_ROWS)):
            batch = WriteBatch(raw_mode=True)
            for ledger_id, entry_id, offset, _length in part:
                batch.put(
                    pack_location_key(ledger_id, entry_id),
                    pack_u64(fmt.location_of(log_id, offset)),
                )
                self._ledger_ids.add(ledger_id)
            database.write(batch)
            self._result.entries += len(part)
        self._result.logs += 1
        logger.info("entry log indexed", log=f"{log_id:x}", entries=len(found))
        return fmt.location_of(log_id, end)

    def _damaged(self, path: str, offset: int, lost: int, problem: str) -> None:
        if not self._skip_damaged:
            raise Corruption(path, offset, lost, problem)
        self._result.damaged_bytes += lost
        logger.warning("damaged part of an entry log skipped", file=path, offset=offset, bytes=lost)

    def _in_limbo(self, ledger_ids: set[int] | None) -> None:
        """These ledgers may have lost entries; None: all may."""
        if ledger_ids is None:
            self._all_in_limbo = True
        else:
            self._result.in_limbo |= ledger_ids
            self._ledger_ids |= ledger_ids

    def _new_rows(
        self, ledger_ids: Iterable[int], journal_directories: Iterable[str]
    ) -> dict[int, bytes]:
        """Rows of ledgers that have none, with their data from the journals."""
        ledgers = {ledger_id: _Ledger() for ledger_id in ledger_ids}
        for directory in journal_directories:
            for journal_id in journal_ids(self._disk, directory):
                self._read_journal(journal_path(directory, journal_id), ledgers)
        for data in ledgers.values():
            data.fenced = True
        self._result.without_key = sum(not any(d.master_key) for d in ledgers.values())
        return {ledger_id: encode_ledger_data(data) for ledger_id, data in ledgers.items()}

    def _read_journal(self, path: str, ledgers: dict[int, _Ledger]) -> None:
        file = self._disk.open(path)
        try:
            header = journal_format.decode_header(file.read_at(0, journal_format.HEADER_SIZE), path)
            if header is None:
                return
            scan = journal_format.JournalScan(path, file.read_at, file.size(), header, 0)
            for records in scan.groups():
                for record in records:
                    ledger_id, entry_id = journal_format.decode_ids(record)
                    data = ledgers.get(ledger_id)
                    if data is None:
                        continue
                    if entry_id == journal_format.ENTRY_MASTER_KEY:
                        data.master_key = journal_format.decode_blob(record)
                    elif entry_id == journal_format.ENTRY_EXPLICIT_LAC:
                        data.explicit_lac = journal_format.decode_blob(record)
        except (StorageError, ValueError) as error:
            # The next start decides about the damage. Here only data of ledgers is missing.
            logger.warning("journal read up to its damage only", error=str(error))
        finally:
            file.close()

    def _write_ledgers(self, place: Path, rows: dict[int, bytes]) -> None:
        doubted = rows.keys() if self._all_in_limbo else self._result.in_limbo & rows.keys()
        self._result.in_limbo = set()
        for ledger_id in doubted:
            data = _decoded(ledger_id, rows[ledger_id])
            if data.exists and ledger_id != FLAGS_LEDGER:
                data.limbo = True
                rows[ledger_id] = encode_ledger_data(data)
                self._result.in_limbo.add(ledger_id)
        database = open_index_database(place / LEDGERS, may_create=True)
        try:
            batch = WriteBatch(raw_mode=True)
            for ledger_id, row in rows.items():
                batch.put(pack_ledger_key(ledger_id), row)
            database.write(batch)
            database.sync()
        finally:
            database.close()
        self._result.ledgers = sum(ledger_id >= 0 for ledger_id in rows)

    def _swap(self, place: Path) -> None:
        """Move the old databases away and the new ones in. `index.rebuild` stays."""
        before = self._replaced()
        number = int(before[-1].name.removeprefix(REPLACED)) + 1 if before else 1
        replaced = self._directory / f"{REPLACED}{number}"
        replaced.mkdir(0o700)
        for name in (LOCATIONS, LEDGERS):
            if (self._directory / name).exists():
                os.rename(self._directory / name, replaced / name)
            os.rename(place / name, self._directory / name)
        self._disk.sync_directory(str(replaced))
        # With lost fences a repeated rebuild had to know that up to here.
        (self._directory / PROGRESS).unlink(missing_ok=True)
        self._disk.sync_directory(str(self._directory))
        self._result.replaced = str(replaced)

    def _end(self, place: Path) -> None:
        place.rmdir()
        self._disk.sync_directory(str(self._directory))

    def _replaced(self) -> list[Path]:
        """Directories of earlier rebuilds, the newest last."""
        found = [
            p for p in self._directory.glob(f"{REPLACED}*") if p.name[len(REPLACED) :].isdigit()
        ]
        return sorted(found, key=lambda path: int(path.name[len(REPLACED) :]))


def _ledgers_of_map(file: DiskFile, size: int) -> set[int] | None:
    """The ledgers in a log by its map; None if it has no map that verifies."""
    data = file.read_at(0, fmt.HEADER_SIZE)
    header = fmt.decode_header(data)
    if header is None or not fmt.HEADER_SIZE < header[0] < size:
        return None
    map_offset, count = header
    ledgers_map = file.read_at(map_offset, size - map_offset)
    if not fmt.is_map_intact(data, ledgers_map):
        return None
    bytes_by_ledger = fmt.decode_ledgers_map(ledgers_map, count)
    return None if bytes_by_ledger is None else set(bytes_by_ledger)


def _decoded(ledger_id: int, row: bytes) -> _Ledger:
    data = _Ledger()
    if ledger_id == FLAGS_LEDGER:
        return data
    decode_ledger_data(row, data)
    return data


def _is_hex(text: str) -> bool:
    try:
        return int(text, 16) >= 0
    except ValueError:
        return False
