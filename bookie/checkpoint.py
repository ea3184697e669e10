"""Checkpoints: up to where the journal may be forgotten.

A mark is (journal id, offset): everything before it is in the entry logs and the index. The order
is: take the marks, then flush every ledger directory (logs, then index), then write the marks to
every ledger directory, then remove journals. A mark never moves backwards.

File `lastMark` (`lastMark.<n>` for the n-th further journal) in each ledger directory: int64
journal id, int64 offset, as BookKeeper writes it. It is replaced atomically. At start the highest
one counts: each of them was written only after all directories had been flushed.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, final

import structlog

from bookie.disk import read_file, replace_file
from bookie.errors import Corruption

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bookie.disk import Disk
    from bookie.journal_writer import LogMark

logger = structlog.get_logger()

NO_MARK: Final[tuple[int, int]] = (-1, 0)
_MARK: Final = struct.Struct(">qq")


@final
class MarkStore:
    """The lastMark files of all ledger directories, for one journal."""

    __slots__ = ("_directories", "_disk", "_name", "mark")

    def __init__(self, disk: Disk, directories: Sequence[str], journal_index: int) -> None:
        self._disk = disk
        self._directories = directories
        self._name = "lastMark" if journal_index == 0 else f"lastMark.{journal_index}"
        self.mark: LogMark = NO_MARK

    def load(self) -> LogMark:
        """The highest mark, NO_MARK if there is none.

        Raises: Corruption: a file has not 16 bytes.
        """
        for directory in self._directories:
            path = f"{directory}/{self._name}"
            try:
                data = read_file(self._disk, path)
            except FileNotFoundError:
                continue
            if len(data) != _MARK.size:
                raise Corruption(path, 0, len(data), "a journal mark has 16 bytes")
            self.mark = max(self.mark, _MARK.unpack(data))
        return self.mark

    def advance(self, mark: LogMark) -> bool:
        """Write a newer mark everywhere; an older or equal one is ignored.

        Raises: DiskFull, DiskFailed.
        """
        if mark <= self.mark:
            return False
        data = _MARK.pack(*mark)
        for directory in self._directories:
            replace_file(self._disk, f"{directory}/{self._name}", data)
        self.mark = mark
        return True
