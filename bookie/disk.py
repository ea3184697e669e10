"""Disk: the storage accesses files only through this seam (RocksDB has its own).

`RealDisk`, with `direct_io`, is the only code in this package that calls os.* for storage. Callers
rely on the following:

* bytes are durable only after `DiskFile.sync()` returned;
* a created, renamed or removed name is durable only after `sync_directory()` of its directory;
* a failed sync raises DiskFailed and is fatal: the kernel may have dropped the pages and a second
  fsync would lie. A failed write raises DiskFull (no space) or DiskFailed (anything else).
"""

from __future__ import annotations

import contextlib
import errno
import os
from typing import TYPE_CHECKING, Final, Protocol, final

from bookie import direct_io
from bookie.direct_reads import DirectReads
from bookie.errors import DiskFailed, failure
from bookie.freed_space import FreedSpace
from bookie.permissions import DIRECTORY_MODE, FILE_MODE, restrict_if_only, restrict_tree
from bookie.ring import open_ring

if TYPE_CHECKING:
    from collections.abc import Sequence

_NOT_SUPPORTED = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
_SYNCED_WRITE: Final[int] = getattr(os, "RWF_DSYNC", 0)
"""Flag of pwritev: each write as with O_DSYNC. Linux."""

PARTS_PER_CALL_MAX: Final = 1024
"""IOV_MAX of Linux."""
JOIN_BELOW_BYTES: Final = 4096
"""Average size of parts below which joining them is cheaper than writing them as a vector."""
DIRECT_BYTES_MIN: Final = 32 << 10
"""Synced writes of at least this size bypass the page cache if that is possible. A group of 100 KB
is then durable in half the time: 0.5 to 1.3 ms instead of 1.8 to 3.6 (p50, on a busy machine)."""
_FREED: Final = FreedSpace()


