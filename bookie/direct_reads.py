"""DirectReads: large reads of an entry log past the page cache, the first time.

Large flushes leave nothing in the page cache (`direct_appends`), and a read that fills it costs
several times the CPU of one past it: pages have to be found, filled, copied and dropped again, some
of which others need. But a place that was read before will likely be read once more, by the next
subscription on the same backlog, and the device may be slow. So a range is read past the page cache
once, and through it from then on, which keeps it there for the third one (docs/decisions/0050).

Both kinds of reads give the same bytes: the system writes first what was written through the page
cache and is not synced yet.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from typing import Final, final

from bookie.direct_io import ALIGNMENT, aligned_memory

DIRECT_READ_BYTES_MIN: Final = 64 << 10
"""The smallest read of a run of entries. Smaller ones are single entries, and cost about the same
in both ways."""
UNIT_BYTES: Final = 64 << 10
"""Reads are remembered by units of this size: 2 KB for a log of a gigabyte."""
MEMORY_BYTES: Final = (1 << 20) + 2 * ALIGNMENT
"""The largest read of a run, wherever it begins. Larger ones are of one large entry."""
MEMORIES_KEPT_MAX: Final = 2
"""Between reads. A directory has so many under way."""

_DIRECT: Final[int] = getattr(os, "O_DIRECT", 0)
_memories: deque[memoryview] = deque(maxlen=MEMORIES_KEPT_MAX)


@final
class DirectReads:
    """The direct reads of one open file. From any thread."""

    __slots__ = ("_descriptor", "_lock", "_seen")

    def __init__(self, path: str, descriptor: int) -> None:
        """`path`: of the file that is open as `descriptor`. If it has another name by now, or the
        system has no such reads, all are refused."""
        self._descriptor = -1
        self._lock = threading.Lock()
        self._seen = bytearray()
        """A bit for each unit that was read."""
        if not _DIRECT:
            return
        try:
            direct = os.open(path, os.O_RDONLY | os.O_CLOEXEC | _DIRECT)
        except OSError:
            return
        if os.path.sameopenfile(direct, descriptor):
            self._descriptor = direct
        else:
            os.close(direct)

    def read(self, offset: int, size: int) -> bytes | None:
        """Up to `size` bytes; fewer only at the end of the file. None: to be read in the usual way,
        because it was read before, or because this is refused."""
        begin = offset - offset % ALIGNMENT
        end = offset + size
        end += -end % ALIGNMENT
        if self._descriptor < 0 or size < DIRECT_READ_BYTES_MIN or end - begin > MEMORY_BYTES:
            return None
        if not self._is_first(offset, size):
            return None
        memory = None
        try:
            memory = _taken_memory()
            count = os.preadv(self._descriptor, [memory[: end - begin]], begin)
            if begin + count < min(offset + size, os.fstat(self._descriptor).st_size):
                return None
            return bytes(memory[offset - begin : min(count, offset - begin + size)])
        except OSError:
            return None  # whatever it is, the usual way meets and reports it
        finally:
            if memory is not None:
                _memories.append(memory)

    def close(self) -> None:
        """Release the handle. No read is under way."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _is_first(self, offset: int, size: int) -> bool:
        """Whether a part of this range has not been read yet. It has been from now on."""
        first = offset // UNIT_BYTES
        last = (offset + size - 1) // UNIT_BYTES
        is_first = False
        with self._lock:
            seen = self._seen
            if len(seen) <= last // 8:
                seen.extend(bytes(last // 8 + 1 - len(seen)))
            for unit in range(first, last + 1):
                bit = 1 << unit % 8
                if not seen[unit // 8] & bit:
                    is_first = True
                    seen[unit // 8] |= bit
        return is_first


def _taken_memory() -> memoryview:
    """For one read. Raises: OSError: there is none."""
    try:
        return _memories.pop()
    except IndexError:
        return aligned_memory(MEMORY_BYTES)
