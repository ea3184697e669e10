"""SlotFile: a small value on disk that is overwritten in place.

Replacing a file takes space and a sync of its directory, which waits for other writes to the file
system. A full ledger directory must not stop the journal, and the journal must not wait long. So
the file has two slots of 4096 bytes, and each write goes to the one with the older value:

    slot = "VELA", int64 number of the write, int32 size, value, int32 crc32c of what precedes

All integers are big-endian. A write that is interrupted damages only its own slot. The slot with
the highest number of those that verify counts.
"""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING, Final, final

import crc32c
import structlog

if TYPE_CHECKING:
    from bookie.disk import Disk, DiskFile

logger = structlog.get_logger()

SLOT_SIZE: Final = 4096
"""The largest sector of a disk: a write of one slot never touches the other one."""
VALUE_BYTES_MAX: Final = 1024
_MAGIC: Final = b"VELA"
_HEAD: Final = struct.Struct(">4sqI")
_CRC: Final = struct.Struct(">I")


@final
class SlotFile:
    """One such file. Used by one thread at a time."""

    def __init__(self, disk: Disk, path: str) -> None:
        self.path = path
        self._disk = disk
        self._number = 0
        """The number of the newest write; the next one goes to the other slot."""

    def load(self) -> bytes:
        """The value; empty: none was written, or both slots are damaged. Damage is reported."""
        self._number = 0
        try:
            file = self._disk.open(self.path)
        except FileNotFoundError:
            return b""
        try:
            data = file.read_at(0, 2 * SLOT_SIZE)
        finally:
            file.close()
        value = b""
        for at in (0, SLOT_SIZE):
            slot = data[at : at + SLOT_SIZE]
            number, found = _decode(slot)
            if number > self._number:
                self._number, value = number, found
            elif not number and any(slot):
                logger.error(
                    "slot is damaged or its write was interrupted; the other one counts",
                    file=self.path,
                    offset=at,
                    bytes=len(slot),
                )
        return value

    def store(self, value: bytes) -> None:
        """Replace the value, durably.

        Raises: DiskFull, DiskFailed.
        """
        assert len(value) <= VALUE_BYTES_MAX
        number = self._number + 1
        head = _HEAD.pack(_MAGIC, number, len(value)) + value
        slot = (head + _CRC.pack(crc32c.crc32c(head))).ljust(SLOT_SIZE, b"\0")
        file = self._opened()
        try:
            file.write_parts_synced_at(number % 2 * SLOT_SIZE, [slot])
        finally:
            file.close()
        self._number = number

    def _opened(self) -> DiskFile:
        try:
            return self._disk.open(self.path)
        except FileNotFoundError:
            file = self._disk.create(self.path)
        try:
            file.write_at(0, bytes(2 * SLOT_SIZE))
            file.sync()
            self._disk.sync_directory(os.path.dirname(self.path))
        except BaseException:
            file.close()
            raise
        return file


def _decode(slot: bytes) -> tuple[int, bytes]:
    """(number, value) of a slot; the number is 0 if it does not verify."""
    if len(slot) < SLOT_SIZE:
        return 0, b""
    magic, number, size = _HEAD.unpack_from(slot)
    end = _HEAD.size + size
    if magic != _MAGIC or number < 1 or size > VALUE_BYTES_MAX:
        return 0, b""
    if _CRC.unpack_from(slot, end)[0] != crc32c.crc32c(slot[:end]):
        return 0, b""
    return number, slot[_HEAD.size : end]
