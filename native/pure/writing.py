"""Heads of entries that are to be written. Pure.

A head is 32 bytes of metadata and the CRC-32C of these and the payload that follows. Format:
BookKeeper's DigestManager, as in `native.pure.reading`.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from native.pure.checksums import crc32c

_pack_metadata: Final = Struct(">qqqq").pack
_pack_head: Final = Struct(">32sI").pack


def crc32c_bodies(
    ledger_id: int,
    first_entry_id: int,
    last_add_confirmed: int,
    length: int,
    payloads: list[bytes],
) -> list[tuple[bytes, bytes]]:
    """Heads and payloads of consecutive entries. `length`: payload bytes of the ledger before them.

    Raises: TypeError: a payload is not bytes.
    """
    bodies: list[tuple[bytes, bytes]] = []
    for entry_id, payload in enumerate(payloads, first_entry_id):
        if not isinstance(payload, bytes):
            raise TypeError(f"expected bytes, {type(payload).__name__} found")
        length += len(payload)
        metadata = _pack_metadata(ledger_id, entry_id, last_add_confirmed, length)
        bodies.append((_pack_head(metadata, crc32c(payload, crc32c(metadata))), payload))
    return bodies
