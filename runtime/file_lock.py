"""A file that one process at a time holds.

The lock (flock) lasts as long as the process, whatever ends it, so there is never a stale lock to
delete. The file holds the id of the process, for the error message of the next one.
"""

from __future__ import annotations

import fcntl
import os
from typing import Final

FILE_MODE: Final = 0o600


class FileInUse(Exception):
    """Another process holds the lock."""

    def __init__(self, holder: str) -> None:
        super().__init__(f"in use by process {holder}")
        self.holder = holder
        """Its process id, or `unknown`."""


def take_lock(path: str) -> int:
    """Create the file if need be, and lock it. Returns the descriptor that keeps the lock. What is
    in the file is replaced, so a symbolic link to another file is refused.

    Raises: FileInUse, OSError.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(path, flags, FILE_MODE)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.read(descriptor, 32).decode(errors="replace").strip() or "unknown"
        os.close(descriptor)
        raise FileInUse(holder) from None
    os.ftruncate(descriptor, 0)
    os.write(descriptor, f"{os.getpid()}\n".encode())
    return descriptor
