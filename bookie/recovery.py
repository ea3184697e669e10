"""Recovery: replays the journals of a bookie at start.

1. Before this the index was opened: it gives the ledgers, and has the intact entries of all logs.
2. For each journal: find the files that lastMark and newestJournal name (missing: refuse to start),
   replay the first from the mark on, then replay all later files (one missing or shorter in
   between: refuse to start). Records are applied whether or not they are known.
3. A torn tail of the newest file is dropped with a warning and zeroed, so that it cannot be taken
   for damage at a later start. Damage anywhere else refuses to start.
4. Everything replayed is flushed; only then may a new journal, a new mark and the removal of old
   journals follow.

Runs in a thread: nothing else uses the storage yet.
"""

from __future__ import annotations

import time
from itertools import pairwise
from typing import TYPE_CHECKING, Final, final

import structlog

from bookie import journal_format as fmt
from bookie.checkpoint import NO_MARK
from bookie.errors import BookieRefusesToStart, Corruption
from bookie.journal_writer import journal_ids, journal_path

if TYPE_CHECKING:
    from collections.abc import Callable

    from bookie.disk import Disk, DiskFile
    from bookie.journal_writer import LogMark
    from bookie.ledger_handle import LedgerHandle
    from bookie.newest_journal import JournalName

logger = structlog.get_logger()

_PROGRESS_SECONDS = 2.0
_ZEROED_AT_ONCE: Final = 1 << 20


