"""The index on the simulated disk: rows that were not synced are lost with the power."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, final

from bookie.index_memory import MemoryBatch, MemoryIndex
from bookie.testing.sim_disk import Power, PowerLost

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Collection, Iterator

    from bookie.index import IndexBatch

    Operation = Callable[[MemoryIndex], None]


@final
class _IndexLog:
    """The writes to one directory's index, in order, and how many of them are durable."""

    def __init__(self) -> None:
        self.locations: list[Operation] = []
        self.ledgers: list[Operation] = []
        self.durable_locations = 0
        self.durable_ledgers = 0


@final
class SimIndex:
    """An entry index whose unsynced writes survive as a prefix."""

    def __init__(self, log: _IndexLog, power: Power) -> None:
        self._log = log
        self._power = power
        self.damage = ""
        self._index = MemoryIndex()
        for operation in (*log.locations, *log.ledgers):
            operation(self._index)

    def _record(self, operations: list[Operation], operation: Operation) -> None:
        with self._power.lock:
            off = self._power.spend()
            operations.append(operation)
            operation(self._index)
            if off:
                raise PowerLost("power lost writing the index")

    def new_batch(self) -> MemoryBatch:
        """A batch."""
        return MemoryBatch()

    def write_locations(self, batch: IndexBatch) -> None:
        """Visible at once."""
        assert isinstance(batch, MemoryBatch)
        kept = MemoryBatch()
        kept.rows = list(batch.rows)
        self._record(self._log.locations, partial(MemoryIndex.write_locations, batch=kept))

    def sync(self) -> None:
        """Everything becomes durable, locations first."""
        for which in ("locations", "ledgers"):
            with self._power.lock:
                if self._power.spend():
                    raise PowerLost("power lost syncing the index")
                setattr(self._log, f"durable_{which}", len(getattr(self._log, which)))

    def sequences(self) -> tuple[int, int]:
        """See EntryIndex."""
        return len(self._log.locations), len(self._log.ledgers)

    def location(self, ledger_id: int, entry_id: int) -> int:
        """See EntryIndex."""
        self._power.check()
        return self._index.location(ledger_id, entry_id)

    def last_entry_id(self, ledger_id: int) -> int:
        """See EntryIndex."""
        return self._index.last_entry_id(ledger_id)

    def entry_ids(self, ledger_id: int) -> Iterator[int]:
        """See EntryIndex."""
        return self._index.entry_ids(ledger_id)

    def ledgers_without_log(self, log_ids: Collection[int]) -> dict[int, set[int]]:
        """See EntryIndex."""
        return self._index.ledgers_without_log(log_ids)

    def end_of_logs(self) -> int:
        """See EntryIndex."""
        return self._index.end_of_logs()

    def owners(self) -> tuple[bytes, bytes]:
        """See EntryIndex."""
        return self._index.owners()

    def set_owner(self, owner: bytes) -> None:
        """See EntryIndex."""

    def remove_locations(self, ledger_id: int) -> None:
        """See EntryIndex."""
        self._record(
            self._log.locations, partial(MemoryIndex.remove_locations, ledger_id=ledger_id)
        )

    def ledgers(self) -> Iterator[tuple[int, bytes]]:
        """See EntryIndex."""
        return self._index.ledgers()

    def write_ledgers(self, rows: dict[int, bytes | None]) -> None:
        """See EntryIndex."""
        self._record(self._log.ledgers, partial(MemoryIndex.write_ledgers, rows=dict(rows)))

    def close(self) -> None:
        """A clean close loses nothing (RocksDB's log is with the operating system)."""


@final
class SimIndexes:
    """The indexes of all directories of one machine; `open` is an index factory."""

    def __init__(self, power: Power) -> None:
        self._power = power
        self._logs: dict[str, _IndexLog] = {}

    def open(self, directory: str) -> SimIndex:
        """The index of a directory."""
        return SimIndex(self._logs.setdefault(directory, _IndexLog()), self._power)

    def restart(self, rng: random.Random, power: Power) -> SimIndexes:
        """The indexes that a machine finds after the power loss."""
        indexes = SimIndexes(power)
        for directory, log in sorted(self._logs.items()):
            survivor = indexes._logs[directory] = _IndexLog()
            kept = rng.randint(log.durable_locations, len(log.locations))
            survivor.locations = log.locations[:kept]
            survivor.durable_locations = kept
            kept = rng.randint(log.durable_ledgers, len(log.ledgers))
            survivor.ledgers = log.ledgers[:kept]
            survivor.durable_ledgers = kept
        return indexes
