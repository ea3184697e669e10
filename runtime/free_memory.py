"""Memory that glibc's allocator keeps although it is free.

* Arenas. By default a process may have 8 arenas per core, and each new thread takes one that is
  little used. Buffers are made by one thread and freed by another, so every arena keeps the most it
  ever needed. A few are enough, because Python's lock lets only one thread at a time make objects.
* Large blocks. glibc maps blocks of more than 128 KB, and later of more than the largest that was
  freed, from the kernel; and it returns what is free at the end of an arena if that is more than
  twice as much. The pages of a buffer of a megabyte therefore went back to the kernel and came
  again, filled with zeros. In some processes there were 320 page faults for each MB of a backlog, a
  third of its CPU. With the setting as if a block of 2 MB had been freed already, there are at most
  8.
* Pages. Free blocks between used ones stay resident. They are returned to the kernel after the
  process has grown, by a thread, since the event loop may wait for an arena meanwhile: about 1 ms
  for 10 MB of free blocks. For that reason it is not done regularly, and not after a much larger
  growth, which is most likely in use (caches).

Measured with mutated frames from 32 connections (`tests.bad_input.fuzz`): in 400 s the resident
memory grew from 93 to 121 MB by default, of which 44 MB were free blocks; with two arenas and pages
returned from 87 to 105 MB in 600 s. CPU per message of the stock Python client, 1 KB unbatched, on
cores busy with other work: 18 to 24 us by default, 20 to 25 us with two arenas, 18 to 22 us with
four.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from typing import TYPE_CHECKING, Final, final

import trio

if TYPE_CHECKING:
    from collections.abc import Callable

_M_ARENA_MAX: Final = -8
"""malloc.h"""
ARENAS_MAX: Final = 4
KEPT_BLOCK_BYTES: Final = 2 << 20
"""Twice what is read at once. An arena keeps twice as much of this that is free at its end."""
CHECK_SECONDS: Final = 30.0
GROWTH_MIN_BYTES: Final = 4 << 20
GROWTH_MAX_BYTES: Final = 64 << 20
_STATUS: Final = "/proc/self/statm"


@cache
def _libc() -> ctypes.CDLL | None:
    """The C library, if it has glibc's allocator (so this is Linux)."""
    libc = ctypes.CDLL(None)
    return libc if hasattr(libc, "mallopt") and hasattr(libc, "malloc_trim") else None


def tune_allocator() -> None:
    """Few arenas, and large blocks from them. Call before the first thread starts. No effect
    without glibc; variables of the environment that it knows go first."""
    libc = _libc()
    if libc is None:
        return
    if "MALLOC_ARENA_MAX" not in os.environ:
        libc.mallopt(_M_ARENA_MAX, ARENAS_MAX)
    bytes(KEPT_BLOCK_BYTES)  # freed at once, and never touched


@final
class Growth:
    """Decides when it is worth while to return free pages."""

    def __init__(self, resident_bytes: int) -> None:
        self._base_bytes = resident_bytes

    def is_worth_while(self, resident_bytes: int) -> bool:
        """Whether the process has grown by an amount that may be free and is returned quickly."""
        growth_bytes = resident_bytes - self._base_bytes
        if growth_bytes < 0 or growth_bytes > GROWTH_MAX_BYTES:
            self.measured(resident_bytes)
        return GROWTH_MIN_BYTES <= growth_bytes <= GROWTH_MAX_BYTES

    def measured(self, resident_bytes: int) -> None:
        """Growth is counted from here."""
        self._base_bytes = resident_bytes


def resident_bytes() -> int:
    """Resident memory of this process (Linux)."""
    with open(_STATUS, encoding="ascii") as fields:
        return int(fields.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def return_free_memory(check_seconds: float = CHECK_SECONDS) -> None:
    """Return free pages at once and then from time to time, until cancelled. Ends at once without
    glibc. A start that replayed journals and checked files leaves 8 MB."""
    libc = _libc()
    if libc is None:
        return
    trim: Callable[[int], int] = libc.malloc_trim
    await trio.to_thread.run_sync(trim, 0)
    growth = Growth(resident_bytes())
    while True:
        await trio.sleep(check_seconds)
        if growth.is_worth_while(resident_bytes()):
            await trio.to_thread.run_sync(trim, 0)
            growth.measured(resident_bytes())
