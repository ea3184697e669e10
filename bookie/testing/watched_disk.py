"""WatchedDisk: another disk, which reports each call to a file of an entry log before it is made.

So a test sees in which order, by which thread and in which sizes a bookie reads, writes and syncs,
and it may let a call wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast, final

if TYPE_CHECKING:
    from collections.abc import Callable

    from bookie.disk import Disk, DiskFile

    Report = Callable[[DiskFile, str, tuple[object, ...]], None]
    """Called with the file, the name of its method, and the arguments, by the caller's thread."""


@final
class WatchedDisk:
    """Everything is passed on to `disk`. An error that `report` raises is the call's."""

    def __init__(self, disk: Disk, report: Report) -> None:
        self._disk = disk
        self._report = report

    def __getattr__(self, name: str) -> object:
        return getattr(self._disk, name)

    def create(self, path: str) -> DiskFile:
        """A new file, which is watched if it is an entry log."""
        return self._watched(self._disk.create(path))

    def open(self, path: str) -> DiskFile:
        """The existing file, which is watched if it is an entry log."""
        return self._watched(self._disk.open(path))

    def _watched(self, file: DiskFile) -> DiskFile:
        if not file.path.endswith(".log"):
            return file
        return cast("DiskFile", _WatchedFile(file, self._report))


@final
class _WatchedFile:
    def __init__(self, file: DiskFile, report: Report) -> None:
        self._file = file
        self._report = report

    def __getattr__(self, name: str) -> object:
        value: object = getattr(self._file, name)
        if not callable(value):
            return value

        def reported(*arguments: object) -> object:
            self._report(self._file, name, arguments)
            return value(*arguments)

        return reported
