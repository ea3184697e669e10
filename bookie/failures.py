"""Which failure of a bookie's storage an error of the operating system is."""

from __future__ import annotations

import errno
from typing import Final

from bookie.errors import DiskFailed, DiskFull

_NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT)


def failure(error: OSError, what: str, path: str) -> Exception:
    """DiskFull for lack of space, otherwise DiskFailed."""
    if error.errno in _NO_SPACE:
        return DiskFull(f"{what} {path}: {error.strerror}; free some space")
    return DiskFailed(f"{what} {path}: {error.strerror or error}; the bookie stops, check the disk")
