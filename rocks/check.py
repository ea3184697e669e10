"""Checks the files of a RocksDB database before RocksDB opens it.

RocksDB replays as much of its write-ahead logs as it can read and starts with that. After one
flipped bit the rest of the log is lost, without a message. Therefore the logs are read here first:

1. `CURRENT` names a MANIFEST that exists; the MANIFEST verifies from end to end.
2. Each table file that the MANIFEST names exists and has its size.
3. Each write-ahead log that is still needed verifies, and their batches follow one another without
   a gap, beginning at what the tables hold.

An incomplete last record, of the MANIFEST or of the newest log, is a torn tail: a crash interrupted
a write that was never confirmed. It is cut off, with a warning that names file, offset and bytes.
Any other damage is refused. The blocks of table files have checksums that RocksDB verifies as it
reads them (docs/decisions/0020-rocksdb-is-checked-before-it-opens.md).
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final, final

import structlog

from rocks.errors import DatabaseDamaged
from rocks.log_format import LogDamage, LogScan
from rocks.manifest import BatchOrder, Manifest, UnreadableRecord

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

logger = structlog.get_logger()

_CURRENT: Final = "CURRENT"
_MANIFEST: Final = re.compile(rb"(MANIFEST-(\d{6,}))\n")
_LOG: Final = re.compile(r"(\d{6,})\.log")
_STATE: Final = re.compile(r"MANIFEST-\d+|\d+\.(log|sst)")
_FIRST_MANIFEST: Final = "MANIFEST-000001"
_CONFIGURATION: Final = "rocksdict-config.json"


def exists(directory: Path) -> bool:
    """Whether there is a database, intact or not.

    RocksDB creates one in this order: the first MANIFEST, `CURRENT`, the first log. So a first
    MANIFEST alone is a creation that was interrupted: it holds nothing, and RocksDB begins again.
    """
    return any(
        name == _CURRENT or (_STATE.fullmatch(name) is not None and name != _FIRST_MANIFEST)
        for name in _names(directory)
    )


def check_database(directory: Path, remedy: str) -> None:
    """Check everything, then cut off torn tails. The caller holds the database's lock.

    Raises: DatabaseDamaged, with `remedy` as the sentence that says what to do.
    """
    if not exists(directory):
        return
    check = _Check(directory, remedy)
    check.check_logs(check.checked_manifest())
    check.cut_tails()
    # Only copies of what the program configures; they are written again at opening.
    for path in (directory / _CONFIGURATION, *directory.glob("OPTIONS-*")):
        path.unlink(missing_ok=True)


def refuse_damaged(directory: Path, remedy: str) -> None:
    """Check everything and change nothing: torn tails stay. The caller holds the database's lock.

    Raises: DatabaseDamaged.
    """
    check = _Check(directory, remedy)
    check.check_logs(check.checked_manifest())


def _names(directory: Path) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except FileNotFoundError:
        return []


@final
class _Check:
    """One check of one directory."""

    def __init__(self, directory: Path, remedy: str) -> None:
        self._directory = directory
        self._remedy = remedy
        self._tails: list[tuple[Path, LogScan]] = []

    def checked_manifest(self) -> Manifest:
        """The state of the database; all its table files exist."""
        current = self._directory / _CURRENT
        try:
            named = current.read_bytes()
        except FileNotFoundError:
            raise self._damage(current, "", "the file is missing") from None
        match = _MANIFEST.fullmatch(named)
        if match is None:
            raise self._damage(current, "offset 0", "it names no MANIFEST")
        path = self._directory / match.group(1).decode()
        if not path.exists():
            raise self._damage(current, "offset 0", f"it names {path.name}, which is missing")
        manifest = Manifest()
        self._read(path, int(match.group(2)), manifest.apply, may_be_torn=True)
        if not manifest.is_begun:
            raise self._damage(path, "offset 0", "the MANIFEST is empty")
        for number, size in sorted(manifest.tables.items()):
            table = self._directory / f"{number:06d}.sst"
            try:
                found = table.stat().st_size
            except FileNotFoundError:
                raise self._damage(table, "", "the table file is missing") from None
            if found != size:
                detail = f"the table file has {found} bytes instead of {size}"
                raise self._damage(table, f"offset {min(found, size)}", detail)
        return manifest

    def check_logs(self, manifest: Manifest) -> None:
        """The write-ahead logs that will be replayed."""
        numbers = sorted(
            int(match.group(1))
            for name in _names(self._directory)
            if (match := _LOG.fullmatch(name))
        )
        needed = [number for number in numbers if number >= manifest.log_number]
        if not needed and (manifest.tables or manifest.last_sequence):
            raise self._damage(
                self._log(manifest.log_number), "", "the newest write-ahead log is missing"
            )
        sizes = {number: self._log(number).stat().st_size for number in needed}
        newest = max((number for number in needed if sizes[number]), default=-1)
        batches = BatchOrder(manifest.last_sequence + 1)
        for number in needed:
            self._read(self._log(number), number, batches.follow, may_be_torn=number == newest)

    def cut_tails(self) -> None:
        """Remove the incomplete last records, so that a later check does not report damage."""
        for path, scan in self._tails:
            logger.warning(
                "torn tail of a database log dropped: its last write was never acknowledged",
                file=str(path),
                offset=scan.end_offset,
                bytes=scan.dropped_bytes,
                reason=scan.detail,
            )
            with path.open("r+b") as file:
                file.truncate(scan.end_offset)
                os.fsync(file.fileno())

    def _log(self, number: int) -> Path:
        return self._directory / f"{number:06d}.log"

    def _read(
        self, path: Path, number: int, take: Callable[[bytes], None], *, may_be_torn: bool
    ) -> None:
        """Pass each record to `take`."""
        with path.open("rb") as file:
            descriptor = file.fileno()
            size = os.fstat(descriptor).st_size
            scan = LogScan(lambda at, wanted: os.pread(descriptor, wanted, at), size, number)
            try:
                for offset, record in scan.records():
                    try:
                        take(record)
                    except UnreadableRecord as error:
                        raise self._damage(path, f"offset {offset}", str(error)) from None
            except LogDamage as error:
                where = f"offset {error.offset}, {error.size_bytes} bytes"
                raise self._damage(path, where, error.detail) from None
            except OSError as error:
                raise self._damage(path, "", f"it cannot be read: {error.strerror}") from error
        if scan.torn and not may_be_torn:
            where = f"offset {scan.end_offset}, {scan.dropped_bytes} bytes"
            raise self._damage(path, where, f"{scan.detail}, but a later log was written")
        if scan.torn:
            self._tails.append((path, scan))

    def _damage(self, path: Path, where: str, detail: str) -> DatabaseDamaged:
        return DatabaseDamaged(str(path), where, detail, self._remedy)
