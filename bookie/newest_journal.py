"""NewestJournal: records which journal is the newest, outside of the journals.

A journal that is gone leaves no trace in the other ones. So the name of each new journal is written
to every ledger directory before the first entry in it is acknowledged, in the file `newestJournal`
(`newestJournal.<n>` for the n-th further journal directory), a `SlotFile`:

    value = int64 journal id, int64 salt of its header, int32 MB reserved for it at its creation

At start the highest id counts. A directory written by BookKeeper or by an earlier version has no
such file. If one of these ran after this version, the mark is in a journal after the one named, and
the name says nothing.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import structlog

from bookie.errors import DiskFull
from bookie.slot_file import SlotFile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bookie.disk import Disk

logger = structlog.get_logger()

FILE_NAME: Final = "newestJournal"
_VALUE: Final = struct.Struct(">qQI")


@final
@dataclass(frozen=True, slots=True, order=True)
class JournalName:
    """A journal as it was created."""

    journal_id: int
    salt: int
    reserved_mb: int
    """The file is at least that long until it is closed."""


@final
class NewestJournal:
    """The name of the newest journal of one journal directory, in all ledger directories."""

    __slots__ = ("_files",)

    def __init__(self, disk: Disk, directories: Sequence[str], journal_index: int) -> None:
        name = FILE_NAME if journal_index == 0 else f"{FILE_NAME}.{journal_index}"
        self._files = [SlotFile(disk, f"{directory}/{name}") for directory in directories]

    def load(self) -> JournalName | None:
        """The newest name, None if there is none that is intact."""
        names = []
        for file in self._files:
            value = file.load()
            if len(value) == _VALUE.size:
                names.append(JournalName(*_VALUE.unpack(value)))
        return max(names, default=None)

    def store(self, name: JournalName) -> None:
        """Durable when this returns, but for directories without space.

        Raises: DiskFailed.
        """
        value = _VALUE.pack(name.journal_id, name.salt, name.reserved_mb)
        for file in self._files:
            try:
                file.store(value)
            except DiskFull as error:
                logger.warning(
                    "name of the newest journal not written: disk full. If that journal gets lost, "
                    "the next start does not notice it here",
                    file=file.path,
                    error=str(error),
                )
