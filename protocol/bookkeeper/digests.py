"""Entry framing: the 32 byte head of every entry, its digest, and the keys of a ledger.

    ledger id, entry id, last add confirmed, length: 4 x i64 | digest | payload

The digest covers the 32 bytes and the payload as one run of bytes. The writer computes it and the
reader checks it; a bookie stores it unseen, so integrity is end to end. The body on the wire and
on disk is head + payload, kept as two objects while an entry is on its way so that the payload is
never copied for the sake of framing.

Format: BookKeeper's DigestManager and MacDigestManager (versions 4.5 and later).
"""

from __future__ import annotations

import hashlib
import hmac
import zlib
from enum import IntEnum
from struct import Struct
from typing import Final, final

from crc32c import crc32c

from native.entries import crc32c_bodies, crc32c_payloads

METADATA_SIZE_BYTES: Final = 32
MASTER_KEY_SIZE_BYTES: Final = 20

INVALID_ENTRY_ID: Final = -1
"""Last add confirmed before the first entry."""

_METADATA: Final = Struct(">qqqq")
_IDS: Final = Struct(">qq")
_CRC32C_HEAD_SIZE_BYTES: Final = METADATA_SIZE_BYTES + 4
_pack_metadata: Final = _METADATA.pack
_pack_ids: Final = _IDS.pack
_pack_crc32c_head: Final = Struct(">32sI").pack
_pack_u32: Final = Struct(">I").pack
_pack_u64: Final = Struct(">Q").pack

Buffer = bytes | bytearray | memoryview


class DigestMismatch(Exception):
    """An entry is not what its writer stored, or not the entry that was asked for."""


class DigestType(IntEnum):
    """Numbers of ledger metadata's digestType."""

    CRC32 = 1
    HMAC = 2
    CRC32C = 3
    DUMMY = 4


DIGEST_SIZE_BYTES: Final = {
    DigestType.CRC32: 8,
    DigestType.HMAC: 20,
    DigestType.CRC32C: 4,
    DigestType.DUMMY: 0,
}


def master_key(password: bytes) -> bytes:
    """The 20 bytes that a bookie compares before it accepts adds to or fences a ledger."""
    return hashlib.sha1(b"ledger" + password, usedforsecurity=False).digest()


def entry_metadata(body: Buffer) -> tuple[int, int, int, int]:
    """(ledger id, entry id, last add confirmed, length) of an entry body, unverified.

    Raises: DigestMismatch: the body is too short to hold them.
    """
    if len(body) < METADATA_SIZE_BYTES:
        raise DigestMismatch(f"entry of {len(body)} bytes is shorter than its head")
    return _METADATA.unpack_from(body)


def last_add_confirmed_of(explicit_lac: Buffer) -> int:
    """The last add confirmed that an explicit-LAC body states; its digest is not checked."""
    return int(_IDS.unpack_from(explicit_lac)[1])


def has_valid_crc(body: Buffer) -> bool:
    """Whether an entry body carries a CRC32C or CRC32 that matches: no key is needed for these two.
    False says nothing about ledgers with another digest type."""
    view = memoryview(body)
    metadata, rest = view[:METADATA_SIZE_BYTES], view[METADATA_SIZE_BYTES:]
    if len(rest) >= 4 and rest[:4] == _pack_u32(crc32c(rest[4:], crc32c(metadata))):
        return True
    return len(rest) >= 8 and rest[:8] == _pack_u64(zlib.crc32(rest[8:], zlib.crc32(metadata)))


