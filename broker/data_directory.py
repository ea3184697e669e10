"""The data directory of one process: who holds it, and where things are in it.

`vela.lock` is locked (flock) for the life of the process and holds its process id, so that a second
one is refused by name. The kernel drops the lock when the process dies, however it dies: there is
never a stale lock to delete.
"""

from __future__ import annotations

import fcntl
import os
from typing import TYPE_CHECKING, Final, Self, final

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

LOCK_FILE: Final = "vela.lock"
METADATA: Final = "metadata"
JOURNAL: Final = "bookkeeper/journal"
LEDGERS: Final = "bookkeeper/ledgers"


class DataDirectoryError(Exception):
    """The directory cannot be used; the text is one line for the user."""


@final
class DataDirectory:
    """An open (locked) data directory; a context manager."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = -1

    def __enter__(self) -> Self:
        """Create the directory if need be and lock it. Raises: DataDirectoryError."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(
                self.path / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644
            )
        except OSError as error:
            raise DataDirectoryError(
                f"cannot use data directory {self.path}: {error.strerror}"
            ) from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(self._descriptor, 32).decode(errors="replace").strip() or "unknown"
            os.close(self._descriptor)
            raise DataDirectoryError(
                f"data directory {self.path} is in use by process {holder}"
            ) from None
        os.ftruncate(self._descriptor, 0)
        os.write(self._descriptor, f"{os.getpid()}\n".encode())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Unlock."""
        os.close(self._descriptor)
