"""AddPath: carries adds through the event loop, and the answers back.

An add passes the rules of the ledger's handle, then the write cache, then the journal queue. Later
there is one answer per group. The common case (known ledger, room in the cache) is `add_entry`
itself and takes a microsecond. Other cases branch off: first add of a ledger, fenced ledger, full
or closed cache.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Final, final

import structlog
import trio

from bookie import journal_format
from bookie.adds import DurableSink, NoTurn, NullSink, RefusedSink, WaitingAdds
from bookie.api import (
    ENTRY_SIZE_BYTES_MAX,
    FLAG_HIGH_PRIORITY,
    FLAG_RECOVERY_ADD,
    BookieError,
    Status,
)
from bookie.errors import DiskFailed, StorageError
from bookie.journal import EMPTY_BODY
from bookie.ledger_handle import is_storable
from bookie.statistics import LatencyHistogram
from bookie.submitted_groups import SubmittedGroups
from settings.kinds import or_no_limit

if TYPE_CHECKING:
    from collections.abc import Callable

    from bookie.api import AddSink, EntryBody, Turn
    from bookie.config import BookieConfig
    from bookie.disk import Disk
    from bookie.journal import GroupDone
    from bookie.journal_turns import Batch
    from bookie.layout import Layout
    from bookie.ledger_handle import LedgerHandle
    from bookie.submitted_groups import LoopReaders

logger = structlog.get_logger()

_NULL_SINK: Final = NullSink()
_EXPIRY_INTERVAL_SECONDS: Final = 0.1


@final
class AddPath:
    """All adds of one bookie. Event loop only, but for `group_done_soon` and `fail_soon`."""

    def __init__(self, config: BookieConfig, layout: Layout) -> None:
        self._layout = layout
        self._handles = layout.handles
        self._storages = layout.storages
        self._journals = layout.journals
        self._token = trio.lowlevel.current_trio_token()
        self._wake: Callable[..., object] = self._token.run_sync_soon
        """Has something called in the event loop, for journal threads."""
        self.submitted = SubmittedGroups(layout.journals, self._group_done, self.fail)
        self._kick_scheduled = False
        self._waiting = {
            id(storage): WaitingAdds(
                or_no_limit(config.maxPendingAddRequestsPerThread),
                config.dbStorage_maxThrottleTimeMs / 1000,
            )
            for storage in layout.storages
        }
        self._some_wait = trio.Event()
        """Set while adds wait for room, and up to one look longer."""
        self.begin_flush: Callable[[], None] = _no_action
        """Swap the write caches unless a checkpoint is in progress. Set by the owner."""
        self.journal_room_changed: Callable[[], None] = _no_action
        """A journal found no space, or found some again. Set by the owner."""
        self.turn: Turn = NoTurn()
        """Set by the owner."""
        self.failure: StorageError | None = None
        self.failed = trio.Event()
        self.closed = False
        self.refused = 0
        self.bytes_answered = 0
        self.latency = LatencyHistogram()

    def add_entry(
        self,
        ledger_id: int,
        entry_id: int,
        body: EntryBody,
        master_key: bytes,
        flags: int,
        sink: AddSink,
    ) -> None:
        """Store an entry; see BookieApi."""
        handle = self._handles.get(ledger_id)
        if handle is None or handle.guarded or entry_id < 0 or handle.master_key != master_key:
            self._add_guarded(ledger_id, entry_id, body, master_key, flags, sink)
            return
        cache = handle.storage.cache
        size = len(body[0]) + len(body[1])
        if size > ENTRY_SIZE_BYTES_MAX:
            self._refuse(Status.BAD_REQUEST, ledger_id, entry_id, sink)
            return
        if cache.size_bytes + size > cache.limit_bytes:
            self._add_without_room(handle, entry_id, body, master_key, flags, sink)
            return
        cache.put(handle, entry_id, body)
        journal = handle.journal
        if not journal.pending and not self._kick_scheduled and not self.turn.in_turn:
            self._kick_scheduled = True
            self._token.run_sync_soon(self._kick_scheduled_now)
        journal.add(sink, ledger_id, entry_id, body)

    def add_entries(
        self,
        ledger_id: int,
        first_entry_id: int,
        bodies: list[EntryBody],
        master_key: bytes,
        flags: int,
        sink: AddSink,
    ) -> None:
        """Store consecutive entries; see BookieApi. One by one if one of them might be refused."""
        size = 0
        for head, payload in bodies:
            size += len(head) + len(payload)
        handle = self._handles.get(ledger_id)
        if (
            handle is None
            or handle.guarded
            or first_entry_id < 0
            or handle.master_key != master_key
            or handle.storage.cache.size_bytes + size > handle.storage.cache.limit_bytes
            or size > ENTRY_SIZE_BYTES_MAX
        ):
            for entry_id, body in enumerate(bodies, first_entry_id):
                self.add_entry(ledger_id, entry_id, body, master_key, flags, sink)
            return
        handle.storage.cache.put_run(handle, first_entry_id, bodies, size)
        journal = handle.journal
        if not journal.pending and not self._kick_scheduled and not self.turn.in_turn:
            self._schedule_kick()
        journal.add_run(sink, ledger_id, first_entry_id, bodies, size)

    def kick(self) -> None:
        """Hand all queued records to the journals."""
        for journal in self._journals:
            if journal.pending:
                journal.kick()

    def _schedule_kick(self) -> None:
        if not self._kick_scheduled:
            self._kick_scheduled = True
            self._token.run_sync_soon(self._kick_scheduled_now)

    def _kick_scheduled_now(self) -> None:
        self._kick_scheduled = False
        self.kick()

    def _add_guarded(
        self,
        ledger_id: int,
        entry_id: int,
        body: EntryBody,
        master_key: bytes,
        flags: int,
        sink: AddSink,
    ) -> None:
        """First add of a ledger in this run, fenced ledger, other key, or an id that the journal
        and the index use for records of their own."""
        if self.failure is not None or self.closed:
            self._refuse_now(Status.IO_ERROR, ledger_id, entry_id, sink)
            return
        size = len(body[0]) + len(body[1])
        if not is_storable(ledger_id, master_key) or entry_id < 0 or size > ENTRY_SIZE_BYTES_MAX:
            self._refuse(Status.BAD_REQUEST, ledger_id, entry_id, sink)
            return
        handle = self._layout.handle_of(ledger_id)
        refusal = handle.refusal_of_key(master_key) or handle.refusal_of_add(flags)
        if refusal is not None:
            self._refuse(refusal, ledger_id, entry_id, sink)
            return
        cache = handle.storage.cache
        if cache.size_bytes + size > cache.limit_bytes:
            self._add_without_room(handle, entry_id, body, master_key, flags, sink)
        else:
            self.journal_key(handle, master_key)
            self._admit(handle, entry_id, body, sink)

    def _admit(self, handle: LedgerHandle, entry_id: int, body: EntryBody, sink: AddSink) -> None:
        handle.storage.cache.put(handle, entry_id, body)
        self._schedule_kick()
        handle.journal.add(sink, handle.ledger_id, entry_id, body)

    def submit(self, handle: LedgerHandle, entry_id: int, body: EntryBody, sink: AddSink) -> None:
        """Queue a record of any kind for the ledger's journal."""
        self._schedule_kick()
        handle.journal.add_alone(sink, handle.ledger_id, entry_id, body)

    def journal_key(self, handle: LedgerHandle, master_key: bytes) -> None:
        """Once per run the key goes to the journal before the ledger's first entry."""
        if handle.adopt_key(master_key):
            handle.storage.cache.row_changed(handle)
        if not handle.key_journaled:
            handle.key_journaled = True
            record = journal_format.encode_master_key(handle.ledger_id, master_key)
            self.submit(handle, journal_format.ENTRY_MASTER_KEY, (record, b""), _NULL_SINK)
        handle.update_guard()

    def _add_without_room(
        self,
        handle: LedgerHandle,
        entry_id: int,
        body: EntryBody,
        master_key: bytes,
        flags: int,
        sink: AddSink,
    ) -> None:
        """The write cache is full or closed: swap, wait or refuse."""
        ledger_id, storage = handle.ledger_id, handle.storage
        if self.failure is not None or self.closed:
            self._refuse_now(Status.IO_ERROR, ledger_id, entry_id, sink)
            return
        urgent = flags & (FLAG_RECOVERY_ADD | FLAG_HIGH_PRIORITY) and storage.headroom
        if not storage.writable and not urgent:
            self._refuse(Status.READ_ONLY, ledger_id, entry_id, sink)
            return
        waiting = self._waiting[id(storage)]
        size = len(body[0]) + len(body[1])
        if not waiting.has(ledger_id) and storage.cache.has_room_reserved_for(handle, size):
            self.begin_flush()
            self.journal_key(handle, master_key)
            self._admit(handle, entry_id, body, sink)
            return
        if not waiting:
            if not storage.cache.has_room():
                self.begin_flush()
            if storage.cache.has_room():
                self.journal_key(handle, master_key)
                self._admit(handle, entry_id, body, sink)
                return
        now = time.monotonic()
        if waiting.put(ledger_id, entry_id, body, master_key, flags, sink, now):
            storage.cache.close()
            self._some_wait.set()
        else:
            self._refuse(Status.TOO_MANY_REQUESTS, ledger_id, entry_id, sink)

    def made_room(self) -> None:
        """A flush ended or a disk has space again: admit waiting adds, in order."""
        for storage in self._storages:
            waiting = self._waiting[id(storage)]
            while waiting:
                if not storage.cache.has_room():
                    self.begin_flush()
                    if not storage.cache.has_room():
                        break
                _deadline, ledger_id, entry_id, body, master_key, flags, sink = waiting.take()
                handle = self._layout.handle_of(ledger_id)
                refusal = handle.refusal_of_key(master_key) or handle.refusal_of_add(flags)
                if refusal is None:
                    self.journal_key(handle, master_key)
                    self._admit(handle, entry_id, body, sink)
                else:
                    self._refuse(refusal, ledger_id, entry_id, sink)
            if not waiting and storage.writable and self.failure is None and not self.closed:
                storage.cache.open()
        self.kick()

    async def expire_waiting(self) -> None:
        """Refuse adds that have waited too long, until cancelled. It sleeps while none waits, so
        that a bookie at rest does not wake up for it."""
        while True:
            await self._some_wait.wait()
            await trio.sleep(_EXPIRY_INTERVAL_SECONDS)
            self._refuse_expired(time.monotonic())

    def _refuse_expired(self, now: float) -> None:
        for waiting in self._waiting.values():
            for item in waiting.expired(now):
                self._refuse(Status.TOO_MANY_REQUESTS, item[1], item[2], item[6])
        if not self.waiting_count():
            self._some_wait = trio.Event()

    def writable_changed(self) -> None:
        for storage in self._storages:
            if not storage.writable:
                storage.cache.close()
        self.made_room()

    def _refuse(self, status: Status, ledger_id: int, entry_id: int, sink: AddSink) -> None:
        """Through the journal queue, so that it arrives after the answers to earlier adds."""
        self.refused += 1
        journal = self._journals[ledger_id % len(self._journals)]
        self._schedule_kick()
        journal.add_alone(RefusedSink(sink, status), ledger_id, entry_id, EMPTY_BODY)

    def _refuse_now(self, status: Status, ledger_id: int, entry_id: int, sink: AddSink) -> None:
        """Without a journal, but still not from within the call."""
        self.refused += 1
        self._token.run_sync_soon(_answer_alone, status, ledger_id, entry_id, 1, sink)

    def close(self) -> None:
        """Refuse waiting and later adds. Adds already in the journals are still answered."""
        self.closed = True
        for storage in self._storages:
            storage.cache.close()
        self._refuse_expired(math.inf)

    def waiting_count(self) -> int:
        """Adds that wait for room."""
        return sum(map(len, self._waiting.values()))

    async def durable(self, handle: LedgerHandle, entry_id: int, body: EntryBody) -> None:
        sink = DurableSink()
        self.submit(handle, entry_id, body, sink)
        handle.journal.kick()
        status = await sink.wait()
        if status == Status.READ_ONLY:
            raise BookieError(Status.READ_ONLY, "the disk is full")
        if status:
            raise BookieError(Status.IO_ERROR, "the bookie failed; see its log")

    async def barrier_all(self) -> None:
        sinks = []
        for journal in self._journals:
            sink = DurableSink()
            journal.add_alone(sink, -1, journal_format.ENTRY_FORCE, EMPTY_BODY)
            journal.kick()
            sinks.append(sink)
        for sink in sinks:
            await sink.wait()

    def use_readers(self, readers: LoopReaders, disk: Disk) -> None:
        """See Bookie."""
        self._wake = readers.run_sync_soon
        self.submitted.use(readers, disk)

    def group_done_soon(self, done: GroupDone) -> None:
        """Called by a journal thread."""
        self._wake(self._group_done, done)

    def journal_room_changed_soon(self) -> None:
        """Called by a journal thread. The call comes in the order of its answers: the bookie knows
        that a journal is full before what that refuses is answered."""
        self._wake(self._journal_room_changed)

    def _journal_room_changed(self) -> None:
        self.journal_room_changed()

    def _group_done(self, done: GroupDone) -> None:
        if self.failure is not None:
            return
        if done.status:
            self.refused += done.entries
        else:
            self.bytes_answered += done.size_bytes
        self.latency.observe(time.perf_counter() - done.handed_at)
        journal = done.journal
        journal.entries_answered += done.entries
        outstanding = journal.outstanding
        touched: dict[int, AddSink] = {}
        problem: Exception | None = None
        self.turn.begin_turn()
        try:
            for batch in done.batches:
                last: AddSink | None = None
                for run in batch:
                    sink = run.sink
                    del outstanding[run]
                    # Everything that a barrier of the bookie itself waits for has been answered.
                    status = done.status if run.ledger_id >= 0 else 0
                    try:
                        sink.on_add_replies(
                            status, run.ledger_id, run.first_entry_id, len(run.bodies)
                        )
                    except Exception as error:
                        problem = error
                    if sink is not last:
                        touched[id(sink)] = last = sink
            for sink in touched.values():
                try:
                    sink.on_replies_end()
                except Exception as error:
                    problem = error
            if problem is not None:
                # All other sinks have been answered. The state of this sink's owner is unknown.
                self.fail(problem)
        finally:
            self.turn.end_turn()

    def refuse_batch(self, batch: Batch) -> None:
        """Answer a batch handed to a stopped journal, not from within the call."""
        for run in batch:
            self._token.run_sync_soon(
                _answer_alone,
                Status.IO_ERROR,
                run.ledger_id,
                run.first_entry_id,
                len(run.bodies),
                run.sink,
            )

    def fail_soon(self, error: BaseException) -> None:
        """Called by a journal thread that ended."""
        self._token.run_sync_soon(self.fail, error)

    def fail(self, error: BaseException) -> None:
        """Fatal: answer everything with IO_ERROR and end `run`."""
        if self.failure is not None:
            return
        logger.error("bookie failed and stops", error=str(error), kind=type(error).__name__)
        if not isinstance(error, StorageError):
            wrapped = DiskFailed(f"bookie failed: {type(error).__name__}: {error}")
            wrapped.__cause__ = error
            error = wrapped
        self.failure = error
        for storage in self._storages:
            storage.cache.close()
        items = [
            (run.sink, run.ledger_id, run.first_entry_id, len(run.bodies))
            for journal in self._journals
            for run in journal.give_up()
        ]
        for waiting in self._waiting.values():
            while waiting:
                item = waiting.take()
                items.append((item[6], item[1], item[2], 1))
        for journal in self._journals:
            journal.stop()
        self.failed.set()
        for sink, ledger_id, entry_id, count in items:
            _answer_alone(Status.IO_ERROR, ledger_id, entry_id, count, sink)


def _answer_alone(status: Status, ledger_id: int, entry_id: int, count: int, sink: AddSink) -> None:
    """Refuse a run of adds after the bookie has stopped. A sink that raises does not prevent the
    answers to others, and there is nothing left to stop."""
    try:
        sink.on_add_replies(status, ledger_id, entry_id, count)
        sink.on_replies_end()
    except Exception as error:
        logger.error(
            "a refused add cannot be answered",
            ledger_id=ledger_id,
            entry_id=entry_id,
            count=count,
            status=status.name,
            exc_info=error,
        )


def _no_action() -> None:
    """The default until the owner sets a callback."""
