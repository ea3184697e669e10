"""Journal: the thread of one journal directory, and the queue in front of it.

The event loop appends items to `pending` and calls `kick`, which hands them over as one list. The
thread takes all waiting lists, writes them as one group, syncs, and answers once per group through
`run_sync_soon`. Items that arrive meanwhile form the next group. An idle journal therefore writes
at once, and groups grow by themselves when it is busy.

An item is a run: consecutive entries of one ledger for one sink. Adds that continue the last run
join it, so a busy ledger costs one item and one answer per chunk, not per entry. All records that
must be durable in order use the same queue: master key and fence records are runs of one body with
a sink of their own. An empty body writes nothing and is answered in its turn (a barrier, or a
refusal in order).

A failure ends the thread. Items not yet durable are never answered with OK. After `stop` nothing is
written, and a batch that is handed over is refused at once, so every waiter gets an answer.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, final

from bookie import journal_format
from bookie.statistics import LatencyHistogram

if TYPE_CHECKING:
    from collections.abc import Callable

    from bookie.api import AddSink, EntryBody
    from bookie.config import BookieConfig
    from bookie.journal_writer import JournalWriter, LogMark

EMPTY_BODY: EntryBody = (b"", b"")


@final
class AddRun:
    """Bodies of the entries `first_entry_id`, `first_entry_id + 1`, ... of a ledger, or one other
    record of it. Changed only while it is the last of `Journal.pending`."""

    __slots__ = ("bodies", "first_entry_id", "ledger_id", "sink")

    def __init__(
        self, sink: AddSink, ledger_id: int, first_entry_id: int, bodies: list[EntryBody]
    ) -> None:
        self.sink = sink
        self.ledger_id = ledger_id
        self.first_entry_id = first_entry_id
        self.bodies = bodies


Batch = list[AddRun]


@final
class GroupDone:
    """One durable group, on its way back to the event loop."""

    __slots__ = ("batches", "entries", "handed_at", "journal", "size_bytes")

    def __init__(
        self, journal: Journal, batches: list[Batch], entries: int, size: int, handed_at: float
    ) -> None:
        self.journal = journal
        self.batches = batches
        self.entries = entries
        self.size_bytes = size
        self.handed_at = handed_at


@final
class Journal:
    """One journal: queue, thread, files."""

    __slots__ = (
        "_answer",
        "_failed",
        "_group_bytes_max",
        "_handed",
        "_refuse",
        "_stopped",
        "_worker",
        "_writer",
        "bytes_written",
        "entries_answered",
        "entries_handed",
        "groups",
        "outstanding",
        "pending",
        "sync_latency",
    )

    def __init__(self, config: BookieConfig) -> None:
        self.pending: Batch = []
        self.outstanding: deque[Batch] = deque()
        """Handed over and not yet answered. The answer removes it. Event loop only."""
        self._writer: JournalWriter | None = None
        self._group_bytes_max = config.journalBufferedWritesThreshold
        self._handed: SimpleQueue[tuple[Batch, float] | None] = SimpleQueue()
        self._worker: threading.Thread | None = None
        self._stopped = False
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
    ) -> None:
        """Start the thread. It calls `answer` and `failed`; without a writer it only answers.
        `refuse` is called by `kick` with each batch that comes after `stop`."""
        self._writer = writer
        self._answer = answer
        self._failed = failed
        self._refuse = refuse
        self._worker = threading.Thread(target=self._run, name=name, daemon=True)
        self._worker.start()

    def add_run(
        self, sink: AddSink, ledger_id: int, first_entry_id: int, bodies: list[EntryBody]
    ) -> None:
        """Queue consecutive entries, as `add` each of them. Takes over the list."""
        pending = self.pending
        if pending:
            run = pending[-1]
            if (
                run.sink is sink
                and run.ledger_id == ledger_id
                and run.first_entry_id + len(run.bodies) == first_entry_id
            ):
                run.bodies += bodies
                return
        pending.append(AddRun(sink, ledger_id, first_entry_id, bodies))

    def add(self, sink: AddSink, ledger_id: int, entry_id: int, body: EntryBody) -> None:
        """Queue an entry: as part of the last run if it continues that."""
        pending = self.pending
        if pending:
            run = pending[-1]
            if (
                run.sink is sink
                and run.ledger_id == ledger_id
                and run.first_entry_id + len(run.bodies) == entry_id
            ):
                run.bodies.append(body)
                return
        pending.append(AddRun(sink, ledger_id, entry_id, [body]))

    def put(self, sink: AddSink, ledger_id: int, entry_id: int, body: EntryBody) -> None:
        """Queue a record of any kind, which is answered by itself."""
        self.pending.append(AddRun(sink, ledger_id, entry_id, [body]))

    def kick(self) -> None:
        """Hand over the pending items."""
        batch = self.pending
        if batch:
            self.pending = []
            if self._stopped:
                self._refuse(batch)
                return
            self.entries_handed += _count_entries(batch)
            self.outstanding.append(batch)
            self._handed.put((batch, time.perf_counter()))

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
        """Write one group. False when asked to stop."""
        taken = self._handed.get()
        if taken is None:
            return False
        batch, handed_at = taken
        batches = [batch]
        parts: list[bytes] = []
        going_on = True
        size = _append_records(batch, parts)
        entries = _count_entries(batch)
        while size < self._group_bytes_max:
            try:
                taken = self._handed.get_nowait()
            except Empty:
                break
            if taken is None:
                going_on = False
                break
            batch = taken[0]
            batches.append(batch)
            entries += _count_entries(batch)
            size += _append_records(batch, parts)
        if parts and self._writer is not None:
            started = time.perf_counter()
            self.bytes_written += self._writer.write_group(parts, size + 4 * (len(parts) // 3))
            self.sync_latency.observe(time.perf_counter() - started)
            self.groups += 1
        self._answer(GroupDone(self, batches, entries, size, handed_at))
        return going_on


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
