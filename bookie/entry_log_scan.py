"""Reads records of an entry log without an index: intact entries, and how the log ends. Pure.

A record has no checksum of its own. Its entry has one unless the ledger's digest needs a key, so an
entry counts as intact only if its CRC32C or CRC32 matches. After damaged bytes, the search
continues byte by byte for heads of records with intact entries.

The end of a log is a torn tail only if that is proved: nothing intact follows, and the bytes there
are an incomplete record or zeros. A damaged length field looks like an incomplete record. Trying
each length distinguishes the two.

A payload can look like the heads of very many long records, and each of them takes a checksum. So
the search ends after a bounded number of bytes. Then the end of the log is not proved to be torn.
"""

from __future__ import annotations

import re
from struct import Struct
from typing import TYPE_CHECKING, Final, final

from crc32c import crc32c

from bookie import entry_log_format as fmt
from bookie.api import ENTRY_SIZE_BYTES_MAX
from protocol.bookkeeper.digests import METADATA_SIZE_BYTES, has_valid_crc

if TYPE_CHECKING:
    from collections.abc import Callable

_HEAD: Final = Struct(">iqq")
_CRC: Final = Struct(">I")
_LENGTH: Final = Struct(">i")
_WINDOW_SIZE: Final = 4 << 20
CHECKED_BYTES_MIN: Final = 256 << 20
"""The search may checksum this much, or `CHECKED_RATIO` times what it searches if that is more."""
CHECKED_RATIO: Final = 16
_MAYBE_HEAD: Final = re.compile(rb"(?=(?!\x00{4})[\x00-\x03].{3}\x00{3}.{5}\x00{3}.{5})", re.DOTALL)
"""A length up to 64 MB that is not 0, ids below 2^40."""

Found = tuple[int, int, int, int]
"""Ledger id, entry id, offset of the entry (after the record's length), length."""


@final
class LogScan:
    """A log from `start` on. See the module docstring."""

    __slots__ = (
        "_is_intact",
        "_read_at",
        "_size",
        "damaged_bytes",
        "intact",
        "intact_end",
        "map_ledgers",
        "strays",
        "torn",
    )

    def __init__(
        self,
        read_at: Callable[[int, int], bytes],
        start: int,
        size: int,
        is_intact: Callable[[bytes], bool] = has_valid_crc,
    ) -> None:
        """Scan. `read_at(offset, size)` reads the file of `size` bytes; `is_intact` judges an
        entry."""
        self._read_at = read_at
        self._is_intact = is_intact
        self._size = size
        self.intact: list[Found] = []
        """The intact entries that follow one another from `start`."""
        self.strays: list[Found] = []
        """Intact entries after damaged bytes."""
        self.damaged_bytes = 0
        """Bytes that are neither intact nor part of a stray."""
        self.torn = False
        """Whether the bytes after `intact_end` are a record whose write was interrupted."""
        self.intact_end = self._follow(start, self.intact)
        """The end of the last of `intact` and of the ledgers maps that follow it."""
        if self.intact_end < size:
            is_searched = self._search()
            self.torn = is_searched and not self.strays and self._is_incomplete(self.intact_end)

    def _follow(self, position: int, found: list[Found]) -> int:
        """Add the intact entries from `position` on. Returns where they end."""
        window, base = b"", position
        while self._size - position >= _HEAD.size:
            if position - base + _HEAD.size > len(window):
                window, base = self._read_at(position, _WINDOW_SIZE), position
            length, ledger_id, entry_id = _HEAD.unpack_from(window, position - base)
            end = position + 4 + length
            if not 16 <= length <= ENTRY_SIZE_BYTES_MAX or end > self._size:
                break
            if end - base > len(window):
                window, base = self._read_at(position, max(_WINDOW_SIZE, 4 + length)), position
            body = window[position - base + 4 : end - base]
            if fmt.is_map_record(ledger_id, entry_id):
                if not fmt.is_ledgers_map(window[position - base : end - base]):
                    break
            elif ledger_id < 0 or entry_id < 0 or not self._is_intact(body):
                break
            else:
                found.append((ledger_id, entry_id, position + 4, length))
            position = end
        return position

    def _search(self) -> bool:
        """Find the strays. False: the search was given up before the end."""
        may_check = max(CHECKED_BYTES_MIN, CHECKED_RATIO * (self._size - self.intact_end))
        position = self.intact_end + 1
        damaged_from = self.intact_end
        while position < self._size:
            window = self._read_at(position, _WINDOW_SIZE)
            goes_on = position + max(1, len(window) - _HEAD.size + 1)
            for match in _MAYBE_HEAD.finditer(window):
                at = position + match.start()
                (length,) = _LENGTH.unpack_from(window, match.start())
                if at + 4 + length > self._size or length < METADATA_SIZE_BYTES:
                    continue
                may_check -= length
                if may_check < 0:
                    self.damaged_bytes += self._size - damaged_from
                    return False
                if self._is_intact(self._read_at(at + 4, length)):
                    self.damaged_bytes += at - damaged_from
                    goes_on = damaged_from = self._follow(at, self.strays)
                    break
            position = goes_on
        self.damaged_bytes += self._size - damaged_from
        return True

    def _is_incomplete(self, position: int) -> bool:
        left = self._size - position
        if left < _HEAD.size or self._is_zeros(position):
            return True
        length, ledger_id, entry_id = _HEAD.unpack(self._read_at(position, _HEAD.size))
        if not 16 <= length <= ENTRY_SIZE_BYTES_MAX or length + 4 <= left:
            return False
        return ledger_id >= 0 and entry_id >= 0 and not self._is_whole(position + 4)

    def _is_whole(self, position: int) -> bool:
        """Whether some length makes the bytes from `position` on an intact entry."""
        data = self._read_at(position, ENTRY_SIZE_BYTES_MAX)
        if len(data) < METADATA_SIZE_BYTES + _CRC.size:
            return False
        (stored,) = _CRC.unpack_from(data, METADATA_SIZE_BYTES)
        crc = crc32c(data[:METADATA_SIZE_BYTES])
        for at in range(METADATA_SIZE_BYTES + _CRC.size, len(data)):
            if crc == stored:
                return True
            crc = crc32c(data[at : at + 1], crc)
        return bool(crc == stored)

    def _is_zeros(self, position: int) -> bool:
        while position < self._size:
            data = self._read_at(position, _WINDOW_SIZE)
            if data.count(0) != len(data):
                return False
            position += len(data)
        return True
