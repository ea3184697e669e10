"""How much disk the benchmark may take: decisions alone, the figures come from the caller.

At full speed a server writes some 400 MB a second, twice (journal and entry log). Both servers turn
read-only when their disk is nearly full, Vela at 95 %, so what counts as room ends before that.

A removed file takes its space until nobody has it open. Vela keeps large ones open and frees them
step by step, and a server that is stopped meanwhile keeps the rest: so these count as well.
"""

from __future__ import annotations

import os
import shutil
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from bench.subject import Subject

GIBIBYTE = 2**30
USED_SHARE_MAX = 0.93
ROOM_AT_START_BYTES = 36 * GIBIBYTE
ROOM_AT_QUICK_START_BYTES = 16 * GIBIBYTE
SERVER_BYTES_MAX = 28 * GIBIBYTE
KEPT_BYTES_MAX = 8 * GIBIBYTE
"""A server keeps this much after its topics are deleted: current journal files and entry log."""
REMOVED_BYTES_MAX = 64 * 2**20
"""Of removed files, when a server is stopped: it may keep small ones open as long as it runs."""


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


def removed_bytes(pids: Iterable[int], directory: Path) -> int:
    """The bytes of removed files that these processes have open, on the file system of a directory.
    Files and processes that vanish meanwhile do not count. Linux; elsewhere nothing is found."""
    device = directory.stat().st_dev
    found: dict[int, int] = {}
    for pid in pids:
        try:
            descriptors = os.listdir(f"/proc/{pid}/fd")
        except OSError:  # it has ended, or there is no /proc
            continue
        for descriptor in descriptors:
            try:
                status = os.stat(f"/proc/{pid}/fd/{descriptor}")
            except OSError:
                continue
            is_removed = stat.S_ISREG(status.st_mode) and not status.st_nlink
            if is_removed and status.st_dev == device:
                found[status.st_ino] = status.st_blocks * 512
    return sum(found.values())


def used_bytes(server: Subject) -> int:
    """The bytes a server has of the disk, with a name or without."""
    return stored_bytes(server.directory) + removed_bytes(server.process_ids, server.directory)


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
