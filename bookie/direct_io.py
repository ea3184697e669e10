"""DirectWriter: large writes past the page cache (O_DIRECT), for data not read back soon.

The kernel takes such a write from the caller's memory straight to the device: no page is allocated,
filled and cleaned for it. Memory, offset and size have to be aligned. What is not in memory of
`aligned_memory` is copied into one permanent buffer, which is cheaper than the kernel's copy into
pages that are in no processor cache. The kernel keeps buffered writes and reads of the same file
coherent.

A file system or device may refuse at opening or at any write. Then the caller writes the same bytes
to the same place through the page cache.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Sequence

ALIGNMENT: Final = 4096
"""Alignment of offset and size: a multiple of every usual block size, and a whole page, so that a
direct and a buffered write never share one."""
STAGING_BYTES: Final = 4 << 20
"""Larger writes are split into pieces of this size. A multiple of ALIGNMENT."""
LARGE_BYTES: Final = 64 << 10
"""Parts of at least this size are copied without the interpreter: the event loop goes on."""

_DIRECT: Final[int] = getattr(os, "O_DIRECT", 0)
_SYNCED_WRITE: Final[int] = getattr(os, "RWF_DSYNC", 0)
_STATFS_BYTES: Final = 256
"""More than a `struct statfs` of any architecture has; its type comes first."""
_MEMORY_MAGICS: Final = (0x01021994, 0x858458F6)
"""tmpfs and ramfs: linux/magic.h."""
Part = bytes | memoryview
_REFUSALS: Final = (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS)


def is_in_memory(path: str) -> bool:
    """Whether the file system of `path` is known to keep files in memory only: what is written past
    its page cache is copied like anything else."""
    answer = ctypes.create_string_buffer(_STATFS_BYTES)
    try:
        if ctypes.CDLL(None).statfs(os.fsencode(path), answer) != 0:
            return False
    except AttributeError:
        return False
    return ctypes.c_ulong.from_buffer(answer).value in _MEMORY_MAGICS


def open_direct(path: str, descriptor: int) -> DirectWriter | None:
    """A writer of the file that is open as `descriptor` and was created as `path`; None if direct
    writes are not supported."""
    if not _DIRECT or not _SYNCED_WRITE:
        return None
    try:
        direct = os.open(path, os.O_WRONLY | os.O_CLOEXEC | _DIRECT)
    except OSError:
        return None
    if not os.path.sameopenfile(direct, descriptor):
        os.close(direct)
        return None
    try:
        staging = aligned_memory(STAGING_BYTES)
    except OSError:  # no memory for it
        os.close(direct)
        return None
    return DirectWriter(direct, staging)


def aligned_memory(size: int) -> memoryview:
    """Memory that can be written without being copied. It takes up space when it is used.

    Raises: OSError: there is none.
    """
    memory = mmap.mmap(-1, size)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # the kernel pins page by page: fewer are better
            memory.madvise(mmap.MADV_HUGEPAGE)
    return memoryview(memory)


def is_aligned(offset: int, size: int) -> bool:
    """Whether a direct write may start at `offset` and have `size` bytes."""
    return (offset | size) % ALIGNMENT == 0


def _aligned_address(parts: Sequence[Part]) -> int:
    """Where the only part is, if it can be written from there; 0: it has to be copied."""
    if len(parts) != 1 or not isinstance(parts[0], memoryview) or parts[0].readonly:
        return 0
    address = ctypes.addressof(ctypes.c_char.from_buffer(parts[0]))
    return 0 if address % ALIGNMENT else address


@final
class AlignedBuffer:
    """Memory that can be written without being copied, and is filled by copies."""

    __slots__ = ("address", "memory")

    def __init__(self, memory: memoryview) -> None:
        """`memory`: of `aligned_memory`."""
        self.memory = memory
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(memory))

    def copy(self, part: Part, begin: int, at: int, size: int) -> None:
        """Copy `size` bytes of the part from `begin` on to `at`. Much is copied without the
        interpreter."""
        if size < LARGE_BYTES:
            self.memory[at : at + size] = memoryview(part)[begin : begin + size]
            return
        if isinstance(part, memoryview):
            part = bytes(part)
        source = ctypes.cast(ctypes.c_char_p(part), ctypes.c_void_p).value
        assert source is not None
        assert begin + size <= len(part)
        assert at + size <= len(self.memory)
        ctypes.memmove(self.address + at, source + begin, size)


@final
class DirectWriter:
    """One open file and its write buffer. For one thread at a time."""

    __slots__ = ("_buffer", "_descriptor", "_known", "_known_address")

    def __init__(self, descriptor: int, staging: memoryview) -> None:
        self._descriptor = descriptor
        self._known: Part = b""
        """The last part that was written from where it is."""
        self._known_address = 0
        self._buffer = AlignedBuffer(staging)

    def write_synced(self, offset: int, parts: Sequence[Part], size: int) -> bool:
        """Write the parts, `size` bytes together, and make them durable. False: refused or
        incomplete; the content between `offset` and `offset + size` is then unknown.

        Raises: OSError: the device failed.
        """
        try:
            if _aligned_address(parts):
                return os.pwritev(self._descriptor, parts, offset, _SYNCED_WRITE) == size
            if size <= len(self._buffer.memory):
                self._stage(parts)
                return self._write(offset, size, _SYNCED_WRITE)
            # The flag would apply to the last piece only.
            if not self._write_pieces(offset, parts):
                return False
            os.fdatasync(self._descriptor)
        except OSError as error:
            if error.errno in _REFUSALS:
                return False
            raise
        return True

    def stage(self, parts: Sequence[Part], size: int) -> int:
        """Copy the parts, `size` bytes together, to where a write can take them, unless they are
        there. Returns that address, which is aligned; 0: there is no room for so many. What is
        there must stay until it is written."""
        if len(parts) == 1 and parts[0] is self._known:
            return self._known_address
        address = _aligned_address(parts)
        if address:
            self._known, self._known_address = parts[0], address
            return address
        if size > len(self._buffer.memory):
            return 0
        self._stage(parts)
        return self._buffer.address

    def fileno(self) -> int:
        """The descriptor of the file, open for direct writes."""
        return self._descriptor

    def close(self) -> None:
        """Release the handle and the memory."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            self._buffer.memory = memoryview(b"")
            self._known = b""
            self._known_address = 0

    def _stage(self, parts: Sequence[Part]) -> None:
        staging = self._buffer.memory
        at = 0
        for part in parts:
            end = at + len(part)
            if end - at < LARGE_BYTES:
                staging[at:end] = part
            else:
                self._buffer.copy(part, 0, at, end - at)
            at = end

    def _write_pieces(self, offset: int, parts: Sequence[Part]) -> bool:
        limit = len(self._buffer.memory)
        at = 0
        for part in parts:
            begin, size = 0, len(part)
            while at + size - begin >= limit:
                self._buffer.copy(part, begin, at, limit - at)
                begin += limit - at
                if not self._write(offset, limit, 0):
                    return False
                offset += limit
                at = 0
            self._buffer.copy(part, begin, at, size - begin)
            at += size - begin
        return at == 0 or self._write(offset, at, 0)

    def _write(self, offset: int, size: int, flags: int) -> bool:
        return os.pwritev(self._descriptor, [self._buffer.memory[:size]], offset, flags) == size
