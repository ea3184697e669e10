"""A database that is only looked at: nothing in its directory changes, not even a file's time.

RocksDB, and the library around it, write small files of their own wherever they open a database. So
they open a directory of links to its files, in a temporary place. The directory itself is locked
for as long, which fails while a process has the database open.

Only who names a remedy has the files checked beforehand. A torn tail of the write-ahead log is left
out.
"""

from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING, Final, final

from rocksdict import AccessType, DBRecoveryMode, Options, Rdict

from rocks import check
from rocks.database import lock_database
from rocks.errors import DatabaseError, DatabaseInUse

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_OWN_FILES: Final = ("LOCK", "LOG", "rocksdict-config.json")
"""Prefixes of what an opening writes."""


@final
class ReadOnlyDatabase:
    """See the module docstring."""

    def __init__(self, directory: Path, *, remedy: str = "") -> None:
        """`remedy`: what to do about damage, where a part of the rows would be of no use.

        Raises: DatabaseInUse, DatabaseError.
        """
        self._directory = directory
        if not check.exists(directory):
            raise DatabaseError(f"{directory} is not a database")
        try:
            self._lock = lock_database(directory)
        except DatabaseInUse as error:
            raise DatabaseInUse(f"{error}: stop the process that has it open first") from error
        except OSError as error:
            raise DatabaseError(f"{directory}: {error.strerror}") from error
        self._links = tempfile.TemporaryDirectory(prefix="vela-links-")
        try:
            if remedy:
                check.refuse_damaged(directory, remedy)
            self._rocks = self._open()
        except BaseException:
            self._release()
            raise

    def _open(self) -> Rdict:
        for name in os.listdir(self._directory):
            if not name.startswith(_OWN_FILES):
                os.symlink(self._directory.resolve() / name, f"{self._links.name}/{name}")
        options = Options(raw_mode=True)
        options.create_if_missing(False)
        options.set_paranoid_checks(True)
        options.set_max_open_files(256)
        options.set_wal_recovery_mode(DBRecoveryMode.tolerate_corrupted_tail_records())
        try:
            return Rdict(self._links.name, options, access_type=AccessType.read_only())
        except Exception as error:
            raise self._failed(error) from error

    def get(self, key: bytes) -> bytes | None:
        """The value of a key. Raises: DatabaseError."""
        try:
            value: bytes | None = self._rocks.get(key)
        except Exception as error:
            raise self._failed(error) from error
        return value

    def items(self, first: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """All rows from `first` on. Raises: DatabaseError: damage is not the end of the rows."""
        try:
            rows = self._rocks.iter()
            rows.seek(first)
            while rows.valid():
                yield rows.key(), rows.value()
                rows.next()
            rows.status()
        except Exception as error:
            raise self._failed(error) from error

    def close(self) -> None:
        """Once."""
        self._rocks.close()
        self._release()

    def _release(self) -> None:
        self._links.cleanup()
        os.close(self._lock)

    def _failed(self, error: Exception) -> DatabaseError:
        text = str(error).replace(self._links.name, str(self._directory))
        return DatabaseError(f"{self._directory}: {text}")
