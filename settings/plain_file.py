"""Reads a file that a configuration names, as a whole.

A path may name a pipe, whose opening waits for a writer, or a device that never ends. A process
that reads such a file at its start, or again while it runs, would stand still silently.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def read_plain_file(path: Path | str, bytes_max: int) -> bytes:
    """The content, and not more than one byte above the bound.

    Raises: OSError: it cannot be read, or is no regular file; ValueError: this is no path.
    """
    with open(path, "rb", opener=_open_without_waiting) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        return file.read(bytes_max + 1)


def _open_without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)
