"""The part of an entry log that is not in the index when the bookie starts.

A crash between the append to a log and the write of the locations leaves such a part. Its
acknowledged entries are also in the journal. The part is larger if an index lost its end, so
nothing is discarded only because the index lacks it:

- Intact entries that follow the indexed part stay in place and are given to the index.
- A torn tail (see `entry_log_scan`) of the newest log is cut off, with a warning.
- Other bytes go to the file `<log id>.<offset>.aside` beside the log, with a warning. Intact
  entries in them are returned to be appended again. Only the operator removes such a file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import structlog

from bookie import entry_log_format as fmt
from bookie.entry_log_scan import LogScan
from bookie.errors import Corruption

if TYPE_CHECKING:
    from bookie.disk import Disk, DiskFile
    from bookie.entry_log_scan import Found

logger = structlog.get_logger()

_COPY_BYTES = 1 << 20


@final
class UnindexedEntries:
    """The content of one log after the indexed part."""

    __slots__ = ("end_offset", "entries", "log_id", "strays")

    def __init__(self, log_id: int, end_offset: int) -> None:
        self.log_id = log_id
        self.end_offset = end_offset
        """Size of the log now."""
        self.entries: list[Found] = []
        """In place."""
        self.strays: list[tuple[int, int, bytes]] = []
        """(ledger id, entry id, entry), to be appended again."""


def recover_tail(
    disk: Disk, path: str, log_id: int, start: int, *, newest: bool
) -> UnindexedEntries | None:
    """Read a log from `start` on and remove everything from it that is not intact. None: the log
    was created but never written to, and is to be deleted.

    Raises: Corruption: the log is shorter than `start`.
    """
    file = disk.open(path)
    try:
        size = file.size()
        if size < start:
            if start > fmt.HEADER_SIZE:
                raise Corruption(
                    path, size, start - size, "the entry log is shorter than its index"
                )
            return None
        found = UnindexedEntries(log_id, size)
        header = fmt.decode_header(file.read_at(0, fmt.HEADER_SIZE))
        if header is None and start == fmt.HEADER_SIZE:
            _write_header(file)  # a power loss can keep it from the disk until the first sync
        if size == start or (header is not None and header[0] == start):
            return found
        scan = LogScan(file.read_at, start, size)
        found.entries = scan.intact
        found.strays = [
            (ledger_id, entry_id, file.read_at(offset, length))
            for ledger_id, entry_id, offset, length in scan.strays
        ]
        if scan.intact_end < size:
            _shorten(disk, file, log_id, scan, cut_off=newest and scan.torn)
            found.end_offset = scan.intact_end
        if scan.intact or scan.strays:
            logger.info(
                "entries taken into the index",
                file=path,
                offset=start,
                entries=len(scan.intact) + len(scan.strays),
            )
        return found
    finally:
        file.close()


def _shorten(disk: Disk, file: DiskFile, log_id: int, scan: LogScan, *, cut_off: bool) -> None:
    size, offset = file.size(), scan.intact_end
    if cut_off:
        logger.warning(
            "torn tail of the newest entry log cut off: it was never acknowledged",
            file=file.path,
            offset=offset,
            bytes=size - offset,
        )
    else:
        directory = file.path.rpartition("/")[0]
        aside = f"{directory}/{log_id:x}.{offset:x}.aside"
        _copy(disk, file, offset, size, aside)
        disk.sync_directory(directory)
        logger.warning(
            "part of an entry log that is not intact set aside; "
            "what was acknowledged of it is in the journal",
            file=file.path,
            offset=offset,
            bytes=size - offset,
            intact_entries=len(scan.strays),
            moved_to=aside,
        )
    file.truncate(offset)
    _write_header(file)


def _write_header(file: DiskFile) -> None:
    """The map of the log, if it had one, no longer describes it."""
    file.write_at(0, fmt.encode_header())
    file.sync()


def _copy(disk: Disk, file: DiskFile, offset: int, size: int, target: str) -> None:
    if disk.exists(target):
        disk.remove(target)  # left by a start that was interrupted
    copy = disk.create(target)
    try:
        for at in range(offset, size, _COPY_BYTES):
            copy.write_at(at - offset, file.read_at(at, min(_COPY_BYTES, size - at)))
        copy.sync()
    finally:
        copy.close()
