"""Journal: the thread of one journal directory, and the queue in front of it.

The event loop appends items to `pending` and calls `kick`, which hands them over as one list. The
thread takes all waiting lists, writes them as one group, syncs, and answers once per group through
`run_sync_soon`. Items that arrive meanwhile form the next group. An idle journal therefore writes
at once, and groups grow by themselves when it is busy.

A small group that finds the thread idle does not need it: the event loop submits the write, and
`submitted_is_done` is called when it is durable (`bookie.disk.Submissions`). Meanwhile nothing is
handed over. So either the loop or the thread uses the writer, never both.

With `journalAdaptiveGroupWrites=false` the thread writes all groups, and holds small ones back
(`bookie.journal_hold`).

An item is a run: consecutive entries of one ledger for one sink. Adds that continue the last run
join it (up to `RUN_BYTES_MAX`), so a busy ledger costs one item and one answer per chunk, not per
entry. All records that must be durable in order use the same queue: master key and fence records
are runs of one body with a sink of their own. An empty body writes nothing and is answered in its
turn (a barrier, or a refusal in order).

If more waits than fits into one group, ledgers take turns by bytes (`bookie.journal_turns`), so
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
from typing import TYPE_CHECKING, Final, final

import structlog

from bookie.api import Status
from bookie.errors import JournalFull
from bookie.journal_hold import GroupHold
from bookie.journal_turns import RUN_BYTES_MAX, AddRun, Batch, JournalTurns
from bookie.read_turns import JournalWrites
from bookie.statistics import LatencyHistogram

if TYPE_CHECKING:
    from collections.abc import Callable

    from bookie.api import AddSink, EntryBody
    from bookie.config import BookieConfig
    from bookie.disk import Submissions
    from bookie.journal_writer import JournalWriter, LogMark

logger = structlog.get_logger()

EMPTY_BODY: EntryBody = (b"", b"")
SUBMITTED_BYTES_MAX: Final = 128 << 10
"""A larger group goes to the thread: its checksum and its copy would hold up the event loop. These
take 20 us of it in one record, and the two hops of the thread more."""
SUBMITTED_RECORDS_MAX: Final = 128
"""The same for a group of many records."""


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
        "_broken",
        "_failed",
        "_group_bytes_max",
        "_handed",
        "_hold",
        "_kept",
        "_refuse",
        "_room_changed",
        "_stop_wanted",
        "_stopped",
        "_submissions",
        "_submits",
        "_submitted",
        "_submitted_at",
        "_try_wanted",
        "_turns",
        "_worker",
        "_writer",
        "_writes",
        "bytes_written",
        "entries_answered",
        "entries_handed",
        "groups",
        "is_full",
        "outstanding",
        "pending",
        "sync_latency",
    )

    def __init__(self, config: BookieConfig, writes: JournalWrites | None = None) -> None:
        """`writes` is notified of what this journal writes."""
        self._writes = writes or JournalWrites()
        self.pending: Batch = []
        self.outstanding: dict[AddRun, None] = {}
        """Handed over and not yet answered. The answer removes it. Event loop only."""
        self._turns = JournalTurns()
        """The records that did not fit into the last group. Journal thread only."""
        self._writer: JournalWriter | None = None
        self._group_bytes_max = config.journalBufferedWritesThreshold
        wait_s = config.journal_group_wait_s
        self._hold = GroupHold(wait_s, self._group_bytes_max) if wait_s else None
        """None: an idle journal writes at once."""
        self._handed: SimpleQueue[tuple[Batch, float] | None] = SimpleQueue()
        self._worker: threading.Thread | None = None
        self._stopped = False
        self._kept: Batch = []
        """The records of refused groups. Journal thread only."""
        self._submissions: Submissions | None = None
        self._submits = False
        """Event loop only."""
        self._submitted: GroupDone | None = None
        """The group that was submitted and is not answered. The thread has it after
        `end_submissions`, otherwise the event loop."""
        self._submitted_at = 0.0
        self._broken = False
        """A submitted write failed."""
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
        run = self._continued(sink, ledger_id, first_entry_id)
        if run is None:
            self.pending.append(AddRun(sink, ledger_id, first_entry_id, bodies, size_bytes))
        else:
            run.bodies += bodies
            run.size_bytes += size_bytes

    def add(self, sink: AddSink, ledger_id: int, entry_id: int, body: EntryBody) -> None:
        """Queue an entry: as part of the last run if it continues that."""
        size_bytes = len(body[0]) + len(body[1])
        run = self._continued(sink, ledger_id, entry_id)
        if run is None:
            self.pending.append(AddRun(sink, ledger_id, entry_id, [body], size_bytes))
        else:
            run.bodies.append(body)
            run.size_bytes += size_bytes

    def _continued(self, sink: AddSink, ledger_id: int, entry_id: int) -> AddRun | None:
        """The last run, if it has room and this entry follows it."""
        if not self.pending:
            return None
        run = self.pending[-1]
        if (
            run.sink is sink
            and run.ledger_id == ledger_id
            and run.size_bytes < RUN_BYTES_MAX
            and run.first_entry_id + len(run.bodies) == entry_id
        ):
            return run
        return None

    def add_alone(self, sink: AddSink, ledger_id: int, entry_id: int, body: EntryBody) -> None:
        """Queue a record of any kind, which is answered by itself."""
        size_bytes = len(body[0]) + len(body[1])
        self.pending.append(AddRun(sink, ledger_id, entry_id, [body], size_bytes))

    def kick(self) -> None:
        """Hand over the pending items."""
        batch = self.pending
        if not batch or (self._submits and self._submitted is not None):
            return
        self.pending = []
        if self._stopped:
            self._refuse(batch)
            return
        outstanding = self.outstanding
        is_idle = not outstanding
        size = records = 0
        for run in batch:
            outstanding[run] = None
            records += len(run.bodies)
            size += run.size_bytes
        self.entries_handed += records
        if self._writer is not None:
            self._writes.begin(self)
        now = time.perf_counter()
        if not (
            is_idle
            and self._submits
            and 0 < size <= SUBMITTED_BYTES_MAX
            and records <= SUBMITTED_RECORDS_MAX
            and self._submit(batch, size, now)
        ):
            self._handed.put((batch, now))
            if self._hold is not None:
                self._hold.handed(batch, size)

    @property
    def can_submit(self) -> bool:
        """Whether there is something to make durable, and at once."""
        return self._writer is not None and self._writer.syncs and self._hold is None

    def begin_submissions(self, submissions: Submissions) -> None:
        """From now on `submitted_is_done` is called when the submissions are readable."""
        self._submissions = submissions
        self._submits = self._submitted is None and not self._stopped

    def end_submissions(self) -> None:
        """It is not called any more: a write that is under way is left to the thread."""
        if self._submits:
            self._submits = False
            if self._submitted is not None:
                self._handed.put(([], time.perf_counter()))
            self.kick()

    def submitted_is_done(self) -> GroupDone | None:
        """The group, if one was submitted that is durable now. `kick` follows when it is answered.

        Raises: DiskFull, DiskFailed: the journal must not be used any more.
        """
        done = self._submitted
        if not self._submits or done is None or self._submissions is None:
            return None
        try:
            result = self._submissions.result()
        except BaseException:
            self._broken = True
            self._submitted = None
            self._writes.end(self)
            raise
        if result is None:
            return None
        if self._finish(result):
            return done
        self._submits = False  # the disk does not take such writes
        self._handed.put((done.batches[0], done.handed_at))
        self.kick()
        return None

    def _submit(self, batch: Batch, size_bytes: int, handed_at: float) -> bool:
        """False: the thread has to write it."""
        writer, submissions = self._writer, self._submissions
        if writer is None or submissions is None or self.is_full or self._kept:
            return False
        entries = _count_entries(batch)
        if not writer.takes_submitted(submissions, size_bytes + 4 * entries):
            return False
        started = time.perf_counter()
        if not writer.submit_group(submissions, _bodies_of(batch), size_bytes + 4 * entries):
            return False
        self._submitted = GroupDone(self, [batch], entries, size_bytes, handed_at, int(Status.OK))
        self._submitted_at = started
        return True

    def _finish(self, result: bool) -> bool:
        """False: it has to be written again."""
        self._submitted = None
        if result and self._writer is not None:
            self.bytes_written += self._writer.group_is_durable()
            self.sync_latency.observe(time.perf_counter() - self._submitted_at)
            self.groups += 1
            self._writes.end(self)
        return result

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
            if self._hold is not None:
                self._hold.end()

    def stop(self) -> None:
        """Ask the thread to finish its batches and end; `join` waits for it. Called from the event
        loop, like `kick`, so a batch is either before the end or refused."""
        self._stopped = True
        self.end_submissions()
        self._handed.put(None)
        if self._hold is not None:
            self._hold.end()

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
            if self._writer is not None and not self._broken:
                self._writer.close()
            if self._submissions is not None:
                self._submissions.close()
        except BaseException as error:
            self._failed(error)

    def _run_group(self) -> bool:
        """Write one group. False when asked to stop and nothing is left."""
        turns = self._turns
        if not turns:
            taken = self._handed.get()
            self._finish_submitted()
            self._take_handed(taken)
        may_hold = self._take_all_handed()
        if self._hold is not None and may_hold and turns:
            self._hold.wait(turns, self._take_all_handed)
        if not turns:
            return False
        batches, handed_at = turns.group(self._group_bytes_max)
        bodies = _bodies_of(self._kept)
        size = _size_of(self._kept)
        entries = 0
        for batch in batches:
            entries += _count_entries(batch)
            size += _size_of(batch)
            bodies += _bodies_of(batch)
        status = int(Status.OK)
        if self._writer is not None:
            self._writes.begin(self)  # what waited for the last group has ended with it
            try:
                is_written = self._write(self._writer, bodies, size)
            finally:
                self._writes.end(self)
            if not is_written:
                status = int(Status.READ_ONLY)
                self._keep(batches)
        self._answer(GroupDone(self, batches, entries, size, handed_at, status))
        return bool(turns) or not self._stop_wanted

    def _take_all_handed(self) -> bool:
        """Whether more of it may be waited for."""
        while not self._stop_wanted:
            try:
                self._take_handed(self._handed.get_nowait())
            except Empty:
                return self._writer is not None and not self.is_full
        return False

    def _finish_submitted(self) -> None:
        """A write that the event loop has left."""
        done = self._submitted
        if done is not None and self._submissions is not None:
            if self._finish(self._submissions.wait()):
                self._answer(done)
            else:
                self._turns.add_batch(done.batches[0], done.handed_at)

    def _take_handed(self, taken: tuple[Batch, float] | None) -> None:
        """None: the event loop has asked to stop, and nothing more comes."""
        if taken is None:
            self._stop_wanted = True
        else:
            self._turns.add_batch(taken[0], taken[1])
            if self._hold is not None:
                self._hold.took(taken[0])

    def _write(self, writer: JournalWriter, bodies: list[EntryBody], size: int) -> bool:
        """False: there is no space, and nothing was written."""
        try:
            if self._try_wanted:
                self._try_wanted = False
                writer.reserve()
                self._set_full(full=False)
            if not bodies:
                return True
            if self.is_full:
                return False
            started = time.perf_counter()
            self.bytes_written += writer.write_group(bodies, size + 4 * len(bodies))
        except JournalFull as error:
            if not self.is_full:
                logger.warning("journal refuses entries: no space", error=str(error))
            self._set_full(full=True)
            return not bodies
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


def _size_of(batch: Batch) -> int:
    size = 0
    for run in batch:
        size += run.size_bytes
    return size


def _bodies_of(batch: Batch) -> list[EntryBody]:
    """The bodies of all its runs that have something to be written."""
    bodies: list[EntryBody] = []
    for run in batch:
        if run.size_bytes:
            bodies += run.bodies
    return bodies
