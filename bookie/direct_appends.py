"""DirectAppends: the end of an entry log, on its way past the page cache.

A page of the page cache that is filled for the first time costs a processor more than the write of
its bytes, and a busy bookie would be held up by that: what it appends is collected in one aligned
buffer, and written from there with every full buffer. The rest at the end goes through the page
cache, because it fills no block; the next append then begins with the bytes of that block.

Nothing of it can be read from the file before `finish`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from bookie.direct_io import ALIGNMENT, STAGING_BYTES, AlignedBuffer, aligned_memory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bookie.direct_io import Part
    from bookie.disk import DiskFile

DIRECT_FLUSH_BYTES_MIN: Final = 16 << 20
"""A flush of less is not in a hurry, and its entries may soon be read from the page cache."""


@final
class DirectAppends:
    """See the module docstring. For one thread at a time, and for one file after another."""

    __slots__ = ("_base", "_buffer", "_filled", "_to")

    def __init__(self) -> None:
        """Raises: OSError: no memory."""
        self._buffer = AlignedBuffer(aligned_memory(STAGING_BYTES))
        self._base = 0
        """Where in the file the buffer belongs. Aligned."""
        self._filled = 0
        self._to: DiskFile | None = None

    def append(self, file: DiskFile, offset: int, parts: Sequence[Part]) -> None:
        """Append the parts at `offset`, which is the end of the file: of what it had at first, or
        of what was appended since.

        Raises: DiskFull, DiskFailed: what is after the end that `finish` made is unknown.
        """
        if self._to is not file:
            assert self._to is None, "another file is not finished"
            self._to = file
            self._base = offset - offset % ALIGNMENT
            self._filled = offset - self._base
            self._buffer.put(file.read_at(self._base, self._filled), 0, 0, self._filled)
        assert offset == self._base + self._filled
        for part in parts:
            self._append_part(file, part)

    def _append_part(self, file: DiskFile, part: Part) -> None:
        begin, size = 0, len(part)
        while begin < size:
            taken = min(size - begin, STAGING_BYTES - self._filled)
            self._buffer.put(part, begin, self._filled, taken)
            begin += taken
            self._filled += taken
            if self._filled == STAGING_BYTES:
                file.write_parts_synced_at(self._base, [self._buffer.memory])
                self._base += STAGING_BYTES
                self._filled = 0

    def finish(self) -> None:
        """Write the rest. It is durable after a sync of the file; all the rest is already.

        Raises: DiskFull, DiskFailed.
        """
        file = self._to
        if file is None:
            return
        whole = self._filled - self._filled % ALIGNMENT
        if whole:
            file.write_parts_synced_at(self._base, [self._buffer.memory[:whole]])
        if whole < self._filled:
            file.write_at(self._base + whole, bytes(self._buffer.memory[whole : self._filled]))
        self._to = None

    def drop(self) -> None:
        """Forget what was appended since the last `finish`."""
        self._to = None
