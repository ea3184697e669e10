"""Reads entries that are not in memory: in runs, ahead of the reader, each run once.

Consumers read a backlog front to back, in pieces far smaller than a bookie serves efficiently. A
read therefore fetches a whole run (`read_ahead_size_bytes`) into the cache of the topic. Once a
quarter of the run is used, the next one is fetched in the background, so storage and dispatch work
at the same time, and all subscriptions at about the same place share the runs. A read of a few
single entries (redelivery) that continues no earlier read fetches only those entries.

Invariants: at most one fetch per starting position is in progress, and other readers wait for it.
There are at most `_PREFETCHES_MAX` prefetches per topic. Fetched entries count against the cache
bound of the broker. A run of thousands of small entries is made in slices.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import structlog
import trio

from broker.ground.entry import data_bytes, entries_read
from broker.managed_ledger.entry_cache import ENTRY_OVERHEAD_BYTES
from ledgers.errors import LedgerError
from protocol.errors import BrokerError, ServerError

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.ground.entry import Entry
    from broker.managed_ledger.entry_cache import TopicCache
    from broker.managed_ledger.kept_readers import LedgerReaders
    from broker.managed_ledger.ledger_table import LedgerTable
    from protocol.position import Position
    from runtime.clock import Clock

_log = structlog.get_logger()

_RUN_ENTRIES_MAX: Final = 5_000
ENTRIES_PER_SLICE: Final = 1_000
"""Made of what was read in one slice: a quarter of a millisecond."""
_SEQUENTIAL_COUNT_MIN: Final = 16
_PREFETCHES_MAX: Final = 4
_SMALL_READ_BYTES: Final = 64 * 1024


@final
class BacklogReader:
    """The read path of one topic, used for entries that are not in the cache."""

    def __init__(
        self,
        name: str,
        table: LedgerTable,
        cache: TopicCache,
        readers: LedgerReaders,
        spawn: Callable[..., None],
        clock: Clock,
        run_size_bytes: int,
    ) -> None:
        self._name = name
        self._table = table
        self._cache = cache
        self._readers = readers
        self._spawn = spawn
        self._clock = clock
        self._run_size_bytes = run_size_bytes
        self._fetches: dict[Position, trio.Event] = {}
        self._prefetches = 0
        self._expected: Position | None = None

    @property
    def is_busy(self) -> bool:
        """Whether something is being read."""
        return bool(self._fetches)

    def read_nowait(self, position: Position, count_max: int, bytes_max: int) -> list[Entry] | None:
        """See `ReadableLedger.read_nowait`."""
        table = self._table
        if position > table.last_confirmed:
            return []
        ledger_id, entry_id = table.at_or_after(position)
        cached = self._cache.get(ledger_id, entry_id, count_max, bytes_max)
        if cached is None:
            if table.at_or_after(position) > table.last_confirmed:
                return []
            return None
        run = self._cache.ahead_run(ledger_id, entry_id)
        if run is not None and 4 * (entry_id + len(cached)) >= 3 * run[0] + run[1]:
            self._prefetch((ledger_id, run[1] - 1))
        return cached

    async def read(self, position: Position, count_max: int, bytes_max: int) -> list[Entry]:
        """See `ReadableLedger.read`."""
        while True:
            entries = self.read_nowait(position, count_max, bytes_max)
            if entries is not None:
                return entries
            first = self._table.at_or_after(position)
            try:
                if count_max >= _SEQUENTIAL_COUNT_MIN or first == self._expected:
                    await self._fetch(first, _RUN_ENTRIES_MAX, self._run_size_bytes)
                    continue
                few = await self._read_run(first, count_max, min(bytes_max, _SMALL_READ_BYTES))
            except BrokerError:
                if self._table.row_of(first[0]) is not None:
                    raise
                continue  # trimmed meanwhile: the next entry is in a later ledger
            self._expected = self._table.next_position(few[-1].position)
            return few

    def _prefetch(self, after: Position) -> None:
        table = self._table
        first = table.next_position(after)
        self._expected = first
        if (
            first > table.last_confirmed
            or first in self._fetches
            or self._prefetches >= _PREFETCHES_MAX
            or self._cache.has(*first)
        ):
            return
        self._prefetches += 1
        self._fetches[first] = trio.Event()
        self._spawn(self._fetch_ahead, first)

    async def _fetch_ahead(self, first: Position) -> None:
        event = self._fetches[first]
        try:
            await self._load(first, _RUN_ENTRIES_MAX, self._run_size_bytes)
        except Exception as error:
            # The reader that arrives there tries again and gets the error.
            is_known = isinstance(error, BrokerError)
            _log.warning(
                "read_ahead_failed",
                topic=self._name,
                position=first,
                error=str(error),
                exc_info=None if is_known else error,
            )
        finally:
            self._prefetches -= 1
            del self._fetches[first]
            event.set()

    async def _fetch(self, first: Position, count_max: int, bytes_max: int) -> None:
        event = self._fetches.get(first)
        if event is not None:
            await event.wait()
            return
        event = self._fetches[first] = trio.Event()
        try:
            await self._load(first, count_max, bytes_max)
        finally:
            del self._fetches[first]
            event.set()

    async def _load(self, first: Position, count_max: int, bytes_max: int) -> None:
        entries = await self._read_run(first, count_max, bytes_max)
        size_bytes = data_bytes(entries) + ENTRY_OVERHEAD_BYTES * len(entries)
        self._cache.insert_ahead(*first, entries, size_bytes, self._clock.now())

    async def _read_run(self, first: Position, count_max: int, bytes_max: int) -> list[Entry]:
        ledger_id, entry_id = first
        row = self._table.row_of(ledger_id)
        if row is None:
            raise BrokerError(
                ServerError.PersistenceError, f"ledger {ledger_id} was deleted while being read"
            )
        last = min(row.entries, entry_id + count_max) - 1
        try:
            reader = await self._readers.reader_of(row)
            payloads = await reader.read(entry_id, last, bytes_max)
        except LedgerError as error:
            raise BrokerError(ServerError.PersistenceError, str(error)) from error
        entries: list[Entry] = []
        for start in range(0, len(payloads), ENTRIES_PER_SLICE):
            if start:
                await trio.lowlevel.checkpoint()
            part = payloads[start : start + ENTRIES_PER_SLICE]
            entries += entries_read(ledger_id, entry_id + start, part)
        self._cache.count_misses(len(entries), data_bytes(entries))
        return entries