@final
class JournalReplay:
    """Replays the files of one journal directory."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        handle_of: Callable[[int], LedgerHandle],
        flush: Callable[[], None],
    ) -> None:
        """`handle_of` gives (or makes) a ledger's handle; `flush` empties full write caches."""
        self._disk = disk
        self._directory = directory
        self._handle_of = handle_of
        self._flush = flush
        self.entries = 0
        self.last_id = -1
        """Highest journal id found; the next journal gets a higher one."""

    def run(self, mark: LogMark, newest: JournalName | None = None) -> None:
        """Replay everything from `mark` on. `newest` is the name of the newest journal, if known.

        Raises: BookieRefusesToStart, Corruption.
        """
        ids = journal_ids(self._disk, self._directory)
        self.last_id = ids[-1] if ids else max(mark[0], -1)
        if mark != NO_MARK and mark[0] not in ids:
            raise BookieRefusesToStart(
                f"journal {journal_path(self._directory, mark[0])} is missing, and its data after "
                f"offset {mark[1]} is stored nowhere else. Restore it from a backup. Without one, "
                "move the files lastMark and newestJournal of the ledger directories away and "
                "start again; the entries acknowledged last are then lost"
            )
        if newest is not None and newest.journal_id < mark[0]:
            newest = None  # another version or BookKeeper ran since
        if newest is not None:
            self._refuse_without(newest)
        todo = [journal_id for journal_id in ids if journal_id >= mark[0]]
        self._refuse_gaps(todo)
        started = time.monotonic()
        before = None
        for number, journal_id in enumerate(todo):
            offset = mark[1] if journal_id == mark[0] else 0
            is_named = newest is not None and newest.journal_id == journal_id
            before = self._replay_file(
                journal_id,
                offset,
                before,
                newest=number == len(todo) - 1,
                reserved_mb=newest.reserved_mb if newest is not None and is_named else 0,
            )
        if self.entries:
            logger.info(
                "journal replayed",
                directory=self._directory,
                files=len(todo),
                entries=self.entries,
                seconds=round(time.monotonic() - started, 3),
            )

    def _refuse_without(self, newest: JournalName) -> None:
        """The journal of that name holds what was acknowledged last."""
        path = journal_path(self._directory, newest.journal_id)
        try:
            header = self._header(newest.journal_id)
        except FileNotFoundError:
            what = "is missing"
        else:
            if header is None:
                detail = "the header of the journal is missing"
                raise Corruption(path, 0, fmt.HEADER_SIZE, detail)
            if header.salt == newest.salt:
                return
            what = "is not the one that the bookie wrote, but a copy of another one"
        raise BookieRefusesToStart(
            f"journal {path}, the newest one, {what}. What was acknowledged last is stored nowhere "
            "else. Restore it from a backup. Without one, move the files newestJournal of the "
            "ledger directories away and start again; the entries acknowledged last are then lost"
        )

    def _refuse_gaps(self, ids: list[int]) -> None:
        """Each journal of ours has the number after the one before it. BookKeeper's are times."""
        for before, after in pairwise(ids):
            if after != before + 1 and self._is_own(before) and self._is_own(after):
                raise BookieRefusesToStart(
                    f"journal {journal_path(self._directory, before + 1)} is missing, and a later "
                    "one exists. Its data is stored nowhere else. Restore it from a backup. "
                    f"Without one, move the journals before {after:x}.txn away, and the files "
                    "lastMark of the ledger directories, and start again; what was acknowledged "
                    "between is then lost"
                )

    def _is_own(self, journal_id: int) -> bool:
        header = self._header(journal_id)
        return header is not None and header.salt is not None

    def _header(self, journal_id: int) -> fmt.JournalHeader | None:
        path = journal_path(self._directory, journal_id)
        file = self._disk.open(path)
        try:
            return fmt.decode_header(file.read_at(0, fmt.HEADER_SIZE), path)
        finally:
            file.close()

    def _replay_file(
        self,
        journal_id: int,
        offset: int,
        before: tuple[str, int, int] | None,
        *,
        newest: bool,
        reserved_mb: int,
    ) -> tuple[str, int, int] | None:
        """`before` and the result: path, salt and end of the journal before, of this one."""
        path = journal_path(self._directory, journal_id)
        file = self._disk.open(path)
        try:
            size = file.size()
            header = fmt.decode_header(file.read_at(0, fmt.HEADER_SIZE), path)
            if header is None:
                if not newest or offset >= fmt.HEADER_SIZE:
                    raise Corruption(path, 0, size, "the header of the journal is missing")
                logger.warning("journal without header, nothing durable in it", file=path)
                self._disk.remove(path)
                self.last_id = journal_id - 1  # the next one takes its number: no gap
                return None
            if offset > size:
                raise Corruption(path, size, offset - size, "the journal ends before its mark")
            self._refuse_older_copy(file, header, offset)
            if before is not None and header.previous is not None:
                self._refuse_other(before, header.previous, path)
            scan = fmt.JournalScan(path, file.read_at, size, header, offset, reserved_mb)
            self._replay_groups(scan, path, size)
            if scan.end is fmt.ScanEnd.TORN:
                self._drop_tail(file, scan, newest=newest)
            return None if header.salt is None else (path, header.salt, scan.end_offset)
        finally:
            file.close()

    def _refuse_other(
        self, before: tuple[str, int, int], previous: tuple[int, int], after: str
    ) -> None:
        """A journal names the one that was closed before it."""
        path, salt, end = before
        if (salt, end) != previous:
            raise Corruption(
                path,
                end,
                max(previous[1] - end, 1),
                f"the journal is an older copy or another one than {after} names",
            )

    def _refuse_older_copy(self, file: DiskFile, header: fmt.JournalHeader, mark: int) -> None:
        """A group ends at the mark. Reserved space there shows that the file was not yet written so
        far: what was written after the mark is missing."""
        start = mark - fmt.TRAILER_SIZE
        if header.salt is None or start < header.size:
            return
        if not any(file.read_at(start, fmt.TRAILER_SIZE)):
            raise Corruption(
                file.path,
                start,
                fmt.TRAILER_SIZE,
                "the journal was not written as far as its mark: it is an older copy",
            )

    def _replay_groups(self, scan: fmt.JournalScan, path: str, size: int) -> None:
        reported = time.monotonic()
        for records in scan.groups():
            for record in records:
                self._apply(record, path, scan.end_offset)
            self._flush()
            if time.monotonic() - reported > _PROGRESS_SECONDS:
                reported = time.monotonic()
                logger.info(
                    "replaying journal",
                    file=path,
                    offset=scan.end_offset,
                    size=size,
                    entries=self.entries,
                )

    def _drop_tail(self, file: DiskFile, scan: fmt.JournalScan, *, newest: bool) -> None:
        if not newest:
            raise Corruption(file.path, scan.end_offset, scan.dropped_bytes, scan.detail)
        logger.warning(
            "torn tail of the newest journal dropped: it was never acknowledged",
            file=file.path,
            offset=scan.end_offset,
            bytes=scan.dropped_bytes,
            reason=scan.detail,
        )
        # The file keeps its size, which shows that it was not cut.
        end = min(scan.end_offset + scan.dropped_bytes, file.size())
        for at in range(scan.end_offset, end, _ZEROED_AT_ONCE):
            file.write_at(at, bytes(min(_ZEROED_AT_ONCE, end - at)))
        file.sync()

    def _apply(self, record: bytes, path: str, offset: int) -> None:
        """One record. Applying it twice changes nothing."""
        ledger_id, entry_id = fmt.decode_ids(record)
        handle = self._handle_of(ledger_id)
        cache = handle.storage.cache
        if handle.fenced and not handle.exists:
            return  # deleted after it was fenced: only the tombstone is left
        self.entries += 1
        if entry_id >= 0:
            cache.put(handle, entry_id, (record, b""))
            return
        try:
            if entry_id == fmt.ENTRY_MASTER_KEY:
                handle.adopt_key(fmt.decode_blob(record))
            elif entry_id == fmt.ENTRY_FENCE:
                handle.fenced = True
            elif entry_id == fmt.ENTRY_EXPLICIT_LAC:
                handle.explicit_lac = fmt.decode_blob(record)
            elif entry_id != fmt.ENTRY_FORCE:
                raise ValueError(f"unknown special entry id {entry_id}")
        except ValueError as error:
            raise Corruption(path, offset, len(record), str(error)) from error
        cache.row_changed(handle)
