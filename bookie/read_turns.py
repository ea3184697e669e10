"""Reads of entry logs give way to records that the journals are making durable.

A reader of backlogs asks for a megabyte at a time, as soon as it has the one before. A record that
is written meanwhile waits at the device for all that is under way there, and a class of the
scheduler (`bookie.background_io`) helps only where the scheduler has classes. So, while records are
being written, a ledger directory has one read under way, of `PIECE_BYTES` at most, and before each
piece waits until no journal writes. Beside 50 readers of one backlog, of 260 MB/s together, the
synced write of a message of 100 KB took 0.8 ms (p50) instead of 2.4, at four fifths of the speed of
reading; the pieces alone (and two reads) gave 1.1 at the same speed. Between two pieces the
directory rests for some times as long as the first one has taken. Otherwise a reader has the device
whenever no journal writes, so that every record meets a read, and processors are busy with what was
read. The rest is before the next piece, so that the reader has its bytes at once, and time in which
nobody reads is part of it. A piece from the page cache takes hardly any time, and so does its rest.

Bytes after the wanted run of entries are not read (`bookie.run_scan`).

A journal that never stops must not stop the readers, or a consumer that is behind would never catch
up with producers at full speed: a piece waits `WAIT_SECONDS_MAX` at most, and then the rest of the
read is one piece. Within these bounds a fast device still reads 200 MB a second. Requests of other
programs to the device cannot be seen here.

Giving way is decided by counts of reads, not by time, so that the same order of events gives the
same calls.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Callable

    from bookie.disk import DiskFile
    from bookie.run_scan import RunScan

READS_AT_ONCE_MAX: Final = 2
"""The bound of a directory. Requests under way at the device go before a write of the journal: 2 MB
take one millisecond of a fast one, and more would not be read faster."""
PIECE_BYTES: Final = 256 << 10
"""A fifth of a millisecond of a fast device. Half of it, and double, made no difference that could
be seen."""
WAIT_SECONDS_MAX: Final = 0.002
"""Twice the usual write of a group of 100 KB."""
YIELDING_READS: Final = 64
"""How many reads give way after the last write. They take 20 ms or more, so reads always give way
to a client that publishes 50 messages a second."""
REST_SHARE: Final = 3
"""Between two pieces, so many times as long as the first one took."""
REST_SECONDS_MAX: Final = 0.001
"""A piece that took long has waited for a processor, or for what others ask of the device."""
REST_SECONDS_MIN: Final = 0.0002
"""Less is saved up for a later rest: a sleep takes the system some time, too."""


@final
class JournalWrites:
    """The journals of a bookie that have records to make durable. From any thread; a journal
    begins and ends once for each group, so both are short."""

    __slots__ = ("_ended", "_under_way", "_waiting", "begun")

    def __init__(self) -> None:
        self._under_way: set[object] = set()
        self._ended = threading.Condition()
        self._waiting = 0
        self.begun = 0
        """Changes whenever a write begins."""

    def begin(self, journal: object) -> None:
        """It has something to write. May be called again before `end`."""
        self._under_way.add(journal)
        self.begun += 1

    def end(self, journal: object) -> None:
        """The write that it had begun is durable, or refused."""
        self._under_way.discard(journal)
        # A reader counts itself before it looks at the set: it sees this, or is seen here.
        if self._waiting and not self._under_way:
            with self._ended:
                self._ended.notify_all()

    def wait_none(self) -> bool:
        """Wait until no journal writes, WAIT_SECONDS_MAX at most (blocking). False: one writes."""
        if not self._under_way:
            return True
        with self._ended:
            self._waiting += 1
            try:
                return self._ended.wait_for(self._is_none_under_way, WAIT_SECONDS_MAX)
            finally:
                self._waiting -= 1

    def _is_none_under_way(self) -> bool:
        return not self._under_way


@final
class ReadTurns:
    """The reads of one ledger directory. From any thread."""

    __slots__ = (
        "_alone",
        "_clock",
        "_reading",
        "_rest",
        "_rests_until",
        "_seen",
        "_writes",
        "_yielding",
    )

    def __init__(
        self,
        writes: JournalWrites,
        rest: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`rest`, `clock`: in seconds, of the same time."""
        self._writes = writes
        self._rest = rest
        self._clock = clock
        self._rests_until = clock()
        """Changed by the one that reads alone."""
        self._reading = threading.BoundedSemaphore(READS_AT_ONCE_MAX)
        self._alone = threading.Lock()
        self._seen = writes.begun
        self._yielding = 0
        """Reads that still give way."""

    def read(self, file: DiskFile, offset: int, size: int, scan: RunScan | None = None) -> bytes:
        """As `DiskFile.read_at`, in its turn. Raises as that. `scan`: of the run that is wanted;
        what gives way ends with the piece that has the end of it."""
        with self._reading:
            if not self._gives_way():
                return file.read_at(offset, size)
            with self._alone:
                return self._read_pieces(file, offset, size, scan)

    def _gives_way(self) -> bool:
        begun = self._writes.begun
        if begun != self._seen:
            self._seen = begun
            self._yielding = YIELDING_READS
        elif self._yielding:
            self._yielding -= 1
        return self._yielding > 0

    def _read_pieces(self, file: DiskFile, offset: int, size: int, scan: RunScan | None) -> bytes:
        pieces: list[bytes] = []
        at = 0
        while True:
            left = size - at
            self._end_rest()
            wanted = min(left, PIECE_BYTES) if self._writes.wait_none() else left
            begun = self._clock()
            piece = file.read_at(offset + at, wanted)
            self._begin_rest(begun)
            if wanted == size:
                return piece
            pieces.append(piece)
            at += wanted
            is_end = at == size or len(piece) < wanted  # all of it, or the end of the file
            if is_end or (scan is not None and scan.ends_with(piece)):
                return b"".join(pieces)

    def _begin_rest(self, begun: float) -> None:
        """After a piece that was begun at this time."""
        ended = self._clock()
        took = ended - begun
        rest = min(took * REST_SHARE, REST_SECONDS_MAX)
        self._rests_until = max(self._rests_until + took, ended) + rest

    def _end_rest(self) -> None:
        left = self._rests_until - self._clock()
        if left >= REST_SECONDS_MIN:
            self._rest(left)
