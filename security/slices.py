"""Buffers in slices of a bounded size. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

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


@final
class SliceUnderWay:
    """A slice whose records have not all left, and how much of it the caller knows as taken."""

    __slots__ = ("_records_bytes", "_reported", "_size_bytes")

    def __init__(self) -> None:
        self._size_bytes = 0
        """0: there is none."""
        self._records_bytes = 0
        self._reported = 0
        """Bytes that the caller knows as taken."""

    def begin(self, size_bytes: int, records_bytes: int) -> None:
        """A slice of this size has become records of that size."""
        self._size_bytes, self._records_bytes = size_bytes, records_bytes

    def records_follow(self, records_bytes: int) -> None:
        """Others have to leave after those of the slice, if there is one."""
        if self._size_bytes:
            self._records_bytes += records_bytes

    def newly_taken(self, pending_bytes: int) -> int:
        """Bytes of the slice that count as taken since the last question, while so many bytes of
        records have not left."""
        size = self._size_bytes
        if not size:
            return 0
        if pending_bytes:
            left = self._records_bytes - pending_bytes
            done = max(self._reported, min(size - 1, size * left // self._records_bytes))
        else:
            done = size
        newly = done - self._reported
        self._reported = done
        if done == size:
            self._size_bytes = self._reported = 0
        return newly
