"""Errors of a bookie's storage, as opposed to answers to requests.

`bookie.api.BookieError` refuses one request. The errors here concern the whole bookie: it refuses
to start, or it stops. They give the place, the extent, and the remedy for the operator.
"""

from __future__ import annotations

import errno
from typing import Final

_NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT)


class StorageError(Exception):
    """Root of the storage errors."""


class Corruption(StorageError):
    """Bytes on disk differ from the bytes written. Never skipped silently.

    The advice is for a single bookie, where there may be no other copy. Without the file the bookie
    starts. Ledgers that had entries only in the file lack them, and their readers get an error.
    """

    def __init__(self, path: str, offset: int, size_bytes: int, detail: str) -> None:
        super().__init__(
            f"{path}: damage at offset {offset}, {size_bytes} bytes: {detail}. "
            "Restore this file from a backup. Without one, move it away and start again: "
            "the entries that only it holds are lost then"
        )
        self.path = path
        self.offset = offset
        self.size_bytes = size_bytes
        self.detail = detail


class DiskFailed(StorageError):
    """A write or fsync failed where it must not. The kernel may have dropped data, so nothing is
    retried: the bookie stops, and its journal decides at the next start."""


class DiskFull(StorageError):
    """No space left for an append. Nothing was lost: the caller keeps its data and tries again."""


class JournalFull(DiskFull):
    """A journal finds no space for its next group. Nothing of the group was written, and the
    journal is as it was, so it can be used again when there is space."""


class BookieRefusesToStart(StorageError):
    """The directories given are not this bookie's, are incomplete, or lack a journal."""


class CookieDamaged(BookieRefusesToStart):
    """The cookie in a directory cannot be read."""


class IndexUnreadable(StorageError):
    """The index cannot return the location of an entry or the row of a ledger. That is an error of
    the request, never "not there"."""


class StorageClosed(StorageError):
    """The bookie ended before the turn of this work came. Nothing of it was begun."""


def failure(error: OSError, what: str, path: str) -> Exception:
    """The failure of storage that an error of the operating system is: DiskFull for lack of space,
    otherwise DiskFailed."""
    if error.errno in _NO_SPACE:
        return DiskFull(f"{what} {path}: {error.strerror}; free some space")
    return DiskFailed(f"{what} {path}: {error.strerror or error}; the bookie stops, check the disk")
