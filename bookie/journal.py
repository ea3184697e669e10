"""Journal: the thread of one journal directory, and the queue in front of it.

The event loop appends items to `pending` and calls `kick`, which hands them over as one list. The
thread takes all waiting lists, writes them as one group, syncs, and answers once per group through
`run_sync_soon`. Items that arrive meanwhile form the next group. An idle journal therefore writes
at once, and groups grow by themselves when it is busy.

An item is a run: consecutive entries of one ledger for one sink. Adds that continue the last run
join it (up to `RUN_BYTES_MAX`), so a busy ledger costs one item and one answer per chunk, not per
entry. All records that must be durable in order use the same queue: master key and fence records
are runs of one body with a sink of their own. An empty body writes nothing and is answered in its
turn (a barrier, or a refusal in order).

If more waits than belongs into one group, ledgers take turns by bytes (`bookie.journal_turns`), so
that a few records are in the next group, however much another ledger has brought. Records of one
ledger keep their order, and a barrier, which is of no ledger, comes after everything before it.

A journal that finds no space answers its groups with READ_ONLY, until `try_again` finds some. By
then the handles know what these records said (keys, fences), and reads find the entries, which a
recovery may count in. So all of them are kept and go before the next group: nothing that depends on
them is answered with OK before they are durable. They are few, because nothing more is admitted.

Any other failure ends the thread. Items not yet durable are never answered with OK. After `stop`
nothing is written, and a batch that is handed over is refused at once, so every waiter gets an
answer.
"""

from __future__ import annotations

import threading
import time
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, final

import structlog

from bookie import journal_format
from bookie.api import Status
from bookie.errors import JournalFull
from bookie.journal_turns import RUN_BYTES_MAX, AddRun, Batch, JournalTurns
from bookie.statistics import LatencyHistogram

if TYPE_CHECKING:
    from collections.abc import Callable

    from bookie.api import AddSink, EntryBody
    from bookie.config import BookieConfig
    from bookie.journal_writer import JournalWriter, LogMark

logger = structlog.get_logger()

EMPTY_BODY: EntryBody = (b"", b"")


@final
class GroupDone:
    """One group, durable or refused, on its way back to the event loop."""

    __slots__ = ("batches", "entries", "handed_at", "journal", "size_bytes", "status")

    def __init__(
        self,
        journal: Journal,
        batches: list[Batch],
        entries: int,
        size: int,
        handed_at: float,
        status: int,
    ) -> None:
        self.journal = journal
        self.batches = batches
        self.entries = entries
        self.size_bytes = size
        self.handed_at = handed_at
        self.status = status
        """OK: durable. READ_ONLY: nothing of it was written."""


