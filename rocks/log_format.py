"""RocksDB's log file, byte for byte: write-ahead logs and the MANIFEST. Pure: no files, no clock.

    file    = block*                        32 KB each, the last one shorter
    block   = part*, trailer                fewer than 7 zero bytes where no part fits any more
    part    = uint32 crc, uint16 length, uint8 type, [uint32 log number], payload
    record  = full part | first part, middle part*, last part

Little-endian. The crc is a masked CRC32C of type, log number and payload; it does not cover the
length. Types 5 to 8 are types 1 to 4 with a log number, in files that are used again. Types from
128 on may be skipped by a reader that does not know them.

This package has its own reader because of the end of the file: RocksDB's recovery modes mistake
damage for the end, or an interrupted write for damage. Here only an incomplete last record is a
torn tail:

- the file ends inside the record, and no fitting type and length make its checksum correct (a
  damaged head looks the same otherwise);
- or the record's last sectors, and everything after them, are zeros: space that was reserved, or
  bytes that did not reach the disk before a power loss.

Anything else that does not verify is damage.

Format: RocksDB wiki, "Write Ahead Log File Format".
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final, final

from crc32c import crc32c

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BLOCK_SIZE: Final = 32_768
HEADER_SIZE: Final = 7
RECYCLABLE_HEADER_SIZE: Final = 11
SECTOR_SIZE: Final = 512
ZEROS_MIN: Final = 32
"""Fewer unwritten bytes of a sector than this could be a record's own."""

_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_RECYCLABLE: Final = 4
"""Distance from a type to its recyclable form."""
_IGNORABLE: Final = 128
_CRC_MASK: Final = 0xA282EAD8
_HEADER: Final = Struct("<IHB")
_LOG_NUMBER: Final = Struct("<I")


class LogDamage(Exception):
    """Bytes of a log differ from the bytes written."""

    def __init__(self, offset: int, size_bytes: int, detail: str) -> None:
        super().__init__(f"offset {offset}, {size_bytes} bytes: {detail}")
        self.offset = offset
        self.size_bytes = size_bytes
        self.detail = detail


def mask_crc(crc: int) -> int:
    """The stored form of a checksum, so that a checksum of checksums is not always the same."""
    return (((crc >> 15) | (crc << 17)) + _CRC_MASK) & 0xFFFFFFFF


