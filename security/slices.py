"""Buffers in slices of a bounded size. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def slices_of(
    buffers: Sequence[bytes | memoryview], skipped_bytes: int, slice_bytes: int
) -> Iterator[tuple[list[bytes | memoryview], int]]:
    """The buffers after the first bytes, in slices: the pieces of each, and their size. Nothing is
    copied."""
    pieces: list[bytes | memoryview] = []
    size = 0
    for buffer in buffers:
        length = len(buffer)
        if skipped_bytes >= length:
            skipped_bytes -= length
            continue
        begin, skipped_bytes = skipped_bytes, 0
        while begin < length:
            end = min(length, begin + slice_bytes - size)
            whole = begin == 0 and end == length
            pieces.append(buffer if whole else memoryview(buffer)[begin:end])
            size += end - begin
            begin = end
            if size == slice_bytes:
                yield pieces, size
                pieces, size = [], 0
    if pieces:
        yield pieces, size
