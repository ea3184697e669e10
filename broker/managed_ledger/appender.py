"""The append path of one topic: order, durability, and the change from one ledger to the next.

Entries get their position when they are appended. They are reported when they are durable, in
order, one call per group. A ledger is replaced by a new one ("rolled") when it is full or old, and
when writing to it failed. Meanwhile appends queue up. After a failure the ledger is closed after
its last confirmed entry, and all unconfirmed entries are appended again to the new ledger. The
positions of unconfirmed entries change then; those of confirmed ones never do.

States: OPEN (there is a writer), ROLLING (a task is replacing the ledger; appends queue), BROKEN
(rolling failed too often: appends fail at once, and one starts an attempt when that is due, see
`roll_attempts`), and the final states FENCED (another broker owns the topic, or a fault in this
broker interrupted the append of a run), TERMINATED, CLOSED.

Invariants: `table.last_confirmed` moves only here and only forward. A new ledger is in the list
before an entry goes to it, and the old ledger is closed at its last confirmed entry before that.

Source: ManagedLedgerImpl (rollover rules of Pulsar 4.0: entries, size or age reached, and not
younger than the minimum; the entry that crosses the limit is the last of its ledger).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, final

import structlog
import trio

from bookie.api import Status
from broker.managed_ledger.context import NO_LISTENER
from broker.managed_ledger.entry_cache import ENTRY_OVERHEAD_BYTES
from broker.managed_ledger.ledger_list import OwnershipLost
from broker.managed_ledger.ledger_table import LedgerRow
from broker.managed_ledger.open_appends import AppendState, OpenAppends
from broker.managed_ledger.roll_attempts import RollAttempts, no_entries, too_few_bookies
from ledgers.errors import LedgerError, LedgerFenced, LedgerNotFound, NotEnoughBookies
from protocol.errors import BrokerError, ServerError

if TYPE_CHECKING:
    from broker.ground.entry import Entry
    from broker.managed_ledger.context import LedgerContext
    from broker.managed_ledger.entry_cache import TopicCache
    from broker.managed_ledger.ledger_list import LedgerList
    from ledgers.entry_writer import EntryWriter, WriterListener

_log = structlog.get_logger()


_SESSION_IS_OVER: Final = "the session with the metadata store is over"
_FINAL_STATES = frozenset({AppendState.FENCED, AppendState.TERMINATED, AppendState.CLOSED})


class AppenderOwner(Protocol):
    """The managed ledger. One reference to it is less memory than one to each of its methods."""

    def request_trim(self) -> None:
        """A ledger was replaced: those before it may not be needed."""

    def release_acked(self) -> None:
        """Entries are about to join the tail cache: drop those that are not needed."""

    async def create_ledger(self, listener: WriterListener) -> EntryWriter:
        """A new ledger. Raises: NotEnoughBookies, MetadataUnavailable."""


@final
class _NoOwner:
    """In the place of a managed ledger that has ended."""

    def request_trim(self) -> None:
        pass

    def release_acked(self) -> None:
        pass

    async def create_ledger(self, listener: WriterListener) -> EntryWriter:
        raise LedgerError("the topic is closed")


@final
class Appender(OpenAppends):
    """See the module docstring. `listener` is set by the topic before it appends."""

    __slots__ = (
        "_cache",
        "_confirmed",
        "_context",
        "_current",
        "_drained",
        "_entries_max",
        "_last_status",
        "_list",
        "_met_refusal",
        "_opened_at",
        "_owner",
        "_rolls",
        "_size_bytes_max",
        "_writer",
        "cache_tail",
        "entries_added",
        "opened_at_ms",
        "size_added_bytes",
    )

    def __init__(
        self,
        context: LedgerContext,
        ledger_list: LedgerList,
        cache: TopicCache,
        owner: AppenderOwner,
    ) -> None:
        super().__init__()
        self._context = context
        self._owner = owner
        self._list = ledger_list
        self._cache = cache
        self._entries_max = context.config.max_entries_per_ledger
        self._size_bytes_max = context.config.max_size_per_ledger_bytes
        self._writer: EntryWriter | None = None
        self._current: EntryWriter | None = None
        self._confirmed = -1
        self._opened_at = 0.0
        self._rolls = RollAttempts(context.config, context.roll_pace)
        self._last_status = Status.OK
        self._met_refusal = False
        """Logs once for each ledger it happens to."""
        self._drained: trio.Event | None = None
        """Set once nothing is pending; None while no task waits for that."""
        self.cache_tail = False
        self.opened_at_ms = 0
        self.entries_added = 0
        self.size_added_bytes = 0

    @property
    def size_pending_bytes(self) -> int:
        """Their size. While a ledger is replaced each of them is looked at."""
        if self._writer is not None:
            return self._writer.length_sent - self._list.table.tail.size_bytes
        pending_bytes = sum(len(entry.data) for entry in self._pending)
        return pending_bytes + sum(len(entry.data) for entry, _ in self._queue)

    # --- the hot path -------------------------------------------------------------------

    def append(self, entry: Entry, context: object) -> None:
        """See `ManagedLedger.append`."""
        self.append_run([entry], [context])

    def append_run(self, entries: list[Entry], contexts: list[object]) -> None:
        """See `ManagedLedger.append_run`."""
        if self._context.tenure.is_over:
            self.fence(_SESSION_IS_OVER)
        start = 0
        count = len(entries)
        while start < count:
            writer = self._writer
            if writer is None:
                self._append_without_writer(entries[start:], contexts[start:])
                return
            end = start
            try:
                payloads, are_intact = self._take_run(writer, entries, contexts, start)
                end += len(payloads)
                writer.add_run(payloads, are_intact)
                if (
                    writer.next_entry_id >= self._entries_max
                    or writer.length_sent >= self._size_bytes_max
                ):
                    self._roll_if_old_enough(self._context.config.min_rollover_time_s)
            except Exception as error:
                self._abandon(error, contexts[end:])
                return
            start = end

    def _take_run(
        self, writer: EntryWriter, entries: list[Entry], contexts: list[object], start: int
    ) -> tuple[list[bytes], bool]:
        """Give positions to as many entries as the ledger has room for, or to all if it has no room
        but was too young to be replaced. Returns their payloads, and whether all are intact."""
        room_entries = self._entries_max - writer.next_entry_id
        room_bytes = self._size_bytes_max - writer.length_sent
        is_over = room_entries <= 0 or room_bytes <= 0
        ledger_id, entry_id = writer.ledger_id, writer.next_entry_id
        payloads: list[bytes] = []
        are_intact = True
        pending = self._pending
        end = start
        while end < len(entries):
            entry = entries[end]
            data = entry.data
            payloads.append(data)
            are_intact = are_intact and entry.is_intact
            entry.position = (ledger_id, entry_id)
            pending.append(entry)
            entry_id += 1
            end += 1
            room_entries -= 1
            room_bytes -= len(data)
            if (room_entries <= 0 or room_bytes <= 0) and not is_over:
                break
        self._contexts += contexts[start:end]
        return payloads, are_intact

    def on_entries_confirmed(self, writer: EntryWriter, entry_id: int, length: int) -> None:
        """A group of entries is durable (WriterListener)."""
        if writer is not self._current or self.state is AppendState.FENCED:
            return
        if self._context.tenure.is_over:
            self.fence(_SESSION_IS_OVER)
            return
        first = self._confirmed + 1
        count = entry_id - self._confirmed
        self._confirmed = entry_id
        pending, contexts = self._take_confirmed(count)
        table = self._list.table
        size_bytes = length - table.tail.size_bytes
        table.grow(entry_id + 1, length)
        self.entries_added += count
        self.size_added_bytes += size_bytes
        if self._rolls.has_failed:
            if self._rolls.is_broken:
                _log.info("topic_takes_entries_again", topic=self._list.name)
            self._rolls.succeeded()
        now = self._context.clock.now()
        if self.cache_tail:
            self._owner.release_acked()
            self._cache.append_tail(
                writer.ledger_id,
                first,
                pending,
                size_bytes + ENTRY_OVERHEAD_BYTES * count,
                now,
            )
        if self._writer is None:
            if not self._pending:
                self._tell_drained()
        elif now - self._opened_at >= self._context.config.max_rollover_time_s:
            self._roll_if_old_enough(0.0)
        if self.listener is not None:
            self.listener.on_appended(pending, contexts)

    def on_adds_refused(self, writer: EntryWriter, delay_s: float) -> None:
        """The bookie has no room now. Publishers notice slow receipts (WriterListener)."""
        if not self._met_refusal:
            self._met_refusal = True
            _log.warning(
                "adds_wait_for_the_bookie",
                topic=self._list.name,
                ledger_id=writer.ledger_id,
                pending=len(self._pending),
                advice="the write cache is full: see dbStorage_writeCacheMaxSizeMb and"
                " maxPendingAddRequestsPerThread",
            )
        self._context.spawn(self._retry, writer, delay_s)

    async def _retry(self, writer: EntryWriter, delay_s: float) -> None:
        await trio.sleep(delay_s)
        if writer is self._current:
            try:
                writer.retry()
            except Exception as error:
                self._abandon(error, [])

    def on_writer_failed(self, writer: EntryWriter, status: int) -> None:
        """The tail ledger takes no more entries (WriterListener)."""
        if writer is not self._current:
            return
        self._last_status = Status(status)
        if not self._rolls.is_broken:
            _log.warning(
                "ledger_write_failed",
                topic=self._list.name,
                ledger_id=writer.ledger_id,
                status=self._last_status.name,
                pending=len(self._pending),
            )
        self._writer = None
        if self._confirmed < 0:
            self._rolls.failed()
        else:
            lived_s = self._context.clock.now() - self._opened_at
            self._rolls.ended(self._confirmed + 1, lived_s)
        if self.state is AppendState.OPEN:
            self._start_roll()
        else:
            self._tell_drained()

    def _append_without_writer(self, entries: list[Entry], contexts: list[object]) -> None:
        """All or none of them: no entry after a failed one may be stored."""
        is_broken = self.state is AppendState.BROKEN
        if is_broken and self._rolls.is_due(self._context.clock.now()):
            self._rolls.take_up()
            self._start_roll()
        if self.state is AppendState.ROLLING:
            self._queue += zip(entries, contexts, strict=True)
            return
        assert self.listener is not None
        error = self.failure or self._refusal()
        for context in contexts:
            self.listener.on_append_failed(context, error)

    # --- rolling ------------------------------------------------------------------------

    def start(self, writer: EntryWriter) -> None:
        """Write to this new, listed ledger from now on."""
        self._current = self._writer = writer
        self._confirmed = -1
        self._met_refusal = False
        self._opened_at = self._context.clock.now()
        self.opened_at_ms = self._context.clock.wall_ms()
        self.state = AppendState.OPEN

    def start_without_ledger(self, error: NotEnoughBookies) -> None:
        """There are too few bookies for a new ledger, and entries that can be read. Appends fail
        until there are enough; the first append after a delay tries again."""
        self._last_status = Status.NOT_ENOUGH_BOOKIES
        self._give_up(too_few_bookies(error))

    def roll_if_too_old(self, now: float) -> None:
        """Called periodically. An idle ledger is replaced too, unless it is empty."""
        too_old = now - self._opened_at >= self._context.config.max_rollover_time_s
        if self._writer is not None and too_old and self._list.table.tail.entries:
            self._roll_if_old_enough(0.0)

    def roll(self) -> None:
        """Replace the tail ledger now, whatever its age, once all pending appends are durable."""
        self._roll_if_old_enough(0.0)

    def _roll_if_old_enough(self, age_min_s: float) -> None:
        age_s = self._context.clock.now() - self._opened_at
        if age_s < age_min_s or self.state is not AppendState.OPEN:
            return
        self._rolls.rolled_over()
        self._writer = None
        self._start_roll()

    def _start_roll(self) -> None:
        self.state = AppendState.ROLLING
        self.failure = None
        drained = self._drained = trio.Event()
        if not self._pending or self._current is None or self._current.is_stopped:
            self._tell_drained()
        self._context.spawn(self._roll, drained)

    def _tell_drained(self) -> None:
        drained, self._drained = self._drained, None
        if drained is not None:
            drained.set()

    async def _roll(self, drained: trio.Event) -> None:
        """The task that replaces the ledger."""
        await drained.wait()
        error: Exception = LedgerError(no_entries(self._last_status))
        while self._rolls.is_left:
            await self._pause()
            try:
                async with self._list.lock:
                    if self.state is AppendState.ROLLING:
                        await self._replace_ledger()
                return
            except (OwnershipLost, LedgerFenced, LedgerNotFound) as lost:
                self.fence(str(lost))
                return
            except NotEnoughBookies as problem:
                error = self._roll_failed(too_few_bookies(problem))
            except Exception as problem:
                error = self._roll_failed(problem)
        if self.state is AppendState.ROLLING:  # It may have ended meanwhile.
            self._give_up(error)

    def _roll_failed(self, problem: Exception) -> Exception:
        if not self._rolls.is_broken:
            _log.warning("ledger_roll_failed", topic=self._list.name, error=str(problem))
        self._rolls.failed()
        return problem

    async def _pause(self) -> None:
        """Before an attempt: for the topic, unless a bookie joins, then until the broker's turn for
        it."""
        rolls, context = self._rolls, self._context
        pace, has_failed = context.roll_pace, rolls.has_failed
        if rolls.pause_s:
            with trio.move_on_after(rolls.pause_s):
                await pace.joined.wait()
                rolls.begin_anew()
        if has_failed:
            async with pace.queue:
                if self.state is AppendState.ROLLING:
                    await trio.sleep(pace.wait_s(context.clock.now()))

    async def _replace_ledger(self) -> None:
        context = self._context
        table = self._list.table
        old = self._current
        if old is not None:
            await old.close()
        closed_ms = context.clock.wall_ms()
        rows: list[LedgerRow] = [row.copy() for row in table.rows]
        if old is not None and rows[-1].entries == 0:
            rows.pop()
        elif old is not None:
            rows[-1].timestamp_ms = closed_ms
        writer = await self._owner.create_ledger(self)
        await self._list.save([*rows, LedgerRow(writer.ledger_id)])
        if self.state is not AppendState.ROLLING:
            return  # fenced meanwhile; the next owner drops the empty ledger
        dropped: LedgerRow | None = None
        if old is not None:
            if table.tail.entries == 0:
                dropped = table.drop_empty_tail()
            else:
                table.tail.timestamp_ms = closed_ms
        table.open_ledger(writer.ledger_id)
        self.start(writer)
        again = [*self._take_pending(), *self._queue]
        self._queue = []
        self.append_run([entry for entry, _ in again], [context for _, context in again])
        self._owner.request_trim()
        if dropped is not None:
            await context.client.delete(dropped.ledger_id)

    def _give_up(self, error: Exception) -> None:
        if not self._rolls.is_broken:
            _log.error("topic_takes_no_entries", topic=self._list.name, error=str(error))
        self._rolls.give_up(self._context.clock.now())
        failure = BrokerError(
            ServerError.PersistenceError, f"the entry could not be stored, send it again: {error}"
        )
        self._stop(AppendState.BROKEN, failure)

    # --- ends ---------------------------------------------------------------------------

    def fence(self, detail: str) -> None:
        """Another broker owns the topic. This one will store nothing more in it."""
        if self.state is AppendState.FENCED:
            return
        _log.error("topic_fenced", topic=self._list.name, detail=detail)
        self._stop(AppendState.FENCED, OwnershipLost(self._list.name))
        if self.listener is not None:
            self.listener.on_fenced()

    def storage_failed(self, error: Exception) -> None:
        """The entries appended so far could not be handed to storage, or not all of them."""
        if self.state not in _FINAL_STATES:
            self._abandon(error, [])

    def _abandon(self, error: Exception, contexts: list[object]) -> None:
        """This broker failed while it appended entries or handed them to storage, and how far it
        got is unknown. All appends without an outcome fail, and then these, which were not begun.
        Nothing is stored until the topic is opened again, when recovery finds out which entries
        are."""
        _log.error("topic_abandoned", topic=self._list.name, exc_info=error)
        failure = BrokerError(
            ServerError.PersistenceError,
            f"the broker failed while it stored the entry, send it again: {error!r}",
        )
        del self._pending[len(self._contexts) :]
        self._stop(AppendState.FENCED, failure)
        assert self.listener is not None
        for context in contexts:
            self.listener.on_append_failed(context, failure)
        self.listener.on_fenced()

    async def drain_and_stop(self, state: AppendState, timeout_s: float) -> None:
        """Accept no more appends, wait for pending ones, close the ledger. The caller holds the
        lock of the list. Appends still unknown at the timeout fail; recovery decides on them.

        Raises: LedgerFenced.
        """
        if self.state in _FINAL_STATES:
            return
        self._writer = None
        self.state = state
        self.failure = self._refusal()
        self._tell_drained()
        if self._pending and self._current is not None and not self._current.is_stopped:
            drained = self._drained = trio.Event()
            with trio.move_on_after(timeout_s):
                await drained.wait()
        self._fail_all(self._take_pending())
        self._fail_queued()
        if self._current is not None:
            await self._current.close()

    def disconnect(self) -> None:
        """Forget the ledger and its topic, which have ended. Nothing is appended any more, or has
        an open outcome."""
        self.listener = NO_LISTENER
        self._owner = _NoOwner()

    def _stop(self, state: AppendState, failure: BrokerError) -> None:
        self.state = state
        self.failure = failure
        self._writer = None
        self._tell_drained()
        self._fail_all(self._take_pending())
        self._fail_queued()