@final
class Digest:
    """Makes and checks the heads of one ledger's entries."""

    __slots__ = ("_hmac", "_is_crc32c", "digest_type", "head_size_bytes")

    def __init__(self, kind: DigestType, password: bytes = b"") -> None:
        self.digest_type = DigestType(kind)
        self.head_size_bytes: int = METADATA_SIZE_BYTES + DIGEST_SIZE_BYTES[self.digest_type]
        self._is_crc32c = self.digest_type is DigestType.CRC32C
        self._hmac = hmac.new(
            hashlib.sha1(b"mac" + password, usedforsecurity=False).digest(), digestmod="sha1"
        )

    def head(
        self,
        ledger_id: int,
        entry_id: int,
        last_add_confirmed: int,
        length: int,
        payload: Buffer,
    ) -> bytes:
        """The bytes before `payload`. `length`: payload bytes of the ledger with this entry."""
        metadata = _pack_metadata(ledger_id, entry_id, last_add_confirmed, length)
        if self._is_crc32c:
            return _pack_crc32c_head(metadata, crc32c(payload, crc32c(metadata)))
        return metadata + self._digest(metadata, payload)

    def bodies(
        self,
        ledger_id: int,
        first_entry_id: int,
        last_add_confirmed: int,
        length: int,
        payloads: list[bytes],
        are_intact: bool = False,
    ) -> list[tuple[bytes, bytes]]:
        """Heads and payloads of consecutive entries. `length`: payload bytes before them.

        `are_intact`: the checksum that a producer has put into a payload was found to fit. A CRC32C
        digest is derived from it, without another pass over the bytes. What happens to these
        afterwards in memory is found when the entry is read: the digest is that of the bytes that
        were checked.
        """
        if self._is_crc32c:
            return crc32c_bodies(
                ledger_id, first_entry_id, last_add_confirmed, length, payloads, are_intact
            )
        bodies: list[tuple[bytes, bytes]] = []
        for entry_id, payload in enumerate(payloads, first_entry_id):
            length += len(payload)
            head = self.head(ledger_id, entry_id, last_add_confirmed, length, payload)
            bodies.append((head, payload))
        return bodies

    def verify(self, body: Buffer, ledger_id: int, entry_id: int) -> memoryview:
        """The payload of a body read back, as a view of it.

        Raises: DigestMismatch: wrong digest, wrong ledger or wrong entry.
        """
        view = memoryview(body)
        size = self.head_size_bytes
        if len(view) < size:
            raise DigestMismatch(
                f"entry {ledger_id}:{entry_id}: {len(view)} bytes, the head alone has {size}"
            )
        found_ledger_id, found_entry_id, _, _ = _METADATA.unpack_from(view)
        if found_ledger_id != ledger_id or found_entry_id != entry_id:
            raise DigestMismatch(
                f"asked for entry {ledger_id}:{entry_id}, got {found_ledger_id}:{found_entry_id}"
            )
        payload = view[size:]
        metadata = view[:METADATA_SIZE_BYTES]
        if self._is_crc32c:
            expected = _pack_u32(crc32c(payload, crc32c(metadata)))
        else:
            expected = self._digest(metadata, payload)
        if view[METADATA_SIZE_BYTES:size] != expected:
            raise DigestMismatch(
                f"entry {ledger_id}:{entry_id}: {self.digest_type.name} digest does not match"
            )
        return payload

    def verified_payload(self, body: bytes, ledger_id: int, entry_id: int) -> bytes:
        """As `verify`, with the payload as bytes of its own: for runs of entries read back.

        Raises: DigestMismatch: wrong digest, wrong ledger or wrong entry.
        """
        if self._is_crc32c:
            metadata = body[:METADATA_SIZE_BYTES]
            payload = body[_CRC32C_HEAD_SIZE_BYTES:]
            digest = body[METADATA_SIZE_BYTES:_CRC32C_HEAD_SIZE_BYTES]
            if metadata[:16] == _pack_ids(ledger_id, entry_id) and digest == _pack_u32(
                crc32c(payload, crc32c(metadata))
            ):
                return payload
        return bytes(self.verify(body, ledger_id, entry_id))

    def verified_payloads(
        self, bodies: list[bytes], ledger_id: int, first_entry_id: int
    ) -> tuple[list[bytes], str]:
        """`verified_payload` of consecutive entries up to the first damaged one, and what is wrong
        with that. From any thread; others run meanwhile if the digest is CRC32C."""
        payloads: list[bytes] = []
        if self._is_crc32c:
            payloads = crc32c_payloads(bodies, ledger_id, first_entry_id)
        try:
            for at in range(len(payloads), len(bodies)):
                payloads.append(self.verified_payload(bodies[at], ledger_id, first_entry_id + at))
        except DigestMismatch as error:
            return payloads, str(error)
        return payloads, ""

    def explicit_lac(self, ledger_id: int, last_add_confirmed: int) -> bytes:
        """The body of WRITE_LAC: both ids and their digest."""
        ids = _IDS.pack(ledger_id, last_add_confirmed)
        return ids + self._digest(ids, b"")

    def verify_explicit_lac(self, body: Buffer, ledger_id: int) -> int:
        """The last add confirmed that an explicit-LAC body states.

        Raises: DigestMismatch: wrong digest or wrong ledger.
        """
        ids = bytes(body[: _IDS.size])
        if len(ids) < _IDS.size or bytes(body[_IDS.size :]) != self._digest(ids, b""):
            raise DigestMismatch(f"explicit LAC of ledger {ledger_id}: digest does not match")
        found_ledger_id, last_add_confirmed = _IDS.unpack(ids)
        if found_ledger_id != ledger_id:
            raise DigestMismatch(f"explicit LAC of ledger {found_ledger_id}, not {ledger_id}")
        return int(last_add_confirmed)

    def _digest(self, metadata: Buffer, payload: Buffer) -> bytes:
        match self.digest_type:
            case DigestType.CRC32C:
                return _pack_u32(crc32c(payload, crc32c(metadata)))
            case DigestType.CRC32:
                return _pack_u64(zlib.crc32(payload, zlib.crc32(metadata)))
            case DigestType.HMAC:
                mac = self._hmac.copy()
                mac.update(metadata)
                mac.update(payload)
                return mac.digest()
            case DigestType.DUMMY:
                return b""
