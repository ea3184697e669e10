"""Reads files that a configuration names: never waits, whatever is at that path.

A pipe would hold the thread that reads it until somebody writes, and a device may have no end. Both
can take the place of a file while the server runs, since files are looked at again.
"""

from __future__ import annotations

import errno
import os
import stat


def read_regular(path: str | os.PathLike[str], bytes_max: int) -> bytes:
    """The first bytes of a file, so many at most.

    Raises: OSError: it cannot be read, or is no regular file; ValueError: this is no path.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file")
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(bytes_max)
    finally:
        os.close(descriptor)
