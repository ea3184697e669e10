"""RocksIndex: the entry index in two RocksDB databases, `locations` and `ledgers`, with the keys
and values of BookKeeper's DbLedgerStorage.

A WriteBatch is applied while holding the interpreter lock, so callers keep batches small (about
256 rows: 0.2 ms). Batches are written without sync; `sync` flushes the write-ahead logs, which
releases the lock while it waits for the disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast, final

from rocksdict import (
    BlockBasedOptions,
    Cache,
    DBCompressionType,
    Options,
    Rdict,
    WriteBatch,
)

from bookie.errors import DiskFailed
from bookie.index import (
    END_KEY,
    ENTRY_ID_MAX,
    FLAGS_LEDGER,
    pack_ledger_key,
    pack_location_key,
    unpack_location_key,
    unpack_u64,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bookie.index import IndexBatch

_BLOCK_CACHE_BYTES = 16 << 20
_WRITE_BUFFER_BYTES = 16 << 20


def _options() -> Options:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_compression_type(DBCompressionType.lz4())
    options.set_write_buffer_size(_WRITE_BUFFER_BYTES)
    options.set_max_write_buffer_number(4)
    options.set_keep_log_file_num(2)
    options.set_max_open_files(256)
    table = BlockBasedOptions()
    table.set_block_size(64 << 10)
    table.set_bloom_filter(10, False)
    table.set_format_version(5)
    table.set_block_cache(Cache(_BLOCK_CACHE_BYTES))
    options.set_block_based_table_factory(table)
    return options


@final
class RocksIndex:
    """Both databases below one directory."""

    def __init__(self, directory: str) -> None:
        try:
            self._locations = Rdict(directory + "/locations", _options())
            self._ledgers = Rdict(directory + "/ledgers", _options())
        except Exception as error:
            raise DiskFailed(f"opening the RocksDB index in {directory}: {error}") from error
        self._ledgers_dirty = False

    def new_batch(self) -> IndexBatch:
        """A RocksDB write batch."""
        batch: IndexBatch = WriteBatch(raw_mode=True)
        return batch

    def write_locations(self, batch: IndexBatch) -> None:
        """Apply without sync."""
        try:
            self._locations.write(cast("WriteBatch", batch))
        except Exception as error:
            raise DiskFailed(f"writing the RocksDB index: {error}") from error

    def sync(self) -> None:
        """Sync the write-ahead logs of both databases."""
        try:
            self._locations.flush_wal(True)
            if self._ledgers_dirty:
                self._ledgers_dirty = False
                self._ledgers.flush_wal(True)
        except Exception as error:
            raise DiskFailed(f"syncing the RocksDB index: {error}") from error

    def location(self, ledger_id: int, entry_id: int) -> int:
        """The location or 0."""
        value = self._locations.get(pack_location_key(ledger_id, entry_id))
        return int(unpack_u64(value)[0]) if value is not None else 0

    def last_entry_id(self, ledger_id: int) -> int:
        """Floor lookup of the highest possible key of the ledger."""
        position = self._locations.iter()
        position.seek_for_prev(pack_location_key(ledger_id, ENTRY_ID_MAX))
        if not position.valid():
            return -1
        ledger, entry_id = unpack_location_key(position.key())
        return int(entry_id) if ledger == ledger_id else -1

    def entry_ids(self, ledger_id: int) -> Iterator[int]:
        """Ascending entry ids."""
        position = self._locations.iter()
        position.seek(pack_location_key(ledger_id, 0))
        while position.valid():
            ledger, entry_id = unpack_location_key(position.key())
            if ledger != ledger_id:
                return
            yield entry_id
            position.next()

    def end_of_logs(self) -> int:
        """The end row."""
        value = self._locations.get(END_KEY)
        return int(unpack_u64(value)[0]) if value is not None else 0

    def remove_locations(self, ledger_id: int) -> None:
        """One range deletion."""
        self._locations.delete_range(
            pack_location_key(ledger_id, 0), pack_location_key(ledger_id + 1, 0)
        )

    def ledgers(self) -> Iterator[tuple[int, bytes]]:
        """All ledger rows, without BookKeeper's flags row."""
        for key, value in self._ledgers.items():
            ledger_id = int.from_bytes(cast("bytes", key), "big", signed=True)
            if ledger_id != FLAGS_LEDGER:
                yield ledger_id, cast("bytes", value)

    def write_ledgers(self, rows: dict[int, bytes | None]) -> None:
        """One batch."""
        batch = WriteBatch(raw_mode=True)
        for ledger_id, data in rows.items():
            if data is None:
                batch.delete(pack_ledger_key(ledger_id))
            else:
                batch.put(pack_ledger_key(ledger_id), data)
        self._ledgers_dirty = True
        self._ledgers.write(batch)

    def close(self) -> None:
        """Close both databases."""
        self._locations.close()
        self._ledgers.close()
