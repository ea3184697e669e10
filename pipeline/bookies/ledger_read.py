"""One range of a ledger being read: which requests to send, and what the answers mean. Pure.

The range is cut into runs, in order; a run has the same bookies for all of its entries. Each run is
asked of one bookie at a time, several runs are under way at once, and entries leave in order.

- A run of several entries is one batch read. A bookie may answer it in part: the rest is asked
  again, from the first entry that is missing. Runs after the first grow or shrink with the size of
  the entries seen.
- Of a run of one entry (striped ledgers) many are under way.
- NO_LEDGER and NO_ENTRY are proofs of that bookie, an unknown answer or a damaged entry is none:
  all of them move on to the next bookie. A bookie that is away or overloaded is asked again after
  a pause, the others meanwhile.
- When nothing comes for the timeout, or every bookie has given its word and none the entry, the
  read fails at that entry, and not before everything ahead of it was taken.

A bookie that does not know batch reads (older than BookKeeper 4.17) refuses them or closes the
connection: from then on it gets single reads.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, final

from pipeline.bookies.errors import (
    BookieReadError,
    BookieUnavailable,
    EntryDamaged,
    EntryMissing,
    LedgerMissing,
)
from protocol.bookkeeper import messages as m

if TYPE_CHECKING:
    from collections.abc import Sequence

    from protocol.bookkeeper.ledger_layout import LedgerLayout

PAUSE_SECONDS: Final = 0.05
PAUSE_SECONDS_MAX: Final = 2.0
_FIRST_RUN_ENTRIES: Final = 64
"""Length of a run as long as nothing is known of the size of the entries."""
_RUN_ENTRIES_MAX: Final = 5_000
_HEAD_SIZE_BYTES: Final = 52
"""Before the payload, with the largest digest there is."""
_LOSSES_BEFORE_SINGLE_READS: Final = 2
_NO_BATCH_READS: Final = frozenset({m.BAD_REQUEST, m.BAD_VERSION})
_PROOFS: Final = {m.NO_ENTRY: "it has no such entry", m.NO_LEDGER: "it has no such ledger"}
_PROVED: Final = frozenset(_PROOFS.values())


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLimits:
    """How much is under way at once, and how long nothing may come."""

    timeout_seconds: float = 30.0
    """How long nothing at all may come before the read gives up."""
    run_size_bytes: int = 1 << 20
    runs_in_flight: int = 4
    reads_in_flight: int = 128


class Request(NamedTuple):
    """To be sent to a bookie. `entry_count` 1 is a plain read, else a batch read with the tag."""

    bookie_id: str
    tag: int
    entry_id: int
    entry_count: int


@final
@dataclass(slots=True)
class _Run:
    """Entries `next_entry` to `last` are still wanted; `payloads` holds what is before."""

    first: int
    last: int
    bookies: tuple[str, ...]
    payloads: list[bytes] = field(default_factory=list)
    asked: str | None = None
    tag: int = 0
    asked_count: int = 0
    words: dict[str, str] = field(default_factory=dict)
    """Answers of bookies that need not be asked again for `next_entry`."""
    has_ledger: bool = False
    is_damaged: bool = False

    @property
    def next_entry(self) -> int:
        return self.first + len(self.payloads)

    @property
    def is_done(self) -> bool:
        return self.next_entry > self.last


@final
class LedgerRead:
    """See the module docstring. The shell sends `requests`, hands in answers, and takes entries.

    Times are seconds of any clock that only grows, the same for all calls.
    """

    def __init__(
        self,
        layout: LedgerLayout,
        first: int,
        last: int,
        limits: ReadLimits,
        now: float,
        password: bytes = b"",
    ) -> None:
        if first < 0 or last < first:
            raise ValueError(f"no range of entries: {first} to {last}")
        self._layout = layout
        self._limits = limits
        self._verified = layout.digest(password).verified_payloads
        self._next_run = first
        self._last = last
        self._runs: deque[_Run] = deque()
        self._by_tag: dict[int, _Run] = {}
        self._next_tag = 1
        self._run_entries = self._expected_run_entries()
        self._with_batch: set[str] = set()
        self._without_batch: set[str] = set()
        self._losses: Counter[str] = Counter()
        self._pauses: dict[str, tuple[float, float]] = {}
        """Bookie -> (not before, length of its last pause)."""
        self._reasons: dict[str, str] = {}
        """Bookie -> why it could not be asked lately."""
        self._progress_at = now

    @property
    def is_done(self) -> bool:
        """Everything was taken."""
        return not self._runs and self._next_run > self._last

    def requests(self, now: float) -> list[Request]:
        """The requests to send now."""
        wanted: list[Request] = []
        while self._next_run <= self._last and self._has_room():
            self._begin_run()
        for run in self._runs:
            if run.asked is None and not run.is_done:
                bookie_id = self._choose(run, now)
                if bookie_id is not None:
                    wanted.append(self._ask(run, bookie_id))
        return wanted

    def on_resumed(self, now: float) -> None:
        """The consumer of the entries was busy with them: that time does not count as silence."""
        self._progress_at = now

    def on_response(
        self, bookie_id: str, tag: int, status: int, bodies: Sequence[bytes], now: float
    ) -> None:
        """The answer to the request with the tag; `bodies` only when the status is OK."""
        run = self._by_tag.pop(tag, None)
        if run is None or run.asked != bookie_id:
            return  # of a request that was given up
        run.asked = None
        if run.asked_count > 1 and status not in _NO_BATCH_READS:
            self._with_batch.add(bookie_id)
        if status == m.OK:
            self._accept(run, bookie_id, bodies, now)
        elif status == m.TOO_MANY_REQUESTS:
            self._reasons[bookie_id] = "it is overloaded"
            self._pause(bookie_id, now)
        elif status in _PROOFS:
            run.words[bookie_id] = _PROOFS[status]
            run.has_ledger |= status == m.NO_ENTRY
        elif status in _NO_BATCH_READS and run.asked_count > 1:
            self._without_batch.add(bookie_id)
        else:
            run.words[bookie_id] = f"it answered with status {status}"

    def on_lost(self, bookie_id: str, reason: str, now: float) -> None:
        """No answer will come to anything the bookie was asked."""
        self._reasons[bookie_id] = reason
        self._pause(bookie_id, now)
        asked = [run for run in self._runs if run.asked == bookie_id]
        for run in asked:
            self._by_tag.pop(run.tag, None)
            run.asked = None
        if bookie_id not in self._with_batch and any(run.asked_count > 1 for run in asked):
            self._losses[bookie_id] += 1
            if self._losses[bookie_id] >= _LOSSES_BEFORE_SINGLE_READS:
                self._without_batch.add(bookie_id)

    def take(self, now: float) -> list[tuple[int, list[bytes]]]:
        """(first entry id, payloads) of what is complete, in order.

        Raises: BookieReadError: the next entry cannot be had. Everything before it was taken.
        """
        taken: list[tuple[int, list[bytes]]] = []
        while self._runs and self._runs[0].is_done:
            run = self._runs.popleft()
            taken.append((run.first, run.payloads))
        if not taken and self._runs:
            run = self._runs[0]
            failure = self._failure_of(run, now)
            if failure is not None and not run.payloads:
                raise failure
            if failure is not None:
                taken.append((run.first, run.payloads))
                run.first, run.payloads = run.next_entry, []
        return taken

    def wait_until(self, now: float) -> float:
        """When to call again although nothing has come: a pause or the patience ends."""
        times = [
            self._pauses[bookie_id][0]
            for run in self._runs
            if run.asked is None
            for bookie_id in run.bookies
            if bookie_id in self._pauses and self._pauses[bookie_id][0] > now
        ]
        return min([*times, self._progress_at + self._limits.timeout_seconds])

    def _expected_run_entries(self) -> int:
        size = self._layout.mean_entry_size_bytes
        return self._entries_that_fit(size + _HEAD_SIZE_BYTES) if size else _FIRST_RUN_ENTRIES

    def _entries_that_fit(self, body_size: int) -> int:
        """A little fewer, so that entries of about this size come with one answer, not with two."""
        run_size = self._limits.run_size_bytes
        return max(1, min((run_size - run_size // 16) // (body_size + 4), _RUN_ENTRIES_MAX))

    def _has_room(self) -> bool:
        limits = self._limits
        is_single = self._is_single() and all(run.first == run.last for run in self._runs)
        return len(self._runs) < (limits.reads_in_flight if is_single else limits.runs_in_flight)

    def _is_single(self) -> bool:
        last, bookies = self._layout.run_at(self._next_run, self._next_run + 1)
        return last == self._next_run or self._without_batch.issuperset(bookies)

    def _begin_run(self) -> None:
        first = self._next_run
        wanted_last = min(self._last, first + self._run_entries - 1)
        last, bookies = self._layout.run_at(first, wanted_last)
        if self._without_batch.issuperset(bookies):
            last = first
        self._runs.append(_Run(first, last, bookies))
        self._next_run = last + 1

    def _choose(self, run: _Run, now: float) -> str | None:
        for bookie_id in run.bookies:
            if bookie_id not in run.words and self._pauses.get(bookie_id, (now, 0))[0] <= now:
                return bookie_id
        return None

    def _ask(self, run: _Run, bookie_id: str) -> Request:
        count = 1 if bookie_id in self._without_batch else run.last - run.next_entry + 1
        run.asked = bookie_id
        run.asked_count = count
        run.tag = self._next_tag
        self._next_tag += 1
        self._by_tag[run.tag] = run
        return Request(bookie_id, run.tag, run.next_entry, count)

    def _accept(self, run: _Run, bookie_id: str, bodies: Sequence[bytes], now: float) -> None:
        asked = list(bodies[: run.asked_count])
        payloads, problem = self._verified(asked, self._layout.ledger_id, run.next_entry)
        run.payloads += payloads
        count = len(payloads)
        size = sum([len(body) for body in asked[:count]])
        self._pauses.pop(bookie_id, None)
        if count:
            self._progress_at = now
            # Another entry is next: what was said about the last one is no longer of interest.
            run.words.clear()
            run.is_damaged = run.has_ledger = False
            if run.asked_count > 1:
                self._run_entries = self._entries_that_fit(size // count)
        if count < len(asked) or not count:
            run.words[bookie_id] = problem or "it answered without an entry"
            run.is_damaged = True

    def _pause(self, bookie_id: str, now: float) -> None:
        length = self._pauses.get(bookie_id, (0.0, PAUSE_SECONDS / 2))[1] * 2
        length = min(length, PAUSE_SECONDS_MAX)
        self._pauses[bookie_id] = (now + length, length)

    def _failure_of(self, run: _Run, now: float) -> BookieReadError | None:
        """Why the next entry of the run cannot be had; None: it still may."""
        is_late = now - self._progress_at >= self._limits.timeout_seconds
        unheard = [bookie_id for bookie_id in run.bookies if bookie_id not in run.words]
        if not is_late and (run.asked is not None or unheard):
            return None
        said = [f"{bookie_id}: {word}" for bookie_id, word in run.words.items()]
        said += [f"{bookie_id}: {self._reasons.get(bookie_id, 'silent')}" for bookie_id in unheard]
        kind: type[BookieReadError]
        if unheard:
            kind = BookieUnavailable
        elif run.is_damaged:
            kind = EntryDamaged
        elif not _PROVED.issuperset(run.words.values()):
            kind = BookieUnavailable
        else:
            kind = EntryMissing if run.has_ledger else LedgerMissing
        return kind(self._layout.ledger_id, run.next_entry, "; ".join(said))
