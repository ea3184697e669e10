"""MemoryIndex: the entry index as dictionaries, for the in-memory mode and for simulation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bookie.entry_log_format import split_location
from bookie.index import END_KEY, END_LEDGER, unpack_location_key, unpack_u64

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from bookie.index import IndexBatch


class MemoryBatch:
    """Rows to be written together."""

    __slots__ = ("rows",)

    def __init__(self) -> None:
        self.rows: list[tuple[bytes, bytes]] = []

    def put(self, key: bytes, value: bytes) -> None:
        """Add a row."""
        self.rows.append((key, value))

    def __setitem__(self, key: bytes, value: bytes, /) -> None:
        """The same."""
        self.rows.append((key, value))


class MemoryIndex:
    """One dictionary of locations per ledger, and the ledger rows."""

    def __init__(self) -> None:
        self._locations: dict[int, dict[int, int]] = {}
        self._ledgers: dict[int, bytes] = {}
        self._end = 0
        self.damage = ""
        """Never any: there is nothing on disk."""

    def new_batch(self) -> MemoryBatch:
        """An empty batch."""
        return MemoryBatch()

    def write_locations(self, batch: IndexBatch) -> None:
        """Apply a batch."""
        assert isinstance(batch, MemoryBatch)
        for key, value in batch.rows:
            location = unpack_u64(value)[0]
            if key == END_KEY:
                self._end = location
                continue
            ledger_id, entry_id = unpack_location_key(key)
            self._locations.setdefault(ledger_id, {})[entry_id] = location

    def sync(self) -> None:
        """Nothing to do."""

    def sequences(self) -> tuple[int, int]:
        """Nothing is there after a start."""
        return 0, 0

    def location(self, ledger_id: int, entry_id: int) -> int:
        """The location or 0."""
        entries = self._locations.get(ledger_id)
        return entries.get(entry_id, 0) if entries is not None else 0

    def last_entry_id(self, ledger_id: int) -> int:
        """Highest entry id or -1."""
        return max(self._locations.get(ledger_id, {}).copy(), default=-1)

    def entry_ids(self, ledger_id: int) -> Iterator[int]:
        """Ascending entry ids."""
        return iter(sorted(self._locations.get(ledger_id, {}).copy()))

    def ledgers_without_log(self, log_ids: Collection[int]) -> dict[int, set[int]]:
        """See EntryIndex."""
        found: dict[int, set[int]] = {}
        for ledger_id, entries in self._locations.items():
            for log_id in {split_location(each)[0] for each in entries.values()}.difference(
                log_ids
            ):
                found.setdefault(log_id, set()).add(ledger_id)
        return found

    def end_of_logs(self) -> int:
        """The end row."""
        return self._end

    def owners(self) -> tuple[bytes, bytes]:
        """None: an index in memory is never put elsewhere."""
        return b"", b""

    def set_owner(self, owner: bytes) -> None:
        """Nothing to store."""

    def remove_locations(self, ledger_id: int) -> None:
        """Drop a ledger."""
        assert ledger_id != END_LEDGER
        self._locations.pop(ledger_id, None)

    def ledgers(self) -> Iterator[tuple[int, bytes]]:
        """All ledger rows."""
        return iter(list(self._ledgers.items()))

    def write_ledgers(self, rows: dict[int, bytes | None]) -> None:
        """Put or remove ledger rows."""
        for ledger_id, data in rows.items():
            if data is None:
                self._ledgers.pop(ledger_id, None)
            else:
                self._ledgers[ledger_id] = data

    def close(self) -> None:
        """Nothing to release."""
