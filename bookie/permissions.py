"""Data belongs to the user whom the server runs as: directories 0700, files 0600.

New files get these modes where they are created. Files of an earlier version had the usual ones,
and RocksDB creates its files with 0644 less the umask, so trees of data are also set right at
start.
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
"""Bits of a mode that belong to the group and to everybody; the umask of a server."""


def restrict_tree(directory: str) -> None:
    """Take all rights from the group and from others, for a directory and all that is below it. A
    file system that keeps no modes, or a file of another user, is only warned of."""
    restrict(directory)
    for path, directories, files in os.walk(directory):
        for name in (*directories, *files):
            restrict(f"{path}/{name}")


def restrict_if_only(directory: str, names: Iterable[str]) -> None:
    """Restrict a directory, and nothing below it, that holds nothing but `names`: one that is
    shared with other things (a home directory, a mount point) keeps its mode."""
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