class DiskFile(Protocol):
    """One open file. Offsets are explicit, so readers and the one writer do not interfere."""

    path: str

    def write_at(self, offset: int, data: bytes) -> None:
        """Write all of `data`; visible to readers at once, durable after `sync`."""

    def write_parts_at(self, offset: int, parts: Sequence[direct_io.Part]) -> None:
        """As `write_at` of the joined parts, but without copying large parts."""

    def write_parts_synced_at(self, offset: int, parts: Sequence[direct_io.Part]) -> None:
        """As `write_parts_at` and then `sync`, for a file with nothing else to sync, in one call if
        the system has one. A failure of either part is final, like a failed `sync`. Large aligned
        writes bypass the page cache if possible, so this is for bytes that are not read back
        soon; one part in memory of `direct_io.aligned_memory` is not copied then."""

    def direct(self) -> direct_io.DirectWriter | None:
        """Writes past the page cache. None: not possible here."""

    def read_at(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file."""

    def expect_runs(self) -> None:
        """From now on each read asks for all that is wanted: the system should not read more. Large
        ones may bypass the page cache."""

    def sync(self) -> None:
        """Make everything written so far durable (data and the size needed to read it)."""

    def size(self) -> int:
        """Length in bytes."""

    def truncate(self, size: int) -> None:
        """Cut or extend with zeros."""

    def preallocate(self, offset: int, size: int) -> None:
        """Reserve zeroed space, so that a sync need not write new block maps every time.

        Raises: DiskFull: the file is as it was.
        """

    def close(self) -> None:
        """Release the handle. Does not sync."""


class Submissions(Protocol):
    """Writes that go on without a thread of this process. One at a time."""

    def fileno(self) -> int:
        """Becomes readable when the write is done."""

    def takes(self, file: DiskFile, offset: int, alignment: int) -> bool:
        """Whether writes to this file, from `offset` on and of a multiple of `alignment`, can be
        submitted: to be asked before one is put together. `submit` may still say no."""

    def submit(
        self, file: DiskFile, offset: int, parts: Sequence[direct_io.Part], size: int
    ) -> bool:
        """Begin to write the parts, `size` bytes together, and to make them durable. False: not
        possible; nothing is under way. A part that is a view must not change before the end."""

    def result(self) -> bool | None:
        """None: the write is not done yet. True: it is durable. False: it was refused, or done in
        part, and the same has to be written in another way.

        Raises: DiskFull, DiskFailed: final, like a failed `sync`.
        """

    def wait(self) -> bool:
        """Wait for the result (blocking). Raises as `result`."""

    def close(self) -> None:
        """Release it. Nothing is under way."""


class Disk(Protocol):
    """Names and files."""

    def make_directories(self, path: str) -> None:
        """Create the directory and its parents, durably."""

    def restrict(self, path: str) -> None:
        """Let only the server's user read and write what exists in this `current` directory."""

    def list_names(self, path: str) -> Sequence[str]:
        """Names in a directory, sorted; empty when the directory does not exist."""

    def exists(self, path: str) -> bool:
        """Whether the name exists."""

    def create(self, path: str) -> DiskFile:
        """Create a new empty file. The name must not exist."""

    def open(self, path: str) -> DiskFile:
        """Open an existing file for reading and writing.

        Raises: FileNotFoundError.
        """

    def rename(self, source: str, target: str) -> None:
        """Replace `target` atomically."""

    def remove(self, path: str) -> None:
        """Remove a file. Those that have it open can read it."""

    def sync_directory(self, path: str) -> None:
        """Make the names in this directory durable."""

    def open_submissions(self) -> Submissions | None:
        """None: there are none here, and threads have to write."""

    def has_device(self, path: str) -> bool:
        """False: files in this directory are only in memory, so nothing is gained by writing past
        the page cache."""

    def free_and_total_bytes(self, path: str) -> tuple[int, int]:
        """Usable free space and size of the file system that holds `path`."""


def read_file(disk: Disk, path: str) -> bytes:
    """The whole content of a small file.

    Raises: FileNotFoundError.
    """
    file = disk.open(path)
    try:
        return file.read_at(0, file.size())
    finally:
        file.close()


def replace_file(disk: Disk, path: str, content: bytes) -> None:
    """Durably replace a small file: after a crash it has either the old or the new content."""
    temporary = path + ".new"
    if disk.exists(temporary):
        disk.remove(temporary)
    file = disk.create(temporary)
    try:
        file.write_at(0, content)
        file.sync()
    finally:
        file.close()
    disk.rename(temporary, path)
    disk.sync_directory(os.path.dirname(path))


@final
class RealFile:
    """A file of the operating system."""

    __slots__ = (
        "__weakref__",
        "_descriptor",
        "_direct",
        "_direct_reads",
        "_direct_tried",
        "path",
    )

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self._direct: direct_io.DirectWriter | None = None
        self._direct_tried = False
        self._direct_reads: DirectReads | None = None

    def write_at(self, offset: int, data: bytes) -> None:
        """pwrite until everything is written."""
        try:
            written = os.pwrite(self._descriptor, data, offset)
            size = len(data)
            if written != size:
                view = memoryview(data)
                while written < size:
                    written += os.pwrite(self._descriptor, view[written:], offset + written)
        except OSError as error:
            raise failure(error, "writing", self.path) from error

    def write_parts_at(self, offset: int, parts: Sequence[direct_io.Part]) -> None:
        """pwritev; small parts are joined first, which is cheaper than a vector of them."""
        size = sum(map(len, parts))
        if size < JOIN_BELOW_BYTES * len(parts):
            self.write_at(offset, b"".join(parts))
            return
        try:
            for at in range(0, len(parts), PARTS_PER_CALL_MAX):
                vector = parts[at : at + PARTS_PER_CALL_MAX]
                wanted = sum(map(len, vector))
                if os.pwritev(self._descriptor, vector, offset) != wanted:
                    self.write_at(offset, b"".join(vector))
                offset += wanted
        except OSError as error:
            raise failure(error, "writing", self.path) from error

    def write_parts_synced_at(self, offset: int, parts: Sequence[direct_io.Part]) -> None:
        """pwritev with RWF_DSYNC: half the system calls, and half the waits for the interpreter, of
        a write and an fdatasync. Large writes bypass the page cache."""
        size = sum(map(len, parts))
        if size >= DIRECT_BYTES_MIN and self._write_direct(offset, parts, size):
            return
        if _SYNCED_WRITE and len(parts) <= PARTS_PER_CALL_MAX:
            if size < JOIN_BELOW_BYTES * len(parts) and len(parts) > 1:
                parts = [b"".join(parts)]
            try:
                if os.pwritev(self._descriptor, parts, offset, _SYNCED_WRITE) == size:
                    return
            except OSError as error:
                if error.errno not in _NOT_SUPPORTED:
                    raise failure(error, "writing or syncing", self.path) from error
        self.write_parts_at(offset, parts)
        self.sync()

    def _write_direct(self, offset: int, parts: Sequence[direct_io.Part], size: int) -> bool:
        """False: not possible here. The parts have to be written (again) in the usual way."""
        direct = self.direct()
        if direct is None or not direct_io.is_aligned(offset, size):
            return False
        try:
            if direct.write_synced(offset, parts, size):
                return True
        except OSError as error:
            raise failure(error, "writing or syncing", self.path) from error
        direct.close()
        self._direct = None
        return False

    def direct(self) -> direct_io.DirectWriter | None:
        """Opened at the first use."""
        if not self._direct_tried:
            self._direct_tried = True
            self._direct = direct_io.open_direct(self.path, self._descriptor)
        return self._direct

    def read_at(self, offset: int, size: int) -> bytes:
        """pread until `size` bytes or the end of the file."""
        if self._direct_reads is not None:
            read = self._direct_reads.read(offset, size)
            if read is not None:
                return read
        try:
            data = os.pread(self._descriptor, size, offset)
            while 0 < len(data) < size:
                more = os.pread(self._descriptor, size - len(data), offset + len(data))
                if not more:
                    break
                data += more
        except OSError as error:
            raise DiskFailed(f"reading {self.path} at {offset}: {error.strerror}") from error
        return data

    def expect_runs(self) -> None:
        """posix_fadvise, and `direct_reads`."""
        with contextlib.suppress(OSError):  # an advice only
            os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        if self._direct_reads is None:
            self._direct_reads = DirectReads(self.path, self._descriptor)

    def sync(self) -> None:
        """fdatasync."""
        try:
            os.fdatasync(self._descriptor)
        except OSError as error:
            raise DiskFailed(
                f"fdatasync of {self.path} failed: {error.strerror}. Data written since the "
                "last sync may be lost, so the bookie stops and does not retry"
            ) from error

    def size(self) -> int:
        """Length in bytes."""
        return os.fstat(self._descriptor).st_size

    def truncate(self, size: int) -> None:
        """ftruncate."""
        try:
            os.ftruncate(self._descriptor, size)
        except OSError as error:
            raise failure(error, "truncating", self.path) from error

    def preallocate(self, offset: int, size: int) -> None:
        """posix_fallocate. File systems without support write without reservation. Some keep what
        they reserved until the space was used up, so a failure gives it back."""
        before = self.size()
        try:
            os.posix_fallocate(self._descriptor, offset, size)
        except OSError as error:
            if error.errno in (errno.EOPNOTSUPP, errno.EINVAL):
                return
            if self.size() != before:
                self.truncate(before)
            raise failure(error, "preallocating", self.path) from error

    def close(self) -> None:
        """Close the descriptors."""
        if self._direct is not None:
            self._direct.close()
            self._direct = None
        if self._direct_reads is not None:
            self._direct_reads.close()
            self._direct_reads = None
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    @property
    def is_open(self) -> bool:
        """Whether it has not been closed."""
        return self._descriptor >= 0

    def __del__(self) -> None:
        """The last user of a shared read handle closes it by dropping it."""
        self.close()


@final
class RealDisk:
    """The operating system's file systems."""

    __slots__ = ()

    def make_directories(self, path: str) -> None:
        """Create missing directories from the top down and sync each parent."""
        missing = []
        current = os.path.abspath(path)
        while not os.path.isdir(current):
            missing.append(current)
            current = os.path.dirname(current)
        for directory in reversed(missing):
            os.makedirs(directory, mode=DIRECTORY_MODE, exist_ok=True)
            self.sync_directory(os.path.dirname(directory))

    def restrict(self, path: str) -> None:
        """Restrict existing files of the directory, and its parent if that has no other use."""
        restrict_if_only(os.path.dirname(path), {os.path.basename(path)})
        restrict_tree(path)

    def list_names(self, path: str) -> Sequence[str]:
        """Sorted names."""
        try:
            return sorted(os.listdir(path))
        except FileNotFoundError:
            return ()

    def exists(self, path: str) -> bool:
        """Whether the name exists."""
        return os.path.exists(path)

    def create(self, path: str) -> DiskFile:
        """O_CREAT | O_EXCL."""
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            return _FREED.opened(lambda: RealFile(path, os.open(path, flags, FILE_MODE)))
        except FileExistsError:
            raise
        except OSError as error:
            raise failure(error, "creating", path) from error

    def open(self, path: str) -> DiskFile:
        """Read and write."""
        return _FREED.opened(lambda: RealFile(path, os.open(path, os.O_RDWR | os.O_CLOEXEC)))

    def rename(self, source: str, target: str) -> None:
        """rename(2)."""
        try:
            os.rename(source, target)
        except OSError as error:
            raise failure(error, "renaming", source) from error

    def remove(self, path: str) -> None:
        """unlink(2). The space of a large file comes back bit by bit, so that the syncs of others
        need not wait for it."""
        _FREED.remove(path)

    def sync_directory(self, path: str) -> None:
        """fsync of the directory."""
        descriptor = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
            _FREED.check()
        except OSError as error:
            raise DiskFailed(f"fsync of directory {path} failed: {error.strerror}") from error
        finally:
            os.close(descriptor)

    def open_submissions(self) -> Submissions | None:
        """io_uring."""
        return open_ring()

    def has_device(self, path: str) -> bool:
        """By the type of the file system."""
        return not direct_io.is_in_memory(path)

    def free_and_total_bytes(self, path: str) -> tuple[int, int]:
        """statvfs."""
        status = os.statvfs(path)
        return status.f_bavail * status.f_frsize, status.f_blocks * status.f_frsize
