"""Checkpoints: the position before which journal files are no longer needed.

A mark is (journal id, offset): everything before it is in the entry logs and the index. The order
is: take the marks, then flush every ledger directory (logs, then index), then write the marks to
every ledger directory, then remove journals. A mark never moves backwards.

File `lastMark` (`lastMark.<n>` for the n-th further journal) in each ledger directory: int64
journal id, int64 offset, as BookKeeper writes it, then "VELA" and the crc32c of these 16 bytes,
which BookKeeper does not read. It is replaced atomically. At start the lowest mark counts: journals
are removed only after all directories have the new mark, so a lower mark comes from an interrupted
checkpoint or from a directory restored from an older copy. Neither lacks anything if the journals
are replayed from there. BookKeeper leaves out full directories, so among its own marks (without a
checksum) the highest counts; its mark in journal 0 means that it had not synced any journal yet. A
damaged mark is reported and ignored. If there is no other, every existing journal is replayed,
which does not change stored data.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, final

import crc32c
import structlog

from bookie.disk import read_file, replace_file

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bookie.disk import Disk
    from bookie.journal_writer import LogMark

logger = structlog.get_logger()

NO_MARK: Final[tuple[int, int]] = (-1, 0)
_NO_JOURNAL: Final = 0
"""Journals are numbered from the time in milliseconds on."""
_MARK: Final = struct.Struct(">qq")
_CHECK: Final = struct.Struct(">4sI")
_OWN_MAGIC: Final = b"VELA"


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
        """The mark to replay from, NO_MARK if there is none that is intact."""
        own: list[LogMark] = []
        plain: list[LogMark] = []
        for directory in self._directories:
            path = f"{directory}/{self._name}"
            try:
                data = read_file(self._disk, path)
            except FileNotFoundError:
                continue
            if not _is_intact(data):
                logger.error(
                    "journal mark is damaged and left out: more of the journals is replayed",
                    file=path,
                    offset=0,
                    bytes=len(data),
                )
                continue
            (plain if len(data) == _MARK.size else own).append(_MARK.unpack_from(data))
        self.mark = min(own) if own else max(plain, default=NO_MARK)
        if self.mark[0] == _NO_JOURNAL:
            self.mark = NO_MARK
        return self.mark

    def advance(self, mark: LogMark) -> bool:
        """Write a newer mark everywhere; an older or equal one is ignored.

        Raises: DiskFull, DiskFailed.
        """
        if mark <= self.mark:
            return False
        head = _MARK.pack(*mark)
        data = head + _CHECK.pack(_OWN_MAGIC, crc32c.crc32c(head))
        for directory in self._directories:
            replace_file(self._disk, f"{directory}/{self._name}", data)
        self.mark = mark
        return True


def _is_intact(data: bytes) -> bool:
    """Marks of BookKeeper and of an earlier version have no checksum."""
    if len(data) == _MARK.size:
        return True
    own = _CHECK.pack(_OWN_MAGIC, crc32c.crc32c(data[: _MARK.size]))
    return data[_MARK.size :] == own
