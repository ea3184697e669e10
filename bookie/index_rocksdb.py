"""RocksIndex: the entry index in two RocksDB databases, `locations` and `ledgers`, with the keys
and values of BookKeeper's DbLedgerStorage.

A WriteBatch is applied while holding the interpreter lock, so callers keep batches small (about
256 rows: 0.2 ms). Batches are written without sync; `sync` flushes the write-ahead logs, which
releases the lock while it waits for the disk.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast, final

from rocksdict import BlockBasedOptions, Cache, DBCompressionType, Options, WriteBatch

from bookie.config import INDEX_BLOCK_CACHE_BYTES
from bookie.entry_log_format import location_of, split_location
from bookie.errors import BookieRefusesToStart, DiskFailed, DiskFull, IndexUnreadable
from bookie.index import (
    END_KEY,
    ENTRY_ID_MAX,
    FLAGS_LEDGER,
    OWNER_KEY,
    OWNER_LEDGER,
    pack_ledger_key,
    pack_location_key,
    pack_u64,
    unpack_location_key,
    unpack_u64,
)
from rocks.database import Database
from rocks.errors import DatabaseError, DatabaseFull

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from bookie.index import IndexBatch

LOCATIONS: Final = "locations"
LEDGERS: Final = "ledgers"
REBUILD: Final = "index.rebuild"
"""Directory of a rebuild that has not ended (`index_rebuild`)."""
REMEDY: Final = (
    "Rebuild the index from the entry logs and journals (vela bookie rebuild-index), "
    "or restore the bookie's directories from a backup"
)
_LOG_ID_SIZE: Final = 4
"""A location begins with so many bytes of its log id."""
_OWNER_HEAD: Final = b"\x08\0\x10\0\x1a"
"""LedgerData up to the length of the master key: deleted, not fenced."""
_WRITE_BUFFER_BYTES: Final = 32 << 20
"""500,000 locations, which then become a table. Up to three of them are in memory."""
_TABLES_BEFORE_COMPACTION: Final = 8
_TABLE_BYTES: Final = 8 << 20
"""The size of a table of the first level; each deeper level has twice as much. A ledger is appended
to, so a compaction rewrites the last tables of the ledgers that were written, and others only if
they are large."""


def _options(block_cache_bytes: int) -> Options:
    options = Options(raw_mode=True)
    options.set_compression_type(DBCompressionType.lz4())
    options.set_write_buffer_size(_WRITE_BUFFER_BYTES)
    options.set_max_write_buffer_number(3)
    options.set_level_zero_file_num_compaction_trigger(_TABLES_BEFORE_COMPACTION)
    options.set_target_file_size_base(_TABLE_BYTES)
    options.set_target_file_size_multiplier(2)
    options.set_keep_log_file_num(2)
    options.set_max_open_files(256)
    table = BlockBasedOptions()
    table.set_block_size(64 << 10)
    table.set_bloom_filter(10, False)
    table.set_format_version(5)
    table.set_block_cache(Cache(block_cache_bytes))
    options.set_block_based_table_factory(table)
    return options


def open_index_database(
    path: Path, *, may_create: bool, block_cache_bytes: int = INDEX_BLOCK_CACHE_BYTES
) -> Database:
    """`locations` or `ledgers` of a directory.

    Raises: DatabaseError.
    """
    return Database.open(path, _options(block_cache_bytes), remedy=REMEDY, may_create=may_create)


@final
class RocksIndex:
    """Both databases below one directory."""

    def __init__(self, directory: str, block_cache_bytes: int = INDEX_BLOCK_CACHE_BYTES) -> None:
        """Check and open both. They are created only if there is no entry log yet.
        `block_cache_bytes`: of each of them.

        Raises: BookieRefusesToStart.
        """
        place = Path(directory)
        if (place / REBUILD).exists():
            raise BookieRefusesToStart(
                f"{place / REBUILD}: a rebuild of the index was interrupted. Run it again: "
                "vela bookie rebuild-index"
            )
        may_create = not any(place.glob("*.log"))
        try:
            opened = partial(
                open_index_database, may_create=may_create, block_cache_bytes=block_cache_bytes
            )
            self._locations = opened(place / LOCATIONS)
            try:
                self._ledgers = opened(place / LEDGERS)
            except BaseException:
                self._locations.close()
                raise
        except DatabaseError as error:
            raise BookieRefusesToStart(str(error)) from error
        self._ledgers_dirty = False

    @property
    def damage(self) -> str:
        """See EntryIndex."""
        return self._locations.damage or self._ledgers.damage

    def new_batch(self) -> IndexBatch:
        """A RocksDB write batch."""
        batch: IndexBatch = WriteBatch(raw_mode=True)
        return batch

    def write_locations(self, batch: IndexBatch) -> None:
        """Apply without sync."""
        try:
            self._locations.write(cast("WriteBatch", batch))
        except DatabaseError as error:
            raise _unwritten(error) from error

    def sync(self) -> None:
        """Sync the write-ahead logs of both databases."""
        try:
            self._locations.sync()
            if self._ledgers_dirty:
                self._ledgers_dirty = False
                self._ledgers.sync()
        except DatabaseError as error:
            raise DiskFailed(f"the index cannot be synced: {error}") from error

    def sequences(self) -> tuple[int, int]:
        """RocksDB's sequence numbers."""
        try:
            return self._locations.sequence(), self._ledgers.sequence()
        except DatabaseError as error:
            raise IndexUnreadable(str(error)) from error

    def location(self, ledger_id: int, entry_id: int) -> int:
        """The location or 0."""
        return self._number(pack_location_key(ledger_id, entry_id))

    def last_entry_id(self, ledger_id: int) -> int:
        """Floor lookup of the highest possible key of the ledger."""
        try:
            cursor = self._locations.cursor()
            cursor.seek_for_prev(pack_location_key(ledger_id, ENTRY_ID_MAX))
            if not cursor.valid():
                return -1
            ledger, entry_id = unpack_location_key(cursor.key())
        except DatabaseError as error:
            raise IndexUnreadable(str(error)) from error
        return int(entry_id) if ledger == ledger_id else -1

    def entry_ids(self, ledger_id: int) -> Iterator[int]:
        """Ascending entry ids."""
        try:
            for key, _value in self._locations.items(pack_location_key(ledger_id, 0)):
                ledger, entry_id = unpack_location_key(key)
                if ledger != ledger_id:
                    return
                yield entry_id
        except DatabaseError as error:
            raise IndexUnreadable(str(error)) from error

    def ledgers_without_log(self, log_ids: Collection[int]) -> dict[int, set[int]]:
        """One pass over `locations`."""
        found: dict[int, set[int]] = {}
        present = {pack_u64(location_of(log_id, 0))[:_LOG_ID_SIZE] for log_id in log_ids}
        try:
            for key, value in self._locations.items():
                if value[:_LOG_ID_SIZE] in present:
                    continue
                ledger_id = unpack_location_key(key)[0]
                if ledger_id >= 0:
                    log_id = split_location(int(unpack_u64(value)[0]))[0]
                    found.setdefault(log_id, set()).add(ledger_id)
        except DatabaseError as error:
            raise IndexUnreadable(str(error)) from error
        return found

    def end_of_logs(self) -> int:
        """The end row."""
        return self._number(END_KEY)

    def owners(self) -> tuple[bytes, bytes]:
        """The owners that both databases name."""
        try:
            row = self._ledgers.get(pack_ledger_key(OWNER_LEDGER)) or b""
            return self._locations.get(OWNER_KEY) or b"", row[len(_OWNER_HEAD) + 1 :]
        except DatabaseError as error:
            raise IndexUnreadable(str(error)) from error

    def set_owner(self, owner: bytes) -> None:
        """One row each."""
        batch = self.new_batch()
        batch.put(OWNER_KEY, owner)
        self.write_locations(batch)
        self.write_ledgers({OWNER_LEDGER: _OWNER_HEAD + bytes((len(owner),)) + owner})
        self.sync()

    def remove_locations(self, ledger_id: int) -> None:
        """One range deletion."""
        first = pack_location_key(ledger_id, 0)
        try:
            self._locations.remove_range(first, pack_location_key(ledger_id + 1, 0))
        except DatabaseError as error:
            raise _unwritten(error) from error

    def ledgers(self) -> Iterator[tuple[int, bytes]]:
        """All ledger rows, without BookKeeper's flags row and the owner's."""
        try:
            for key, value in self._ledgers.items():
                ledger_id = int.from_bytes(key, "big", signed=True)
                if ledger_id not in (FLAGS_LEDGER, OWNER_LEDGER):
                    yield ledger_id, value
        except DatabaseError as error:
            raise IndexUnreadable(str(error)) from error

    def write_ledgers(self, rows: dict[int, bytes | None]) -> None:
        """One batch."""
        batch = WriteBatch(raw_mode=True)
        for ledger_id, data in rows.items():
            if data is None:
                batch.delete(pack_ledger_key(ledger_id))
            else:
                batch.put(pack_ledger_key(ledger_id), data)
        try:
            self._ledgers.write(batch)
        except DatabaseError as error:
            raise _unwritten(error) from error
        self._ledgers_dirty = True

    def close(self) -> None:
        """Close both databases.

        Raises: IndexUnreadable: one of them is damaged; both are closed.
        """
        try:
            try:
                self._locations.close()
            finally:
                self._ledgers.close()
        except DatabaseError as error:
            raise IndexUnreadable(str(error)) from error

    def _number(self, key: bytes) -> int:
        try:
            value = self._locations.get(key)
        except DatabaseError as error:
            raise IndexUnreadable(str(error)) from error
        return int(unpack_u64(value)[0]) if value is not None else 0


def _unwritten(error: DatabaseError) -> DiskFull | DiskFailed:
    """A write that found no space changed nothing, and RocksDB goes on when there is some."""
    if isinstance(error, DatabaseFull):
        return DiskFull(f"the index cannot be written: {error}")
    return DiskFailed(f"the index cannot be written: {error}")
