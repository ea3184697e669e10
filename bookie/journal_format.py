"""The journal file, byte for byte. Pure: no files, no clock.

A journal file is named `<hex id>.txn` and is BookKeeper's version 6:

    file    = header (512 bytes), group*
    header  = "BKLG", int32 6, [ "VELA", int32 alignment, int64 salt, int32 crc32c, link ], zeros
    link    = [ int64 salt of the journal before, int64 its end, int32 crc32c ]
    group   = record+, padding
    record  = int32 length > 0, `length` bytes: int64 ledger id, int64 entry id, rest
    padding = int32 -0x100, int32 n, n bytes

All integers are big-endian. A record is an entry as it came (32 byte metadata, digest, payload), or
one of these, distinguished by the entry id: -0x1000 master key (int32 length, key), -0x2000 fence
(nothing more), -0x8000 explicit LAC (int32 length, body). Padding makes each group end on the
alignment, so that two groups never share a disk sector. Files are preallocated with zeros; length 0
is the end.

BookKeeper skips the content of padding. Here its last 28 bytes are a **group trailer**:

    trailer = "VGRP", int32 flags, int64 offset of the group, int64 sequence, int32 crc32c

The checksum covers the salt of the header and every byte of the group before it. The sequence
counts groups of the file from 0. One group is one write and one fdatasync, and a group is written
only after the fdatasync of the one before (flag 1 says so; absent with journalSyncData=false).
Flag 2 is that of a group without records at the end of a file that was closed. The upper 24 bits of
the flags are the size in MB that the file had when the group before was synced: space is reserved
ahead. Hence, for a file whose header carries "VELA":

* a file without a group with flag 2 that is shorter than one of its groups says was cut;
* a group that verifies is complete and is replayed;
* a bad group that is followed by a good one was durable once: that is damage, refuse to start;
* a bad group with nothing good after it, of which a sector is missing (zeros where records or the
  trailer should be), was never acknowledged: a torn tail, dropped;
* a bad group with nothing good after it, of which every sector was written, is damage as well:
  disks write whole sectors of 512 bytes, into zeros. Only if a record itself contains a sector of
  zeros does it look like a torn tail.

The checksum of the header covers its first 24 bytes; an earlier version wrote zeros there. The link
is in a file that follows another one of the same run, and its checksum covers the salt of the file
and the link. The salt
prevents bytes written by a client from looking like a trailer. A file without "VELA" (written by
BookKeeper itself) is read in the plain way: the end is a length of 0 or a record cut by the end of
the file; a negative length that is not padding is damage.

Benefit: a torn tail and a flipped bit are distinguished without a checksum per record, and Java's
tools read the file. Cost: at least 36 bytes per group, and one pass of CRC32C over it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, final

import crc32c

from bookie.api import ENTRY_SIZE_BYTES_MAX
from bookie.errors import Corruption

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

VERSION: Final = 6
HEADER_SIZE: Final = 512
ALIGNMENT_MIN: Final = 512
TRAILER_SIZE: Final = 28

ENTRY_MASTER_KEY: Final = -0x1000
ENTRY_FENCE: Final = -0x2000
ENTRY_FORCE: Final = -0x4000
ENTRY_EXPLICIT_LAC: Final = -0x8000

FLAG_PREVIOUS_SYNCED: Final = 1
FLAG_LAST: Final = 2
RESERVED_SHIFT: Final = 8
RESERVED_MB_MAX: Final = (1 << 24) - 1

_PADDING: Final = -0x100
_MAGIC: Final = b"BKLG"
_OWN_MAGIC: Final = b"VELA"
_TRAILER_MAGIC: Final = b"VGRP"
_MB: Final = 1 << 20
_CHUNK_SIZE: Final = 4 << 20

_HEADER = struct.Struct(">4si4sIQ")
_LINK = struct.Struct(">QQ")
_LINK_AT: Final = _HEADER.size + 4
_SECTOR: Final = 512
_IDS = struct.Struct(">qq")
_LENGTH = struct.Struct(">i")
_PADDING_HEAD = struct.Struct(">ii")
_TRAILER = struct.Struct(">4sIqqI")
_CRC = struct.Struct(">I")
_SALT = struct.Struct(">Q")

pack_length = _LENGTH.pack


@final
@dataclass(frozen=True, slots=True)
class JournalHeader:
    """The decoded header of a file."""

    version: int
    size: int
    salt: int | None
    """None: no group trailers, written by BookKeeper."""
    previous: tuple[int, int] | None = None
    """(salt, end) of the journal that was closed before this one was created."""


class ScanEnd(Enum):
    """How a scan ended."""

    CLEAN = "clean"
    TORN = "torn"


def encode_header(alignment: int, salt: int, previous: tuple[int, int] | None = None) -> bytes:
    """The first 512 bytes of a new file."""
    head = _HEADER.pack(_MAGIC, VERSION, _OWN_MAGIC, alignment, salt)
    head += _CRC.pack(crc32c.crc32c(head))
    if previous is not None:
        link = _LINK.pack(*previous)
        head += link + _CRC.pack(group_checksum(link, salt))
    return head.ljust(HEADER_SIZE, b"\0")


def decode_header(data: bytes, path: str) -> JournalHeader | None:
    """Parse the first bytes of a file; None if it holds only zeros or less than a header: the file
    was created and nothing durable was written.

    Raises: Corruption: anything else that is not a journal header.
    """
    data = data[:HEADER_SIZE]
    if not any(data):
        return None
    if len(data) >= 8 and data[:4] == _MAGIC:
        version = _LENGTH.unpack_from(data, 4)[0]
        is_own = data[8:12] == _OWN_MAGIC
        if is_own and len(data) == HEADER_SIZE:
            (checksum,) = _CRC.unpack_from(data, _HEADER.size)
            own_checksum = crc32c.crc32c(data[: _HEADER.size])
            if version != VERSION or (checksum and checksum != own_checksum):
                raise Corruption(path, 0, _HEADER.size, "the header of the journal is damaged")
        if version == 4:
            return JournalHeader(version, 8, None)
        if version in (5, 6):
            if len(data) < HEADER_SIZE:
                return None
            if not is_own and any(data[8:]):
                raise Corruption(
                    path, 8, 4, "neither BookKeeper's header nor one with group trailers"
                )
            if not is_own:
                return JournalHeader(version, HEADER_SIZE, None)
            salt = _HEADER.unpack_from(data)[4]
            return JournalHeader(version, HEADER_SIZE, salt, _decode_link(data, salt, path))
    if len(data) < HEADER_SIZE and _MAGIC.startswith(data[:4]):
        return None
    raise Corruption(path, 0, len(data), "not a journal header of version 4, 5 or 6")


def _decode_link(data: bytes, salt: int, path: str) -> tuple[int, int] | None:
    link = data[_LINK_AT : _LINK_AT + _LINK.size]
    (checksum,) = _CRC.unpack_from(data, _LINK_AT + _LINK.size)
    if not any(link) and not checksum:
        return None
    if checksum != group_checksum(link, salt):
        size = _LINK.size + _CRC.size
        raise Corruption(path, _LINK_AT, size, "the header of the journal is damaged")
    previous_salt, previous_end = _LINK.unpack(link)
    return previous_salt, previous_end


def encode_master_key(ledger_id: int, master_key: bytes) -> bytes:
    """The record that fixes a ledger's master key."""
    return _IDS.pack(ledger_id, ENTRY_MASTER_KEY) + _LENGTH.pack(len(master_key)) + master_key


