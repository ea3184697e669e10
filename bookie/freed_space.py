"""Frees the space of large removed files bit by bit.

A file system frees the blocks of a file in one transaction, for which the syncs of other files
wait: those of a full journal, of 2 GB, take a second, those of an entry log a quarter. A file that
is cut step by step, with pauses, lets them pass in between. It is cut when nothing in this process
has it open: a reader may have found it just before its name was removed.

Journals that are written at full speed are removed as fast. A file that waits to be freed has no
name but takes space, up to 40 GB together in a benchmark. Pauses therefore become shorter as more
bytes wait, and there are none when `WAITING_BYTES_MAX` wait.

The kernel reports a failed sync once: a later sync of the same directory succeeds. The failure is
therefore kept, and `check` raises it for the callers that sync directories.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeVar, final
from weakref import WeakSet

if TYPE_CHECKING:
    from collections.abc import Callable

STEP_BYTES: Final = 16 * 1024 * 1024
"""Freed within a few milliseconds."""
PAUSE_SHARE: Final = 4
"""A pause is so many times as long as the step before, at most."""
WAITING_BYTES_MAX: Final = 8 << 30
"""Four full journals. If so much waits, space is worth more than syncs that need not wait."""
PAUSE_SECONDS_MAX: Final = 0.25
"""A step of a process that was stopped, or whose machine slept, seems to have taken hours."""
LOOK_SECONDS: Final = 0.1
"""Between two looks at whether files are still open."""
_DIRECTORY_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class OpenFile(Protocol):
    """A file that this process has opened. It may be dropped without being closed."""

    path: str

    @property
    def is_open(self) -> bool:
        """False: it is read and written no more."""


F = TypeVar("F", bound=OpenFile)


def pause_seconds(step_seconds: float, waiting_bytes: int) -> float:
    """How long the pause after such a step is, when so much waits to be freed."""
    share = PAUSE_SHARE * max(0.0, 1 - waiting_bytes / WAITING_BYTES_MAX)
    return min(step_seconds * share, PAUSE_SECONDS_MAX)


@final
@dataclass(frozen=True, slots=True)
class _Removed:
    descriptor: int
    directory: int
    """Descriptor of the directory that had the name."""
    size_bytes: int
    """When it was removed. Nobody writes it any more."""
    users: WeakSet[OpenFile]
    descriptors: ExitStack
    """Closes both."""

    @property
    def is_used(self) -> bool:
        return any(each.is_open for each in self.users)


@final
class FreedSpace:
    """The removed files of a process whose blocks are not free yet. From any thread.

    A process that ends leaves the rest to the system, which frees it at once.
    """

    def __init__(self, step_bytes: int = STEP_BYTES) -> None:
        self._step_bytes = step_bytes
        self._lock = threading.Lock()
        self._open: WeakSet[OpenFile] = WeakSet()
        self._removed: deque[_Removed] = deque()
        self._waiting_bytes = 0
        """Bytes of removed files that are not freed yet."""
        self._thread: threading.Thread | None = None
        self._syncing = threading.Lock()
        """Held from the beginning of a sync until its failure is kept."""
        self._failure: OSError | None = None

    @property
    def waiting_bytes(self) -> int:
        """The bytes that removed files still take of the disk. Files that are not freed in steps
        count as nothing."""
        return self._waiting_bytes

    def check(self) -> None:
        """Call after each sync of a directory: the kernel may have reported its failure to a sync
        of this thread.

        Raises: OSError: a directory could not be synced, or a removed file not be cut. Each time.
        """
        with self._syncing:
            if self._failure is not None:
                raise self._failure

    def opened(self, opening: Callable[[], F]) -> F:
        """The file that the call opens, which is not cut as long as it is open."""
        with self._lock:
            file = opening()
            self._open.add(file)
        return file

    def remove(self, path: str) -> None:
        """Remove a file. Its name is gone when this returns.

        Raises: OSError: it is as it was.
        """
        size = os.stat(path).st_size
        if size <= self._step_bytes:
            os.unlink(path)
            return
        with ExitStack() as stack:
            descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
            stack.callback(os.close, descriptor)
            directory = os.open(os.path.dirname(path) or ".", _DIRECTORY_FLAGS)
            stack.callback(os.close, directory)
            with self._lock:
                os.unlink(path)
                users = WeakSet(each for each in self._open if each.path == path)
                self._removed.append(_Removed(descriptor, directory, size, users, stack.pop_all()))
                self._waiting_bytes += size
                if self._thread is None:
                    run = threading.Thread(target=self._run, name="free space", daemon=True)
                    self._thread = run
                    run.start()

    def _run(self) -> None:
        """Until nothing is left."""
        while True:
            with self._lock:
                if not self._removed:
                    self._thread = None
                    return
                removed = self._removed.popleft()
            if removed.is_used:
                self._removed.append(removed)
                time.sleep(LOOK_SECONDS)
                continue
            left = removed.size_bytes
            with removed.descriptors:  # what could not be cut is freed in one piece
                left = self._free(removed)
            self._freed(left)

    def _freed(self, size_bytes: int) -> None:
        with self._lock:
            self._waiting_bytes -= size_bytes

    def _free(self, removed: _Removed) -> int:
        """The bytes that are left."""
        with self._syncing:
            if self._failure is not None:
                return removed.size_bytes
            try:
                # No crash may bring the name back with a part of the content.
                os.fsync(removed.directory)
            except OSError as error:
                self._failure = error
                return removed.size_bytes
        left = removed.size_bytes
        try:
            while left > 0:
                step = min(left, self._step_bytes)
                begun = time.monotonic()
                os.ftruncate(removed.descriptor, left - step)
                left -= step
                self._freed(step)
                took = time.monotonic() - begun
                time.sleep(pause_seconds(took, self._waiting_bytes))
        except OSError as error:
            self._failure = error
        return left
