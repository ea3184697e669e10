"""DirectAppends: the end of an entry log, on its way past the page cache.

Filling a page of the page cache for the first time costs more CPU than writing its bytes, and would
hold up a busy bookie. Appended bytes are therefore collected in one aligned buffer, which is
written whenever it is full. Only whole blocks go this way. The rest at the end goes through the
page cache, and so do the bytes that later fill its block. A reader may have that block in the page
cache, and the system may fail to drop it from there when it is written in the other way, which it
reports as a failed sync of the file: the bookie would stop.

Nothing of it can be read from the file before `finish`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from bookie.direct_io import ALIGNMENT, STAGING_BYTES, AlignedBuffer, aligned_memory
from bookie.flush_pace import in_a_hurry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bookie.direct_io import Part
    from bookie.disk import DiskFile
    from bookie.flush_pace import FlushPace

DIRECT_FLUSH_BYTES_MIN: Final = 16 << 20
"""A flush of less is not in a hurry, and its entries may soon be read from the page cache."""


@final
class DirectAppends:
    """See the module docstring. For one thread at a time, and for one file after another."""

    __slots__ = ("_base", "_begun", "_buffer", "_filled", "_pace", "_to")

    def __init__(self) -> None:
        """Raises: OSError: no memory."""
        self._pace = in_a_hurry()
        self._buffer = AlignedBuffer(aligned_memory(STAGING_BYTES))
        self._base = 0
        """Where in the file the buffer belongs. Aligned."""
        self._begun = 0
        """Bytes that the file has already of the first block. They are not in the buffer."""
        self._filled = 0
        self._to: DiskFile | None = None

    def begin(self, pace: FlushPace) -> None:
        """Give way at this pace from now on; before the first call, appends give way to nothing."""
        self._pace = pace

    def append(self, file: DiskFile, offset: int, parts: Sequence[Part]) -> None:
        """Append the parts at `offset`, which is the end of the file: of what it had at first, or
        of what was appended since.

        Raises: DiskFull, DiskFailed: what is after the end that `finish` made is unknown.
        """
        self._begin(file, offset)
        for part in parts:
            self._append_part(file, part)

    def _begin(self, file: DiskFile, offset: int) -> None:
        if self._to is not file:
            assert self._to is None, "another file is not finished"
            self._to = file
            self._begun = self._filled = offset % ALIGNMENT
            self._base = offset - self._begun
        assert offset == self._base + self._filled

    def _append_part(self, file: DiskFile, part: Part) -> None:
        begin, size = 0, len(part)
        while begin < size:
            taken = min(size - begin, STAGING_BYTES - self._filled)
            self._buffer.copy(part, begin, self._filled, taken)
            begin += taken
            self._filled += taken
            if self._filled == STAGING_BYTES:
                self._write_blocks(file)

    def _write_blocks(self, file: DiskFile) -> None:
        """Write and sync the whole blocks in the buffer, and keep the rest."""
        memory = self._buffer.memory
        end = self._filled - self._filled % ALIGNMENT
        first = 0
        if end and self._begun:
            file.write_at(self._base + self._begun, bytes(memory[self._begun : ALIGNMENT]))
            file.sync()
            first, self._begun = ALIGNMENT, 0
        while first < end:
            size = min(end - first, self._pace.piece_bytes)
            self._pace.begin()
            file.write_parts_synced_at(self._base + first, [memory[first : first + size]])
            self._pace.wrote(size)
            first += size
        self._filled -= end
        memory[: self._filled] = memory[end : end + self._filled]
        self._base += end

    def finish(self) -> None:
        """Write the rest. It is durable after a sync of the file; all the rest is already.

        Raises: DiskFull, DiskFailed.
        """
        file = self._to
        if file is None:
            return
        self._write_blocks(file)
        rest = bytes(self._buffer.memory[self._begun : self._filled])
        if rest:
            file.write_at(self._base + self._begun, rest)
        self._to = None

    def drop(self) -> None:
        """Forget what was appended since the last `finish`."""
        self._to = None