@final
class Journal:
    """One journal: queue, thread, files."""

    __slots__ = (
        "_answer",
        "_failed",
        "_group_bytes_max",
        "_handed",
        "_kept",
        "_refuse",
        "_room_changed",
        "_stop_wanted",
        "_stopped",
        "_try_wanted",
        "_turns",
        "_worker",
        "_writer",
        "bytes_written",
        "entries_answered",
        "entries_handed",
        "groups",
        "is_full",
        "outstanding",
        "pending",
        "sync_latency",
    )

    def __init__(self, config: BookieConfig) -> None:
        self.pending: Batch = []
        self.outstanding: dict[AddRun, None] = {}
        """Handed over and not yet answered. The answer removes it. Event loop only."""
        self._turns = JournalTurns()
        """What did not fit into the last group. Journal thread only."""
        self._writer: JournalWriter | None = None
        self._group_bytes_max = config.journalBufferedWritesThreshold
        self._handed: SimpleQueue[tuple[Batch, float] | None] = SimpleQueue()
        self._worker: threading.Thread | None = None
        self._stopped = False
        self._kept: Batch = []
        """What refused groups held. Journal thread only."""
        self.is_full = False
        """Groups are refused for lack of space. Written by the journal thread."""
        self._try_wanted = False
        self._stop_wanted = False
        """Journal thread only."""
        self.entries_handed = 0
        self.entries_answered = 0
        self.groups = 0
        self.bytes_written = 0
        self.sync_latency = LatencyHistogram()

    @property
    def mark(self) -> LogMark:
        """Everything added before this mark was taken and answered is durable below it."""
        return self._writer.mark if self._writer is not None else (0, 0)

    def start(
        self,
        name: str,
        writer: JournalWriter | None,
        answer: Callable[[GroupDone], None],
        failed: Callable[[BaseException], None],
        refuse: Callable[[Batch], None],
        room_changed: Callable[[], None],
    ) -> None:
        """Start the thread. It calls `answer`, `failed` and, when `is_full` has changed,
        `room_changed`; without a writer it only answers. `refuse` is called by `kick` with each
        batch that comes after `stop`."""
        self._writer = writer
        self._room_changed = room_changed
        self.is_full = writer is not None and not writer.has_file
        self._answer = answer
        self._failed = failed
        self._refuse = refuse
        self._worker = threading.Thread(target=self._run, name=name, daemon=True)
        self._worker.start()

    def add_run(
        self,
        sink: AddSink,
        ledger_id: int,
        first_entry_id: int,
        bodies: list[EntryBody],
        size_bytes: int,
    ) -> None:
        """Queue consecutive entries, as `add` each of them. Takes over the list. `size_bytes`: of
        all bodies together."""
        pending = self.pending
        if pending:
            run = pending[-1]
            if (
                run.sink is sink
                and run.ledger_id == ledger_id
                and run.size_bytes < RUN_BYTES_MAX
                and run.first_entry_id + len(run.bodies) == first_entry_id
            ):
                run.bodies += bodies
                run.size_bytes += size_bytes
                return
        pending.append(AddRun(sink, ledger_id, first_entry_id, bodies, size_bytes))

    def add(self, sink: AddSink, ledger_id: int, entry_id: int, body: EntryBody) -> None:
        """Queue an entry: as part of the last run if it continues that."""
        size_bytes = len(body[0]) + len(body[1])
        pending = self.pending
        if pending:
            run = pending[-1]
            if (
                run.sink is sink
                and run.ledger_id == ledger_id
                and run.size_bytes < RUN_BYTES_MAX
                and run.first_entry_id + len(run.bodies) == entry_id
            ):
                run.bodies.append(body)
                run.size_bytes += size_bytes
                return
        pending.append(AddRun(sink, ledger_id, entry_id, [body], size_bytes))

    def put(self, sink: AddSink, ledger_id: int, entry_id: int, body: EntryBody) -> None:
        """Queue a record of any kind, which is answered by itself."""
        size_bytes = len(body[0]) + len(body[1])
        self.pending.append(AddRun(sink, ledger_id, entry_id, [body], size_bytes))

    def kick(self) -> None:
        """Hand over the pending items."""
        batch = self.pending
        if batch:
            self.pending = []
            if self._stopped:
                self._refuse(batch)
                return
            outstanding = self.outstanding
            for run in batch:
                outstanding[run] = None
                self.entries_handed += len(run.bodies)
            self._handed.put((batch, time.perf_counter()))

    def give_up(self) -> list[AddRun]:
        """The journal has failed: everything that is not answered, which is forgotten."""
        left = [*self.outstanding, *self.pending]
        self.outstanding.clear()
        self.pending = []
        return left

    def try_again(self) -> None:
        """Let a full journal look for space."""
        if self.is_full and not self._stopped:
            self._try_wanted = True
            self._handed.put(([], time.perf_counter()))

    def stop(self) -> None:
        """Ask the thread to finish its batches and end; `join` waits for it. Called from the event
        loop, like `kick`, so a batch is either before the end or refused."""
        self._stopped = True
        self._handed.put(None)

    def join(self) -> None:
        """Wait for the thread (blocking)."""
        if self._worker is not None:
            self._worker.join()

    def remove_before(self, mark: LogMark, backups: int) -> int:
        """Remove journal files that a checkpoint has passed."""
        return self._writer.remove_before(mark, backups) if self._writer is not None else 0

    def _run(self) -> None:
        try:
            while self._run_group():
                pass
            if self._writer is not None:
                self._writer.close()
        except BaseException as error:
            self._failed(error)

    def _run_group(self) -> bool:
        """Write one group. False when asked to stop and nothing is left."""
        turns = self._turns
        if not turns:
            self._take_handed(self._handed.get())
        while not self._stop_wanted:
            try:
                self._take_handed(self._handed.get_nowait())
            except Empty:
                break
        if not turns:
            return False
        batches, handed_at = turns.group(self._group_bytes_max)
        parts: list[bytes] = []
        size = _append_records(self._kept, parts)
        entries = 0
        for batch in batches:
            entries += _count_entries(batch)
            size += _append_records(batch, parts)
        status = int(Status.OK)
        if self._writer is not None and not self._write(self._writer, parts, size):
            status = int(Status.READ_ONLY)
            self._keep(batches)
        self._answer(GroupDone(self, batches, entries, size, handed_at, status))
        return bool(turns) or not self._stop_wanted

    def _take_handed(self, taken: tuple[Batch, float] | None) -> None:
        """None: the event loop has asked to stop, and nothing more comes."""
        if taken is None:
            self._stop_wanted = True
        else:
            self._turns.put(taken[0], taken[1])

    def _write(self, writer: JournalWriter, parts: list[bytes], size: int) -> bool:
        """False: there is no space, and nothing was written."""
        try:
            if self._try_wanted:
                self._try_wanted = False
                writer.reserve()
                self._set_full(full=False)
            if not parts:
                return True
            if self.is_full:
                return False
            started = time.perf_counter()
            self.bytes_written += writer.write_group(parts, size + 4 * (len(parts) // 3))
        except JournalFull as error:
            if not self.is_full:
                logger.warning("journal refuses entries: no space", error=str(error))
            self._set_full(full=True)
            return not parts
        self._kept = []
        self.sync_latency.observe(time.perf_counter() - started)
        self.groups += 1
        return True

    def _set_full(self, *, full: bool) -> None:
        if self.is_full != full:
            self.is_full = full
            self._room_changed()

    def _keep(self, batches: list[Batch]) -> None:
        for batch in batches:
            for run in batch:
                if any(head or payload for head, payload in run.bodies):
                    self._kept.append(run)


def _count_entries(batch: Batch) -> int:
    count = 0
    for run in batch:
        count += len(run.bodies)
    return count


def _append_records(batch: Batch, parts: list[bytes]) -> int:
    """Length, head and payload of every body that is not empty; the bytes of them."""
    pack_length = journal_format.pack_length
    total = 0
    last_size = 0
    length = b""
    for run in batch:
        for head, payload in run.bodies:
            size = len(head) + len(payload)
            if size:
                total += size
                if size != last_size:
                    last_size = size
                    length = pack_length(size)
                parts.append(length)
                parts.append(head)
                parts.append(payload)
    return total
