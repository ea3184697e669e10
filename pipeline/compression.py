"""Decompression of payloads; Arrow brings the codecs along."""

from __future__ import annotations

import pyarrow


def decompress(codec: str, payload: bytes | memoryview, size_bytes: int) -> bytes:
    """`codec` is Arrow's name. Raises: OSError, ValueError: the payload is damaged."""
    content: bytes = pyarrow.decompress(
        payload, decompressed_size=size_bytes, codec=codec, asbytes=True
    )
    return content
