"""Data belongs to the user whom the server runs as: directories 0700, files 0600.

New files get these modes when they are created. Files of an earlier version had the usual modes,
and RocksDB creates its files with 0644 less the umask, so modes of existing data are also corrected
at start.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import structlog

if TYPE_CHECKING:
    from collections.abc import Iterable

logger = structlog.get_logger()

DIRECTORY_MODE: Final = 0o700
FILE_MODE: Final = 0o600
OTHERS: Final = 0o077
"""Mode bits of the group and of others; the umask of a server."""


def restrict_tree(directory: str) -> None:
    """Remove all rights of the group and of others from a directory and everything below it. For a
    file system without modes, or a file of another user, there is only a warning."""
    restrict(directory)
    for path, directories, files in os.walk(directory):
        for name in (*directories, *files):
            restrict(f"{path}/{name}")


def restrict_if_only(directory: str, names: Iterable[str]) -> None:
    """Restrict a directory, and nothing below it, that holds nothing but `names`. A directory with
    other content (a home directory, a mount point) keeps its mode."""
    try:
        found = os.listdir(directory)
    except FileNotFoundError:
        return
    if set(found) <= set(names):
        restrict(directory)


def restrict(path: str) -> None:
    """The same for one name."""
    try:
        mode = os.lstat(path).st_mode
        if mode & OTHERS and not os.path.islink(path):
            os.chmod(path, mode & 0o7777 & ~OTHERS)
    except FileNotFoundError:
        return
    except OSError as error:
        logger.warning(
            "other users of this machine can read stored data: its mode cannot be changed",
            path=path,
            error=error.strerror,
        )
