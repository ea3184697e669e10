"""Gives the space of large removed files back bit by bit.

A file system frees the blocks of a file in one transaction, for which the syncs of other files
wait: those of 2 GB, a full journal, take a second. A file that is cut step by step, with pauses,
lets them pass in between.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from typing import Final, final

STEP_BYTES: Final = 16 * 1024 * 1024
"""Freed within a few milliseconds."""
PAUSE_SHARE: Final = 4
"""A pause is so many times as long as the step before."""


@final
class FreedSpace:
    """The removed files of a process whose blocks are not free yet. From any thread.

    A process that ends leaves the rest to the system, which frees it at once.
    """

    def __init__(self, step_bytes: int = STEP_BYTES) -> None:
        self._step_bytes = step_bytes
        self._lock = threading.Lock()
        self._removed: deque[tuple[int, str]] = deque()
        self._thread: threading.Thread | None = None

    def remove(self, path: str) -> None:
        """Remove a file that nothing has open. Its name is gone when this returns.

        Raises: OSError: it is as it was.
        """
        if os.stat(path).st_size <= self._step_bytes:
            os.unlink(path)
            return
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.unlink(path)
        except BaseException:
            os.close(descriptor)
            raise
        with self._lock:
            self._removed.append((descriptor, os.path.dirname(path)))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="free space", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        """Until nothing is left."""
        while True:
            with self._lock:
                if not self._removed:
                    self._thread = None
                    return
                descriptor, directory = self._removed.popleft()
            with contextlib.suppress(OSError):
                self._free(descriptor, directory)
            os.close(descriptor)  # of what could not be cut, this frees the rest in one piece

    def _free(self, descriptor: int, directory: str) -> None:
        _sync(directory)  # so that no crash brings the name back with a part of the content
        size = os.fstat(descriptor).st_size
        while size > 0:
            size = max(0, size - self._step_bytes)
            begun = time.monotonic()
            os.ftruncate(descriptor, size)
            time.sleep(PAUSE_SHARE * (time.monotonic() - begun))


def _sync(directory: str) -> None:
    descriptor = os.open(directory or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
