"""How much disk the benchmark may take: decisions alone, the figures come from the caller.

At full speed a server writes some 400 MB a second, twice (journal and entry log). Both servers turn
read-only when their disk is nearly full, Vela at 95 %, so what counts as room ends before that.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

GIBIBYTE = 2**30
USED_SHARE_MAX = 0.93
ROOM_AT_START_BYTES = 36 * GIBIBYTE
ROOM_AT_QUICK_START_BYTES = 16 * GIBIBYTE
SERVER_BYTES_MAX = 28 * GIBIBYTE
KEPT_BYTES_MAX = 8 * GIBIBYTE
"""A server keeps this much after its topics are deleted: current journal files and entry log."""


class NoRoom(Exception):
    """The disk is, or is getting, too full to measure; the text says so in one line."""


@dataclass(frozen=True)
class Disk:
    """Size and free space of a file system, in bytes."""

    total_bytes: int
    free_bytes: int

    @property
    def room_bytes(self) -> int:
        """Bytes to write before `USED_SHARE_MAX` of the disk is used; may be negative."""
        return int(self.free_bytes - self.total_bytes * (1 - USED_SHARE_MAX))


def disk_of(directory: Path) -> Disk:
    """The disk this directory lies on."""
    usage = shutil.disk_usage(directory)
    return Disk(usage.total, usage.free)


def stored_bytes(directory: Path) -> int:
    """The bytes of the files below a directory; files that vanish meanwhile do not count."""
    total = 0
    for path in directory.rglob("*"):
        try:
            total += path.stat().st_blocks * 512
        except FileNotFoundError:
            continue
    return total


def refusal(disk: Disk, needed_bytes: int) -> str | None:
    """Why the benchmark does not start, None when there is room."""
    if disk.room_bytes >= needed_bytes:
        return None
    return (
        f"the benchmark needs {_gib(needed_bytes)} of disk below {USED_SHARE_MAX:.0%} use, "
        f"and there are {_gib(max(0, disk.room_bytes))} ({_gib(disk.free_bytes)} free of "
        f"{_gib(disk.total_bytes)}): make room and start it again"
    )


def shortage(disk: Disk, server: str, server_bytes: int) -> str | None:
    """Why a server under load has to be stopped, None while all is well."""
    if disk.room_bytes < 0:
        return (
            f"{server} is stopped: the disk is more than {USED_SHARE_MAX:.0%} full, "
            f"{_gib(disk.free_bytes)} are free; {server} has {_gib(server_bytes)} of it"
        )
    if server_bytes > SERVER_BYTES_MAX:
        return (
            f"{server} is stopped: its data takes {_gib(server_bytes)}, "
            f"more than the {_gib(SERVER_BYTES_MAX)} a measurement may take"
        )
    return None


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / GIBIBYTE:.1f} GiB"
