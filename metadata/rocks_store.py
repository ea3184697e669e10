"""The metadata store of one machine: a RocksDB database, every write synced before it returns.

Writes are committed in groups. The caller that gets the write lock applies all operations queued
meanwhile as one synced batch in a worker thread: a thousand topics that load at once cost a handful
of fsyncs, not a thousand. Within a group operations see earlier ones, in the order in which they
were called. A put that is cancelled before its group started has no effect. One that is already in
a group takes effect although its caller does not see the result.

Format: a node is `n` + key (see `node_keys`) -> 8 bytes version, value; a sequence counter is
`s` + path -> 8 bytes next number. Both big-endian.

The database is checked before it is opened, and each of its rows is read once (`rocks/`), because
later deletions rely on this store. Only one process can have it open. A second one is refused with
the name of the directory.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final, TypeVar, final

import trio
from rocksdict import Options, WriteBatch

from metadata.memory_store import MemoryStore, check_deletable, check_version
from metadata.node_keys import after_child_key, child_name, first_child_key, node_key
from metadata.store import (
    MetadataFailed,
    MetadataUnavailable,
    NodeNotFound,
    SessionState,
    VersionConflict,
)
from metadata.watches import Watches
from rocks.database import Database
from rocks.errors import DatabaseDamaged, DatabaseError, DatabaseFull, DatabaseInUse

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from metadata.store import OnChange, OnSession

_Result = TypeVar("_Result")

_NODE: Final = b"n"
_SEQUENCE: Final = b"s"
_NUMBER: Final = Struct(">q")
_READ_THREADS_MAX: Final = 4
_WRITE_BUFFER_BYTES: Final = 8 * 1024 * 1024
_REMEDY: Final = "Restore the metadata directory and the bookie's directories from one backup"


class _Operation:
    """One queued write: the operation on the group's view, and its result."""

    __slots__ = ("apply", "done", "error", "path", "result")

    def __init__(self, path: str, apply: Callable[[_Group], int]) -> None:
        self.path = path
        """The path whose watches are notified."""
        self.apply = apply
        self.done = False
        self.result = 0
        self.error: Exception | None = None


class _Group:
    """The database as the next operation of a group sees it, and the batch that is to be synced."""

    __slots__ = ("_changed", "_database", "batch")

    def __init__(self, database: Database) -> None:
        self._database = database
        self._changed: dict[bytes, bytes | None] = {}
        self.batch = WriteBatch(raw_mode=True)

    def get(self, key: bytes) -> bytes | None:
        if key in self._changed:
            return self._changed[key]
        return self._database.get(key)

    def put(self, key: bytes, value: bytes) -> None:
        self._changed[key] = value
        self.batch.put(key, value)

    def delete(self, key: bytes) -> None:
        self._changed[key] = None
        self.batch.delete(key)

    @property
    def is_empty(self) -> bool:
        return not self._changed


