"""IndexProgress: how far the databases of an index had come when they were synced.

A write-ahead log that was cut inside its last synced record looks like one whose last write was
interrupted, and locations that the end row covers would be missing: their entries would be reported
as absent. The sequence numbers of both databases are therefore noted outside of them, after each
sync of a checkpoint, in the file `indexProgress` of the ledger directory, a `SlotFile`:

    value = int64 sequence number of `locations`, int64 sequence number of `ledgers`

A database that is behind its number at start lost changes, or is an older copy. A directory written
by BookKeeper or by an earlier version has no such file. A rebuild of the index removes it.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, final

from bookie.errors import BookieRefusesToStart, DiskFull
from bookie.index_rocksdb import LEDGERS, LOCATIONS
from bookie.slot_file import SlotFile

if TYPE_CHECKING:
    from bookie.disk import Disk

FILE_NAME: Final = "indexProgress"
_VALUE: Final = struct.Struct(">qq")


@final
class IndexProgress:
    """The file of one ledger directory."""

    __slots__ = ("_directory", "_file")

    def __init__(self, disk: Disk, directory: str) -> None:
        self._directory = directory
        self._file = SlotFile(disk, f"{directory}/{FILE_NAME}")

    def check(self, reached: tuple[int, int]) -> None:
        """With the numbers of the databases before anything was written to them.

        Raises: BookieRefusesToStart.
        """
        numbers = self.synced()
        if numbers is None:
            return
        for name, number, found in zip((LOCATIONS, LEDGERS), numbers, reached, strict=True):
            if found < number:
                raise BookieRefusesToStart(
                    f"{self._directory}/{name}: the database ends at change {found}, and change "
                    f"{number} was synced: it lost the end of its write-ahead log, or is an older "
                    "copy. Rebuild the index: vela bookie rebuild-index"
                )

    def synced(self) -> tuple[int, int] | None:
        """The numbers up to which locations and ledgers were synced; None: not known."""
        value = self._file.load()
        if len(value) != _VALUE.size:
            return None
        locations, ledgers = _VALUE.unpack(value)
        return locations, ledgers

    def store(self, sequences: tuple[int, int]) -> None:
        """After a sync that covers these numbers.

        Raises: DiskFailed.
        """
        try:
            self._file.store(_VALUE.pack(*sequences))
        except DiskFull:
            return  # the numbers before these are there, and they are still true