@final
class LogScan:
    """One pass over a log. `records` yields the complete records; afterwards the end is known."""

    __slots__ = (
        "_block",
        "_block_offset",
        "_log_number",
        "_parts",
        "_read_at",
        "_record_offset",
        "_size",
        "detail",
        "end_offset",
        "torn",
    )

    def __init__(self, read_at: Callable[[int, int], bytes], size: int, log_number: int) -> None:
        """`read_at(offset, size)` reads the file; `log_number` is the number in its name."""
        self._read_at = read_at
        self._size = size
        self._log_number = log_number & 0xFFFFFFFF
        self._block = b""
        self._block_offset = -1
        self._parts: list[bytes] = []
        self._record_offset = 0
        self.end_offset = 0
        """The end of the last complete record."""
        self.torn = False
        """Whether an incomplete last record follows `end_offset`."""
        self.detail = ""
        """Why the tail is torn."""

    @property
    def dropped_bytes(self) -> int:
        """Size of the torn tail."""
        return self._size - self.end_offset if self.torn else 0

    def records(self) -> Iterator[tuple[int, bytes]]:
        """(offset, payload) of the complete records, in order.

        Raises: LogDamage.
        """
        position = 0
        while position < self._size:
            in_block = position % BLOCK_SIZE
            self._load(position - in_block)
            space = BLOCK_SIZE - in_block
            if space < HEADER_SIZE:
                if any(self._block[in_block:]):
                    raise LogDamage(position, space, "the end of a block is not zero")
                position += space
                continue
            kind, start, end = self._part(position, in_block)
            if self.torn:
                return
            position = self._block_offset + end
            if kind >= _IGNORABLE:
                if not self._parts:
                    self._whole(position)
                continue
            yield from self._take(kind, self._block[start:end], position)
        if self._parts:
            self._tear("the record's last part is missing")

    def _load(self, block_offset: int) -> None:
        if block_offset != self._block_offset:
            self._block = self._read_at(block_offset, BLOCK_SIZE)
            self._block_offset = block_offset

    def _take(self, kind: int, payload: bytes, position: int) -> Iterator[tuple[int, bytes]]:
        """Add a part to the record. Returns the record if it is complete."""
        if (kind in (_FULL, _FIRST)) == bool(self._parts):
            detail = "a record begins inside another" if self._parts else "a record lacks its start"
            raise LogDamage(self._record_offset, position - self._record_offset, detail)
        self._parts.append(payload)
        if kind in (_FULL, _LAST):
            record = payload if kind == _FULL else b"".join(self._parts)
            offset = self._record_offset
            self._whole(position)
            yield offset, record

    def _whole(self, position: int) -> None:
        self._parts = []
        self._record_offset = self.end_offset = position

    def _part(self, position: int, in_block: int) -> tuple[int, int, int]:
        """(type, start and end of the payload in the block) of the part at `position`.

        Sets `torn` instead if the log ends in it. Raises: LogDamage.
        """
        block = self._block
        if not self._parts:
            self._record_offset = position
        if len(block) - in_block < HEADER_SIZE:
            return self._tear("the file ends inside a record's head")
        stored, length, kind = _HEADER.unpack_from(block, in_block)
        if not stored and not length and not kind:
            if self._zeros_from(position):
                return self._tear("space that was reserved and not written")
            raise LogDamage(position, HEADER_SIZE, "zeros in the middle of the log")
        plain = kind - _RECYCLABLE if _FULL <= kind - _RECYCLABLE <= _LAST else kind
        start = in_block + (RECYCLABLE_HEADER_SIZE if plain != kind else HEADER_SIZE)
        end = start + length
        if end > BLOCK_SIZE:
            raise LogDamage(position, HEADER_SIZE, f"a part of {length} bytes does not fit a block")
        if end > len(block):
            if self._is_whole(block, in_block, stored):
                raise LogDamage(position, HEADER_SIZE, "the head of a record is wrong")
            return self._tear("the file ends inside a record")
        if mask_crc(crc32c(block[in_block + 6 : end])) != stored:
            if self._is_unwritten(position, self._block_offset + end):
                return self._tear("the record's end was never written")
            raise LogDamage(position, end - in_block, "the checksum of a record is wrong")
        if plain != kind:
            (number,) = _LOG_NUMBER.unpack_from(block, in_block + HEADER_SIZE)
            if number != self._log_number:
                raise LogDamage(position, end - in_block, f"a record of log {number}")
        if not _FULL <= plain <= _LAST and kind < _IGNORABLE:
            raise LogDamage(position, end - in_block, f"a record of unknown type {kind}")
        return plain, start, end

    def _tear(self, detail: str) -> tuple[int, int, int]:
        self.torn = True
        self.detail = detail
        return 0, 0, 0

    def _is_whole(self, block: bytes, in_block: int, stored: int) -> bool:
        """Whether the part is complete, and only its length or type is wrong."""
        for kind in range(_FULL, _LAST + _RECYCLABLE + 1):
            crc = crc32c(bytes((kind,)))
            for position in range(in_block + HEADER_SIZE, len(block)):
                if mask_crc(crc) == stored:
                    return True
                crc = crc32c(block[position : position + 1], crc)
            if mask_crc(crc) == stored:
                return True
        return False

    def _is_unwritten(self, position: int, end: int) -> bool:
        """Whether the file is zeros from a sector boundary on, which lies in the part's head or
        well before its end."""
        zeros = (end - ZEROS_MIN) // SECTOR_SIZE * SECTOR_SIZE
        if zeros >= self._record_offset and self._zeros_from(zeros):
            return True
        zeros = (position // SECTOR_SIZE + 1) * SECTOR_SIZE
        inside = zeros < position + HEADER_SIZE and zeros + ZEROS_MIN <= self._size
        return inside and self._zeros_from(zeros)

    def _zeros_from(self, position: int) -> bool:
        while position < self._size:
            data = self._read_at(position, BLOCK_SIZE)
            if data.count(0) != len(data):
                return False
            position += len(data)
        return True
