"""MemoryDisk: files that exist only in the process, for the in-memory mode.

Same behaviour as RealDisk except that nothing is ever durable. `sync` does nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bookie.direct_io import Part
    from bookie.disk import DiskFile

_TOTAL_BYTES = 1 << 50


@final
class MemoryFile:
    """One file as a bytearray."""

    __slots__ = ("data", "path")

    def __init__(self, path: str, data: bytearray) -> None:
        self.path = path
        self.data = data

    def write_at(self, offset: int, data: bytes) -> None:
        """Overwrite or extend."""
        gap = offset - len(self.data)
        if gap > 0:
            self.data.extend(bytes(gap))
        self.data[offset : offset + len(data)] = data

    def write_parts_at(self, offset: int, parts: Sequence[Part]) -> None:
        """One write of all parts."""
        self.write_at(offset, b"".join(parts))

    def write_parts_synced_at(self, offset: int, parts: Sequence[Part]) -> None:
        """Nothing is durable here."""
        self.write_parts_at(offset, parts)
        self.sync()

    def direct(self) -> None:
        """There is no page cache."""

    def read_at(self, offset: int, size: int) -> bytes:
        """A copy of the range."""
        return bytes(self.data[offset : offset + size])

    def expect_runs(self) -> None:
        """Nothing is read ahead here."""

    def sync(self) -> None:
        """Nothing to do."""

    def size(self) -> int:
        """Length in bytes."""
        return len(self.data)

    def truncate(self, size: int) -> None:
        """Cut or extend with zeros."""
        if size < len(self.data):
            del self.data[size:]
        else:
            self.data.extend(bytes(size - len(self.data)))

    def preallocate(self, offset: int, size: int) -> None:
        """Memory is not reserved ahead."""

    def close(self) -> None:
        """Nothing to release."""


@final
class MemoryDisk:
    """A tree of MemoryFiles."""

    __slots__ = ("_files",)

    def __init__(self) -> None:
        self._files: dict[str, bytearray] = {}

    def make_directories(self, path: str) -> None:
        """Directories are implied by names."""

    def restrict(self, path: str) -> None:
        """Names have no modes here."""

    def list_names(self, path: str) -> Sequence[str]:
        """Sorted names directly below `path`."""
        prefix = path.rstrip("/") + "/"
        return sorted(
            {
                name[len(prefix) :].split("/", 1)[0]
                for name in self._files
                if name.startswith(prefix)
            }
        )

    def exists(self, path: str) -> bool:
        """Whether the file exists."""
        return path in self._files

    def create(self, path: str) -> DiskFile:
        """A new empty file."""
        if path in self._files:
            raise FileExistsError(path)
        data = self._files[path] = bytearray()
        return MemoryFile(path, data)

    def open(self, path: str) -> DiskFile:
        """The existing file."""
        try:
            return MemoryFile(path, self._files[path])
        except KeyError:
            raise FileNotFoundError(path) from None

    def rename(self, source: str, target: str) -> None:
        """Move the name."""
        self._files[target] = self._files.pop(source)

    def remove(self, path: str) -> None:
        """Remove the file."""
        del self._files[path]

    def sync_directory(self, path: str) -> None:
        """Nothing to do."""

    def open_submissions(self) -> None:
        """There are none."""

    def has_device(self, path: str) -> bool:
        """There is none."""
        return False

    def free_and_total_bytes(self, path: str) -> tuple[int, int]:
        """Never full: the caches and quotas bound the use."""
        return _TOTAL_BYTES, _TOTAL_BYTES
