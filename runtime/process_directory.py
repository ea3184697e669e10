"""Directories of running processes, below the one for temporary files.

Each has a file that its process locks for as long as it lives (`runtime.file_lock`). A process that
is killed leaves its directory; the next one that asks for a directory removes it. Only directories
of this user are looked at, and only those whose lock is free are removed. In these only sockets are
deleted: a directory with anything else stays.
"""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from runtime.file_lock import FileInUse, take_lock

if TYPE_CHECKING:
    from collections.abc import Iterator

LOCK_NAME: Final = "owner.lock"


@contextmanager
def process_directory(prefix: str) -> Iterator[str]:
    """A new directory for this process, whose name begins with `prefix`; it is removed at the end.

    Raises: OSError.
    """
    remove_left(prefix)
    directory, lock = _make(prefix)
    try:
        yield directory
    finally:
        _remove(directory)
        os.close(lock)


def remove_left(prefix: str) -> None:
    """Remove the directories whose processes have ended without removing them. What cannot be
    removed stays."""
    names: list[str] = []
    with suppress(OSError), os.scandir(tempfile.gettempdir()) as found:
        names += [each.path for each in found if each.name.startswith(prefix)]
    for directory in names:
        with suppress(OSError):
            if _is_ours(directory):
                _remove_if_left(directory)


def _make(prefix: str) -> tuple[str, int]:
    """A directory and the descriptor of its lock. Another process may see the directory before it
    is locked and remove it: then there is another one."""
    while True:
        directory = tempfile.mkdtemp(prefix=prefix)
        path = f"{directory}/{LOCK_NAME}"
        try:
            lock = take_lock(path)
        except (FileInUse, FileNotFoundError):
            continue
        with suppress(FileNotFoundError):
            if os.path.samestat(os.stat(path), os.fstat(lock)):
                return directory, lock
        os.close(lock)


def _is_ours(directory: str) -> bool:
    status = os.lstat(directory)
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()


def _remove_if_left(directory: str) -> None:
    """Raises: OSError: the directory has no lock, among others."""
    if not os.listdir(directory):
        os.rmdir(directory)  # its process ended before it locked it, or will take another one
        return
    path = f"{directory}/{LOCK_NAME}"
    status = os.lstat(path)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
        return  # locking it would write into a file that is something else, too
    try:
        lock = take_lock(path)
    except FileInUse:
        return
    try:
        _remove(directory)
    finally:
        os.close(lock)


def _remove(directory: str) -> None:
    """The sockets, the lock, and the directory if nothing else is in it."""
    with os.scandir(directory) as found:
        entries = {each.name: each.stat(follow_symlinks=False).st_mode for each in found}
    for name, mode in entries.items():
        if stat.S_ISSOCK(mode):
            with suppress(OSError):
                os.unlink(f"{directory}/{name}")
    if all(stat.S_ISSOCK(mode) or name == LOCK_NAME for name, mode in entries.items()):
        with suppress(OSError):
            os.unlink(f"{directory}/{LOCK_NAME}")
            os.rmdir(directory)
