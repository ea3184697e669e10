"""Database: one RocksDB database that was checked before it was opened. All use of RocksDB is here.

Opening locks the directory (flock, which also detects a second opening in this process), runs
`check_database`, and then lets RocksDB recover in its strictest mode. Errors of reads and writes
are DatabaseError. When an iterator stops, it is checked whether it stopped at the end or at damage.

The first damage found while the database is in use is kept in `damage`, for the health check.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, cast, final

import structlog
from rocksdict import DBRecoveryMode, Options, Rdict, ReadOptions, WriteOptions

from rocks import check
from rocks.errors import DatabaseDamaged, DatabaseError, DatabaseFull, DatabaseInUse

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rocksdict import RdictIter, WriteBatch

logger = structlog.get_logger()

_LOCK: Final = "LOCK"
_DAMAGE: Final = "Corruption"
"""Prefix of RocksDB's messages about damage."""
_FULL: Final = "IO error: No space left on device"
_BLAME: Final = re.compile(r"\s*The file \S*MANIFEST-\d+ may be corrupted\.?")
_NAMES_MAX: Final = 20


@final
class Database:
    """See the module docstring. `get` and cursors from any thread, everything else from one."""

    def __init__(self, rocks: Rdict, directory: Path, lock: int, remedy: str) -> None:
        self._rocks: Rdict | None = rocks
        self._directory = directory
        self._lock = lock
        self._remedy = remedy
        self._unsynced = WriteOptions()
        self._synced = WriteOptions()
        self._synced.sync = True
        self.damage = ""
        """The first damage found, as a line for the user; empty: none."""
        self._is_full = False
        """The last write found no space."""

    @classmethod
    def open(
        cls, directory: Path, options: Options, *, remedy: str, may_create: bool = True
    ) -> Database:
        """Check and open, or create. `remedy` is the sentence that says what to do about damage.

        Raises: DatabaseDamaged, DatabaseInUse, DatabaseError.
        """
        if not may_create and not check.exists(directory):
            raise DatabaseDamaged(str(directory), "", "the database is missing", remedy)
        try:
            directory.mkdir(parents=True, exist_ok=True)
            lock = lock_database(directory)
        except OSError as error:
            raise _unopened(directory, error) from error
        try:
            try:
                check.check_database(directory, remedy)
            except OSError as error:
                raise _unopened(directory, error) from error
            options.create_if_missing(True)
            options.set_paranoid_checks(True)
            options.set_wal_recovery_mode(DBRecoveryMode.absolute_consistency())
            try:
                rocks = Rdict(str(directory), options)
            except Exception as error:
                raise _failure("opening", directory, _located(error, directory), remedy) from error
        except BaseException:
            os.close(lock)
            raise
        return cls(rocks, directory, lock, remedy)

    def get(self, key: bytes) -> bytes | None:
        """The value of a key. Raises: DatabaseError."""
        try:
            value: bytes | None = self._open_rocks().get(key)
        except Exception as error:
            raise self._failed("reading", error) from error
        return value

    def write(self, batch: WriteBatch, *, synced: bool = False) -> None:
        """Apply a batch at once. Raises: DatabaseError."""
        try:
            self._open_rocks().write(batch, self._synced if synced else self._unsynced)
        except Exception as error:
            raise self._failed("writing", error) from error
        self._is_full = False

    def remove_range(self, first: bytes, end: bytes) -> None:
        """Remove the keys from `first` on, before `end`. Raises: DatabaseError."""
        try:
            self._open_rocks().delete_range(first, end)
        except Exception as error:
            raise self._failed("writing", error) from error

    def sync(self) -> None:
        """Make everything written durable. Raises: DatabaseError."""
        try:
            self._open_rocks().flush_wal(True)
        except Exception as error:
            raise self._failed("syncing", error) from error

    def sequence(self) -> int:
        """The number of the last change. Changes that were synced are there after any crash, so
        this never becomes lower. Raises: DatabaseError."""
        try:
            return int(self._open_rocks().latest_sequence_number())
        except Exception as error:
            raise self._failed("reading", error) from error

    def cursor(self) -> Cursor:
        """A cursor over the current rows. Raises: DatabaseError."""
        try:
            return Cursor(self, self._open_rocks().iter())
        except Exception as error:
            raise self._failed("reading", error) from error

    def items(self, first: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """All rows from `first` on. Raises: DatabaseError."""
        try:
            rows = self._open_rocks().iter()
            rows.seek(first)
            while rows.valid():
                yield cast("bytes", rows.key()), cast("bytes", rows.value())
                rows.next()
            rows.status()  # damage is not the end of the rows
        except Exception as error:
            raise self._failed("reading", error) from error

    def verify(self) -> int:
        """Read every block of every table file. Returns the number of rows.

        Raises: DatabaseDamaged.
        """
        options = ReadOptions()
        options.set_readahead_size(1 << 20)
        rows = 0
        try:
            rocks_cursor = self._open_rocks().iter(options)
            rocks_cursor.seek_to_first()
            while rocks_cursor.valid():
                rows += 1
                rocks_cursor.next()
            rocks_cursor.status()
        except Exception as error:
            raise self._failed("reading", error) from error
        return rows

    def close(self) -> None:
        """Release everything. Safe to call twice.

        RocksDB reports here the damage that its own compaction has met. Nothing is lost by that:
        rows that are in no table file yet are in the write-ahead log, for the next start.

        Raises: DatabaseError, after everything was released.
        """
        rocks, self._rocks = self._rocks, None
        if rocks is not None:
            try:
                rocks.close()
            except Exception as error:
                failure = self._failed("closing", error)
                if not self._is_full:
                    raise failure from error
                logger.warning(
                    "database closed on a full disk: only writes that were refused are not in it",
                    directory=str(self._directory),
                    error=str(error),
                )
            finally:
                os.close(self._lock)

    def _open_rocks(self) -> Rdict:
        rocks = self._rocks
        if rocks is None:
            raise DatabaseError(f"the database {self._directory} is closed")
        return rocks

    def _failed(self, doing: str, error: Exception) -> DatabaseError:
        if isinstance(error, DatabaseError):
            return error
        failure = _failure(doing, self._directory, error, self._remedy)
        if isinstance(failure, DatabaseDamaged) and not self.damage:
            self.damage = str(failure)
        self._is_full = self._is_full or isinstance(failure, DatabaseFull)
        return failure


@final
class Cursor:
    """A position among the rows. It is at a row while `valid()`. Every call may raise
    DatabaseError, and stopping at damage is not the end of the rows."""

    __slots__ = ("_database", "_rows")

    def __init__(self, database: Database, rows: RdictIter) -> None:
        self._database = database
        self._rows = rows

    def seek(self, key: bytes) -> None:
        """Move to the first row at `key` or after it."""
        with self._reading():
            self._rows.seek(key)

    def seek_for_prev(self, key: bytes) -> None:
        """Move to the last row at `key` or before it."""
        with self._reading():
            self._rows.seek_for_prev(key)

    def next(self) -> None:
        """Move to the next row."""
        with self._reading():
            self._rows.next()

    def valid(self) -> bool:
        """Whether the cursor is at a row."""
        if self._rows.valid():
            return True
        with self._reading():
            self._rows.status()
        return False

    def key(self) -> bytes:
        """Key of the row."""
        return cast("bytes", self._rows.key())

    def value(self) -> bytes:
        """Value of the row."""
        with self._reading():
            return cast("bytes", self._rows.value())

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            raise self._database._failed("reading", error) from error


def lock_database(directory: Path) -> int:
    """A descriptor that holds the directory's lock until it is closed.

    RocksDB's own lock is taken only with the database, and a process that closes any descriptor of
    that file loses it. So it is checked only if no other part of this process can hold it.

    Raises: DatabaseInUse.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if (directory / _LOCK).exists():
            with (directory / _LOCK).open("r+b") as file:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        if error.errno in (errno.EACCES, errno.EAGAIN) and error.filename is None:  # not of open
            raise DatabaseInUse(f"the database {directory} is in use by another process") from None
        raise
    return descriptor


def _located(error: Exception, directory: Path) -> Exception:
    """RocksDB blames the MANIFEST, which was verified, for a table file that cannot be opened."""
    text = _BLAME.sub("", str(error))
    if text.startswith(_DAMAGE) and ".sst" not in text:
        names = sorted(path.name for path in directory.glob("*.sst"))
        shown = ", ".join(names[:_NAMES_MAX]) + (", ..." if len(names) > _NAMES_MAX else "")
        text = f"{text.rstrip('. ')}, in one of the table files {shown}"
    return Exception(text)


def _unopened(directory: Path, error: OSError) -> DatabaseError:
    return DatabaseError(f"cannot open {error.filename or directory}: {error.strerror}")


def _failure(doing: str, directory: Path, error: Exception, remedy: str) -> DatabaseError:
    text = str(error)
    if text.startswith(_DAMAGE):
        return DatabaseDamaged(str(directory), "", text.rstrip(". "), remedy)
    if text.startswith(_FULL):
        again = " and start again" if doing == "opening" else ""
        return DatabaseFull(f"{doing} the database {directory}: {text}; free some space{again}")
    return DatabaseError(f"{doing} the database {directory}: {text}")
