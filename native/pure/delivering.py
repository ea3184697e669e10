"""Frames of messages that are delivered to one consumer. Pure.

A frame: total size (4) | command size (4) | 08 09 4a <size> | consumer | 12 <size> | ledger, entry,
partition | options | payload. Sizes and numbers after the first eight bytes are varints.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

_pack_sizes: Final = Struct(">II").pack
FIXED_BYTES_MAX: Final = 90
"""So that each size in a head takes one byte."""
_BYTES_MAX: Final = 2**31 - 1


def message_run(
    consumer: bytes,
    ledger: bytes,
    partition: bytes,
    options: bytes,
    entry_ids: list[int],
    payloads: list[bytes],
) -> bytes:
    """MESSAGE frames of entries of one ledger for one consumer, joined. The first four are what the
    heads have in common, encoded: `ledger` up to the number of the entry, `partition` what follows
    it in the message id, `options` what follows the message id.

    Raises: ValueError: the common parts have more than FIXED_BYTES_MAX bytes, the payloads more
        than 2 GB, or there are not as many as entry ids. TypeError: a payload is not bytes, or an
        entry id not an int. OverflowError: an entry id has no place in 64 bits.
    """
    fixed_size = sum(map(len, (consumer, ledger, partition, options)))
    if fixed_size > FIXED_BYTES_MAX or len(entry_ids) != len(payloads):
        raise ValueError("heads or payloads too large, or not as many as entry ids")
    total = 0
    for payload in payloads:
        if not isinstance(payload, bytes):
            raise TypeError(f"expected bytes, {type(payload).__name__} found")
        if len(payload) > _BYTES_MAX - total:
            raise ValueError("heads or payloads too large, or not as many as entry ids")
        total += 24 + fixed_size + len(payload)
    parts: list[bytes] = []
    for entry_id, payload in zip(entry_ids, payloads, strict=True):
        entry = _varint(entry_id)
        id_size = len(ledger) + len(entry) + len(partition)
        content_size = len(consumer) + 2 + id_size + len(options)
        parts += (
            _pack_sizes(content_size + 8 + len(payload), content_size + 4),
            bytes((0x08, 0x09, 0x4A, content_size)),
            consumer,
            bytes((0x12, id_size)),
            ledger,
            entry,
            partition,
            options,
            payload,
        )
    return b"".join(parts)


def _varint(number: int) -> bytes:
    if not 0 <= number < 2**64:
        raise OverflowError(f"{number} is not a number of 64 bits without a sign")
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