def encode_fence(ledger_id: int) -> bytes:
    """The record that fences a ledger."""
    return _IDS.pack(ledger_id, ENTRY_FENCE)


def encode_explicit_lac(ledger_id: int, body: bytes) -> bytes:
    """The record that keeps a writer's explicit last-add-confirmed."""
    return _IDS.pack(ledger_id, ENTRY_EXPLICIT_LAC) + _LENGTH.pack(len(body)) + body


def decode_ids(record: bytes) -> tuple[int, int]:
    """(ledger id, entry id) of a record of at least 16 bytes."""
    ledger_id, entry_id = _IDS.unpack_from(record)
    return ledger_id, entry_id


def decode_blob(record: bytes) -> bytes:
    """The key or body of a master key or explicit LAC record.

    Raises: ValueError: the record is shorter than it says.
    """
    if len(record) < 20:
        raise ValueError("record too short")
    size = _LENGTH.unpack_from(record, 16)[0]
    if size < 0 or len(record) < 20 + size:
        raise ValueError("record shorter than its length says")
    return record[20 : 20 + size]


GROUP_EXTRA_BYTES: Final = 8 + TRAILER_SIZE
"""The bytes of a group besides its records and the fill before its trailer."""


def put_group_end(
    into: bytearray | memoryview,
    size: int,
    start: int,
    sequence: int,
    alignment: int,
    flags: int,
    checksum: int,
) -> int:
    """Put what follows the records of a group at `start`, which have `size` bytes with their
    lengths, after them: padding with the trailer, so that `start` + all of it is a multiple of
    `alignment`. Returns where it ends; there must be room for GROUP_EXTRA_BYTES and one alignment.

    `checksum`: `group_checksum` of the records.
    """
    fill = -(start + size + GROUP_EXTRA_BYTES) % alignment
    trailer_at = size + 8 + fill
    end = trailer_at + TRAILER_SIZE
    _PADDING_HEAD.pack_into(into, size, _PADDING, fill + TRAILER_SIZE)
    into[size + 8 : trailer_at] = bytes(fill)
    _TRAILER.pack_into(into, trailer_at, _TRAILER_MAGIC, flags, start, sequence, 0)
    _CRC.pack_into(into, end - _CRC.size, crc32c.crc32c(into[size : end - _CRC.size], checksum))
    return end


