"""The data directory of one process: its lock and its layout.

`vela.lock` is locked for the life of the process (`runtime.file_lock`), so that a second process is
refused with the id of the first.

Only the user of the process can read it. The modes of files of an earlier version are corrected
when it is opened, and the umask of the process applies to new ones, including RocksDB's.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, Self, final

from bookie.permissions import (
    DIRECTORY_MODE,
    OTHERS,
    restrict,
    restrict_if_only,
    restrict_tree,
)
from runtime.file_lock import FileInUse, take_lock

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

LOCK_FILE: Final = "vela.lock"
METADATA: Final = "metadata"
BOOKKEEPER: Final = "bookkeeper"
JOURNAL: Final = f"{BOOKKEEPER}/journal"
LEDGERS: Final = f"{BOOKKEEPER}/ledgers"


_OF_VELA: Final = (LOCK_FILE, f"{JOURNAL}/current", f"{LEDGERS}/current")
_OF_PULSAR: Final = (
    "metadata/CURRENT",
    "bookkeeper*/current",
    "zookeeper*/version-2",
    "standalone/bookkeeper*/current",
    "standalone/zookeeper*",
    "current/VERSION",
)
"""Files that a standalone Pulsar of any version, or one of its bookies, leaves in a data directory:
glob patterns, seen with 2.10 (ZooKeeper) and 4.0 (RocksDB)."""


class DataDirectoryError(Exception):
    """The directory cannot be used. The text is one line for the user."""


@final
class DataDirectory:
    """An open (locked) data directory; a context manager."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = -1
        self._umask = 0

    def __enter__(self) -> Self:
        """Create the directory if necessary, lock it, and restrict it to this user.

        Raises: DataDirectoryError.
        """
        _refuse_unusable(self.path)
        try:
            self.path.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)
            self._descriptor = take_lock(str(self.path / LOCK_FILE))
        except FileInUse as error:
            raise DataDirectoryError(f"data directory {self.path} is {error}") from None
        except OSError as error:
            raise DataDirectoryError(
                f"cannot use data directory {self.path}: {error.strerror}"
            ) from error
        self._umask = os.umask(OTHERS)
        self._restrict()
        return self

    def _restrict(self) -> None:
        restrict(str(self.path / LOCK_FILE))
        restrict_if_only(str(self.path), {LOCK_FILE, METADATA, BOOKKEEPER})
        for name in (METADATA, BOOKKEEPER):
            if (self.path / name).exists():
                restrict_tree(str(self.path / name))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Unlock."""
        os.umask(self._umask)
        os.close(self._descriptor)


def refuse_several_bookies(path: Path) -> None:
    """Refuse the directory of several processes (`cli/machine`): one would serve a part.

    Raises: DataDirectoryError.
    """
    if any(path.glob(f"{BOOKKEEPER}[2-9]*/*/current/VERSION")):
        raise DataDirectoryError(
            f"data directory {path} has data of several bookies: start with --brokers and --bookies"
        )


def _refuse_unusable(path: Path) -> None:
    """Refuse a path that cannot be recorded, or data of other programs.

    Changes nothing, so that real Pulsar finds its data unchanged.

    Raises: DataDirectoryError.
    """
    if "," in str(path):
        raise DataDirectoryError(
            f"cannot use data directory {path}: the bookie's files separate directories by commas"
        )
    try:
        if any((path / place).exists() for place in _OF_VELA):
            return
        found = next((each for pattern in _OF_PULSAR for each in path.glob(pattern)), None)
    except OSError as error:
        raise DataDirectoryError(f"cannot use data directory {path}: {error.strerror}") from error
    if found is not None:
        raise DataDirectoryError(
            f"data directory {path} holds {found.relative_to(path)} and no {LOCK_FILE}: it looks "
            "like the data of a real Pulsar, which Vela does not take over. Choose another "
            f"--data-dir; for a copy of Vela's own data make an empty {LOCK_FILE} in it"
        )
