"""Digests of entries that were read. Pure.

An entry is 32 bytes of metadata that begin with the ids of ledger and entry, the CRC-32C of these
32 bytes and the payload, and the payload. Numbers are big-endian. Format: BookKeeper's
DigestManager.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from native.pure.checksums import crc32c

_METADATA_BYTES: Final = 32
_HEAD_BYTES: Final = 36
_pack_ids: Final = Struct(">qq").pack
_pack_u32: Final = Struct(">I").pack


def crc32c_payloads(bodies: list[bytes], ledger_id: int, first_entry_id: int) -> list[bytes]:
    """Payloads of consecutive entries, up to the first that is not what its writer stored, or not
    the entry that belongs there.

    The extension lets other threads run while it checks and copies.
    """
    payloads: list[bytes] = []
    for entry_id, body in enumerate(bodies, first_entry_id):
        metadata = body[:_METADATA_BYTES]
        payload = body[_HEAD_BYTES:]
        if metadata[:16] != _pack_ids(ledger_id, entry_id) or body[
            _METADATA_BYTES:_HEAD_BYTES
        ] != _pack_u32(crc32c(payload, crc32c(metadata))):
            break
        payloads.append(payload)
    return payloads