def group_checksum(records: bytes | memoryview, salt: int) -> int:
    """The checksum of a group up to here."""
    return int(crc32c.crc32c(records, crc32c.crc32c(_SALT.pack(salt))))


class JournalScan:
    """One pass over a journal file: `groups()` yields the records of each good group, then `end`,
    `end_offset` and `dropped_bytes` say how it ended.

    `read_at(offset, size)` gives the bytes; memory is bounded by the largest group. `reserved_mb`
    is the size that the file is known to have had.
    """

    def __init__(
        self,
        path: str,
        read_at: Callable[[int, int], bytes],
        size: int,
        header: JournalHeader,
        start: int,
        reserved_mb: int = 0,
    ) -> None:
        self.end = ScanEnd.CLEAN
        self.end_offset = max(start, header.size)
        self.dropped_bytes = 0
        self.detail = ""
        self._path = path
        self._read_at = read_at
        self._size = size
        self._salt = header.salt
        self._reserved_mb = reserved_mb
        self._buffer = b""
        self._buffer_start = 0

    def groups(self) -> Iterator[list[bytes]]:
        """Records group by group (a plain file: record by record).

        Raises: Corruption: damage that a torn write cannot explain.
        """
        return self._plain_records() if self._salt is None else self._own_groups(self._salt)

    def _bytes(self, offset: int, size: int) -> bytes:
        """`size` bytes at `offset`, fewer at the end of the file."""
        start = offset - self._buffer_start
        if start < 0 or start + size > len(self._buffer):
            self._buffer = self._read_at(offset, max(size, _CHUNK_SIZE))
            self._buffer_start = offset
            start = 0
        return self._buffer[start : start + size]

    def _plain_records(self) -> Iterator[list[bytes]]:
        while True:
            offset = self.end_offset
            head = self._bytes(offset, 4)
            if len(head) < 4:
                if any(head):
                    self._torn(offset, "cut inside a record length")
                return
            length = _LENGTH.unpack(head)[0]
            if length == 0:
                return
            if length == _PADDING:
                extra = self._bytes(offset + 4, 4)
                if len(extra) < 4:
                    self._torn(offset, "cut inside padding")
                    return
                padding = _LENGTH.unpack(extra)[0]
                if padding < 0:
                    raise Corruption(self._path, offset, 8, f"padding of {padding} bytes")
                self.end_offset = min(offset + 8 + padding, self._size)
                continue
            if length < 0:
                raise Corruption(self._path, offset, 4, f"record length {length}")
            if offset + 4 + length > self._size:
                self._torn(offset, f"record of {length} bytes is cut by the end of the file")
                return
            if length >= 16:
                yield [self._bytes(offset + 4, length)]
            self.end_offset = offset + 4 + length

    def _own_groups(self, salt: int) -> Iterator[list[bytes]]:
        sequence = -1
        flags = 0
        while True:
            start = self.end_offset
            head = self._bytes(start, 4)
            if not any(head) and self._rest_is_zero(start):
                self._refuse_cut(flags)
                return
            group = self._parse_group(start, salt)
            if group is None or (sequence >= 0 and group[2] != sequence + 1):
                self._refuse_cut(flags)
                self._classify(start, salt)
                return
            records, self.end_offset, sequence, flags = group
            self._reserved_mb = max(self._reserved_mb, flags >> RESERVED_SHIFT)
            yield records

    def _refuse_cut(self, flags: int) -> None:
        """A file keeps the space reserved for it until it is closed, so a shorter one was cut, be
        it between two groups. `flags` of its last group."""
        missing = self._reserved_mb * _MB - self._size
        if missing > 0 and not flags & FLAG_LAST:
            raise Corruption(self._path, self._size, missing, "the end of the journal was cut off")

    def _parse_group(self, start: int, salt: int) -> tuple[list[bytes], int, int, int] | None:
        """(records, end, sequence, flags) of the group at `start`, None if it does not verify."""
        records, offset, padding = self._walk(start)
        if padding is None:
            return None
        end = offset + 8 + padding
        verified = self._verify(start, end, salt)
        return None if verified is None else (records, end, *verified)

    def _walk(self, start: int) -> tuple[list[bytes], int, int | None]:
        """(records, offset where they end, size of the padding that follows or None if something
        else does)."""
        offset = start
        records: list[bytes] = []
        while True:
            head = self._bytes(offset, 8)
            if len(head) < 8:
                return records, offset, None
            length, padding = _PADDING_HEAD.unpack(head)
            if length == _PADDING:
                fits = padding >= TRAILER_SIZE and offset + 8 + padding <= self._size
                return records, offset, padding if fits else None
            if not 16 <= length <= ENTRY_SIZE_BYTES_MAX or offset + 4 + length > self._size:
                return records, offset, None
            records.append(self._bytes(offset + 4, length))
            offset += 4 + length

    def _verify(self, start: int, end: int, salt: int) -> tuple[int, int] | None:
        """(sequence, flags) if the trailer before `end` closes the group at `start`."""
        magic, flags, offset, sequence, crc = _TRAILER.unpack(
            self._bytes(end - TRAILER_SIZE, TRAILER_SIZE)
        )
        if magic != _TRAILER_MAGIC or offset != start:
            return None
        group = self._bytes(start, end - start - 4)
        return (sequence, flags) if group_checksum(group, salt) == crc else None

    def _rest_is_zero(self, offset: int) -> bool:
        while offset < self._size:
            chunk = self._bytes(offset, min(_CHUNK_SIZE, self._size - offset))
            if chunk.strip(b"\0"):
                return False
            if not chunk:
                break
            offset += len(chunk)
        return True

    def _classify(self, start: int, salt: int) -> None:
        """A bad group at `start`: torn tail, or damage because a good group follows or because it
        was written as a whole?"""
        offset = start - start % ALIGNMENT_MIN
        last_used = start
        named_end = 0
        while offset < self._size:
            chunk = self._bytes(offset, min(_CHUNK_SIZE, self._size - offset))
            if not chunk:
                break
            used = len(chunk.rstrip(b"\0"))
            if used:
                last_used = offset + used
            for end in range(ALIGNMENT_MIN, len(chunk) + 1, ALIGNMENT_MIN):
                at = end - TRAILER_SIZE
                if chunk[at : at + 4] != _TRAILER_MAGIC:
                    continue
                group_start = _TRAILER.unpack_from(chunk, at)[2]
                if group_start == start:
                    named_end = offset + end
                if not start <= group_start < offset + end:
                    continue
                verified = self._verify(group_start, offset + end, salt)
                if verified and (verified[1] & FLAG_PREVIOUS_SYNCED or group_start == start):
                    raise Corruption(
                        self._path,
                        start,
                        max(group_start - start, 1),
                        f"a group that was durable does not verify (group {verified[0]} after "
                        "it does)",
                    )
            offset += len(chunk)
        end = self._written_end(start, named_end)
        if end:
            detail = "the last group was written as a whole and does not verify"
            raise Corruption(self._path, start, end - start, detail)
        self._torn(start, "the last group does not verify", last_used)

    def _written_end(self, start: int, named_end: int) -> int:
        """The end of the bad group at `start` if all its sectors were written, else 0. The end
        follows from a trailer that names the group, or else from its records and padding."""
        _records, offset, padding = self._walk(start)
        if padding is not None and named_end in (0, offset + 8 + padding):
            end = offset + 8 + padding
        elif named_end:
            end = named_end
            rest = self._bytes(start, end - TRAILER_SIZE - start).rstrip(b"\0")
            used = start + len(rest)
            if not offset < used <= offset + 8:  # else only the padding's head is damaged
                offset = self._padding_before(used, end)
        else:
            return 0
        if not any(self._bytes(end - _CRC.size, _CRC.size)):
            return 0  # the last bytes of the write
        body = self._bytes(start, offset + 8 - start)
        for at in range(0, len(body), _SECTOR):
            if not any(body[at : at + _SECTOR]):
                return 0
        return end

    def _padding_before(self, used: int, end: int) -> int:
        """Where the padding that ends at `end` begins, when nothing but zeros lies between `used`
        and its trailer; the trailer if that is not to be found."""
        for at in range(max(0, used - 8), used):
            head = self._bytes(at, 8)
            if len(head) == 8 and _PADDING_HEAD.unpack(head) == (_PADDING, end - at - 8):
                return at
        return end - TRAILER_SIZE

    def _torn(self, offset: int, detail: str, last_used: int | None = None) -> None:
        self.end = ScanEnd.TORN
        self.dropped_bytes = max((last_used or self._size) - offset, 1)
        self.detail = detail
