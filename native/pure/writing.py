"""Entries that are to be written: their heads, and their records in the journal. Pure.

A head is 32 bytes of metadata and the CRC-32C of these and the payload that follows. Format:
BookKeeper's DigestManager, as in `native.pure.reading`. A record is the size of an entry (4 bytes),
its head and its payload.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from native.pure.checksums import crc32c, crc32c_joined

_pack_metadata: Final = Struct(">qqqq").pack
_pack_head: Final = Struct(">32sI").pack
_pack_size: Final = Struct(">i").pack
_read_u32: Final = Struct(">I").unpack_from
_MAGIC: Final = b"\x0e\x01"
_BODY_BYTES_MAX: Final = 2**31 - 1
_UNCHECKED_BYTES: Final = 6
"""The bytes before those that a checksum covers: the magic, and the checksum of the rest."""


def crc32c_bodies(
    ledger_id: int,
    first_entry_id: int,
    last_add_confirmed: int,
    length: int,
    payloads: list[bytes],
    are_intact: bool,
) -> list[tuple[bytes, bytes]]:
    """Heads and payloads of consecutive entries. `length`: payload bytes of the ledger before them.
    `are_intact`: a checksum that is in a payload was found to fit, and its digest is derived from
    that. So the digest is that of the bytes that were checked, whatever has become of them since.

    Raises: TypeError: a payload is not bytes.
    """
    bodies: list[tuple[bytes, bytes]] = []
    for entry_id, payload in enumerate(payloads, first_entry_id):
        if not isinstance(payload, bytes):
            raise TypeError(f"expected bytes, {type(payload).__name__} found")
        length += len(payload)
        metadata = _pack_metadata(ledger_id, entry_id, last_add_confirmed, length)
        digest = crc32c(metadata)
        if are_intact and len(payload) >= _UNCHECKED_BYTES and payload.startswith(_MAGIC):
            digest = crc32c(payload[:_UNCHECKED_BYTES], digest)
            size = len(payload) - _UNCHECKED_BYTES
            digest = crc32c_joined(digest, _read_u32(payload, 2)[0], size)
        else:
            digest = crc32c(payload, digest)
        bodies.append((_pack_head(metadata, digest), payload))
    return bodies


def put_records(
    bodies: list[tuple[bytes, bytes]],
    into: bytearray | memoryview,
    at: int,
    checksum: int,
) -> tuple[int, int]:
    """Copy the records of the bodies that are not empty to `at` in the buffer. Returns where they
    end, and their checksum after bytes with the given one.

    The extension lets other threads run while it copies much.

    Raises: ValueError: the buffer has no room for them, and its content from `at` on is undefined.
        Or a body is not a pair of bytes, or has 2 GB.
    """
    for body in bodies:
        if not (
            isinstance(body, tuple)
            and len(body) == 2
            and isinstance(body[0], bytes)
            and isinstance(body[1], bytes)
        ):
            raise ValueError("records need room, and are made of pairs of bytes")
        head, payload = body
        size = len(head) + len(payload)
        if size > _BODY_BYTES_MAX:
            raise ValueError("records need room, and are made of pairs of bytes")
        if size:
            record = b"".join((_pack_size(size), head, payload))
            if not 0 <= at <= len(into) - len(record):
                raise ValueError("records need room, and are made of pairs of bytes")
            into[at : at + len(record)] = record
            at += len(record)
            checksum = crc32c(record, checksum)
    if not 0 <= at <= len(into):
        raise ValueError("records need room, and are made of pairs of bytes")
    return at, checksum