@final
class RocksStore:
    """See the module docstring. Make one with `await RocksStore.open(directory)`."""

    def __init__(self, database: Database) -> None:
        self._database: Database | None = database
        self._pending: list[_Operation] = []
        self._watches = Watches()
        self._ephemeral = MemoryStore()
        """Nodes of the session: they do not outlive the process, so they are not on disk."""
        self._write_lock = trio.Lock()
        self._failure: MetadataFailed | None = None
        self._failed = trio.Event()
        self._read_limiter = trio.CapacityLimiter(_READ_THREADS_MAX)

    @classmethod
    async def open(cls, directory: Path, *, may_create: bool = True) -> RocksStore:
        """Open or create the database. `may_create` False: an absent one is damage, because the
        data it described still exists.

        Raises: MetadataUnavailable.
        """

        def open_database() -> Database:
            options = Options(raw_mode=True)
            options.set_write_buffer_size(_WRITE_BUFFER_BYTES)
            options.set_keep_log_file_num(2)
            options.set_max_open_files(256)
            database = Database.open(directory, options, remedy=_REMEDY, may_create=may_create)
            try:
                database.verify()
            except BaseException:
                database.close()
                raise
            return database

        try:
            return cls(await trio.to_thread.run_sync(open_database))
        except DatabaseInUse as error:
            raise MetadataUnavailable(f"{error}: is another broker using it?") from error
        except DatabaseError as error:
            raise MetadataUnavailable(str(error)) from error

    @property
    def damage(self) -> str:
        """See MetadataStore."""
        return "" if self._database is None else self._database.damage

    @property
    def session_state(self) -> SessionState:
        """Always live: the session is this process."""
        return SessionState.LIVE

    def watch_session(self, on_change: OnSession) -> Callable[[], None]:
        """See MetadataStore. There is nothing to report."""
        del on_change
        return lambda: None

    async def run(self) -> None:
        """Wait until a write has failed for good: everything but a lack of space.

        Raises: MetadataFailed.
        """
        await self._failed.wait()
        assert self._failure is not None
        raise self._failure

    async def sync(self) -> None:
        """There is one copy only."""
        await trio.lowlevel.checkpoint()

    async def get(self, path: str) -> tuple[bytes, int] | None:
        """Value and version, or None."""
        key = _NODE + node_key(path)
        ephemeral = await self._ephemeral.get(path)
        if ephemeral is not None:
            return ephemeral
        stored = await self._read(lambda: self._open_database().get(key))
        return None if stored is None else _split(stored)

    async def put(self, path: str, value: bytes, expected_version: int | None) -> int:
        """Write with compare-and-set. Durable when this returns the new version."""
        key = _NODE + node_key(path)
        if await self._ephemeral.get(path) is not None:
            return await self._ephemeral.put(path, value, expected_version)

        def apply(group: _Group) -> int:
            stored = group.get(key)
            current = None if stored is None else _split(stored)
            version = check_version(path, current, expected_version)
            group.put(key, _NUMBER.pack(version) + value)
            return version

        return await self._write(path, apply)

    async def delete(self, path: str, expected_version: int | None = None) -> None:
        """Remove one node. Nodes below it stay."""
        key = _NODE + node_key(path)
        if await self._ephemeral.get(path) is not None:
            await self._ephemeral.delete(path, expected_version)
            return

        def apply(group: _Group) -> int:
            stored = group.get(key)
            check_deletable(path, None if stored is None else _split(stored), expected_version)
            group.delete(key)
            return 0

        await self._write(path, apply)

    async def children(self, path: str) -> list[str]:
        """Names directly below, sorted."""
        parent = _NODE + node_key(path)
        names = await self._read(lambda: self._children(parent))
        ephemeral = await self._ephemeral.children(path)
        return sorted({*names, *ephemeral}) if ephemeral else names

    async def exists(self, path: str) -> bool:
        """Whether the node or anything below it exists."""
        key = _NODE + node_key(path)
        if await self._ephemeral.exists(path):
            return True

        def look() -> bool:
            database = self._open_database()
            if database.get(key) is not None:
                return True
            cursor = database.cursor()
            cursor.seek(first_child_key(key))
            return cursor.valid() and child_name(key, cursor.key()) is not None

        return await self._read(look)

    async def put_ephemeral(self, path: str, value: bytes) -> None:
        """Create a node that is deleted with this session."""
        await self._ephemeral.put_ephemeral(path, value)
        try:
            key = _NODE + node_key(path)
            if await self._read(lambda: self._open_database().get(key)) is not None:
                raise VersionConflict(f"{path} exists")
        except BaseException:
            with trio.CancelScope(shield=True):
                await self._ephemeral.delete(path)
            raise

    def watch(self, path: str, on_change: OnChange) -> Callable[[], None]:
        """See MetadataStore."""
        stops = [self._watches.add(path, on_change), self._ephemeral.watch(path, on_change)]

        def stop() -> None:
            for each in stops:
                each()

        return stop

    async def next_sequence(self, path: str) -> int:
        """A number never given before for this path. The counter is durable first."""
        node_key(path)
        key = _SEQUENCE + path.encode()

        def apply(group: _Group) -> int:
            stored = group.get(key)
            number: int = 0 if stored is None else _NUMBER.unpack(stored)[0]
            group.put(key, _NUMBER.pack(number + 1))
            return number

        return await self._write("", apply)

    async def peek_sequence(self, path: str) -> int:
        """The number that `next_sequence` would give."""
        node_key(path)
        key = _SEQUENCE + path.encode()
        stored = await self._read(lambda: self._open_database().get(key))
        return 0 if stored is None else int(_NUMBER.unpack(stored)[0])

    async def aclose(self) -> None:
        """Finish queued writes and release the directory. Safe to call twice."""
        with trio.CancelScope(shield=True):
            async with self._write_lock:
                database, self._database = self._database, None
                try:
                    if database is not None:
                        await trio.to_thread.run_sync(database.close)
                except DatabaseError as error:
                    if self._failure is None:  # else the same error, which `run` raised
                        raise _refusal("closed", error) from error
                finally:
                    await self._ephemeral.aclose()

    async def _read(self, look: Callable[[], _Result]) -> _Result:
        try:
            return await trio.to_thread.run_sync(look, limiter=self._read_limiter)
        except Exception as error:
            raise _refusal("read", error) from error

    async def _write(self, path: str, apply: Callable[[_Group], int]) -> int:
        operation = _Operation(path, apply)
        self._pending.append(operation)
        try:
            async with self._write_lock:
                if not operation.done:
                    operations, self._pending = self._pending, []
                    with trio.CancelScope(shield=True):
                        await trio.to_thread.run_sync(self._commit, operations)
                    if self._failure is not None:
                        self._failed.set()
                    self._tell(operations)
        except trio.Cancelled:
            if operation in self._pending:
                self._pending.remove(operation)
            raise
        if operation.error is not None:
            raise operation.error
        return operation.result

    def _tell(self, operations: list[_Operation]) -> None:
        """Notify of writes that took effect or may have, not of those refused."""
        for operation in operations:
            if operation.path and not isinstance(operation.error, (NodeNotFound, VersionConflict)):
                self._watches.tell(operation.path)

    def _commit(self, operations: list[_Operation]) -> None:
        """In a worker thread: one synced batch. A failed sync fails the whole group."""
        try:
            database = self._open_database()
            group = _Group(database)
            for operation in operations:
                try:
                    operation.result = operation.apply(group)
                except (NodeNotFound, VersionConflict) as error:
                    operation.error = error
                except Exception as error:
                    operation.error = _refusal("written", error)
            if not group.is_empty:
                database.write(group.batch, synced=True)
        except Exception as error:
            if isinstance(error, DatabaseError) and not isinstance(error, DatabaseFull):
                self._failure = self._failure or MetadataFailed(
                    f"the metadata store failed, the broker stops, check the disk: {error}"
                )
            for operation in operations:
                operation.error = operation.error or _refusal("written", error)
        for operation in operations:
            operation.done = True

    def _children(self, parent: bytes) -> list[str]:
        names: list[str] = []
        cursor = self._open_database().cursor()
        cursor.seek(first_child_key(parent))
        while cursor.valid():
            name = child_name(parent, cursor.key())
            if name is None:
                break
            names.append(name.decode())
            cursor.next()
            if cursor.valid() and child_name(parent, cursor.key()) == name:
                cursor.seek(after_child_key(parent, name))
        return sorted(names)

    def _open_database(self) -> Database:
        database = self._database
        if database is None:
            raise MetadataUnavailable("the metadata store is closed")
        return database


def _refusal(done: str, error: Exception) -> MetadataUnavailable:
    if isinstance(error, MetadataUnavailable):
        return error
    if isinstance(error, DatabaseDamaged):
        return MetadataUnavailable(str(error))
    return MetadataUnavailable(
        f"the metadata store cannot be {done}, look at the broker's disk and try again: {error}"
    )


def _split(stored: bytes) -> tuple[bytes, int]:
    version: int = _NUMBER.unpack_from(stored)[0]
    return stored[_NUMBER.size :], version
