"""Ring: synced writes that the kernel carries out while the event loop goes on (io_uring, Linux).

A small group of the journal costs less to write than to hand to a thread and back: two wake-ups,
and three waits for the interpreter. Here the event loop submits the write with one call, and the
ring is readable when it is durable. Only one write is under way at a time, straight from the
caller's aligned memory to the device (O_DIRECT with RWF_DSYNC): threads of the kernel would do
writes through the page cache, and cost as much as the threads saved.

Layouts and numbers: io_uring_setup(2), io_uring_enter(2), linux/io_uring.h. No barrier is needed:
the kernel reads the submission within the call, and completions are read after a system call.

Systems without it, or that forbid it, as containers often do, have None; threads write there.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import struct
import sys
from typing import TYPE_CHECKING, Final, Protocol, final

from bookie.direct_io import is_aligned
from bookie.errors import failure

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bookie.direct_io import DirectWriter, Part

    _Call = Callable[..., int]

_SETUP: Final = 425
_ENTER: Final = 426
"""System calls; the same numbers on all architectures that CPython runs on but Alpha."""
_ENTRIES: Final = 1
_COOPERATIVE: Final = 1 << 8
"""IORING_SETUP_COOP_TASKRUN: the loop, which waits in epoll, is not interrupted."""
_GET_EVENTS: Final = 1
_PARAMETERS: Final = struct.Struct("=II I I I I I 12x 10I 10I")
_ENTRY: Final = struct.Struct("=BBHiQQIiQ24x")
"""Operation, flags, priority, descriptor, offset, address, size, flags of the write, token."""
_RESULT: Final = struct.Struct("=QiI")
_NUMBER: Final = struct.Struct("=I")
_WRITE: Final = 23
_NUMBER_MAX: Final = 0xFFFFFFFF
_RING_AT: Final = 0
_ENTRIES_AT: Final = 0x10000000
_SYNCED_WRITE: Final[int] = getattr(os, "RWF_DSYNC", 0)
_REFUSALS: Final = (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS)


class Submittable(Protocol):
    """A file that may be written past the page cache."""

    path: str

    def direct(self) -> DirectWriter | None:
        """None: it may not."""


def open_ring() -> Ring | None:
    """A new ring, or None if the system has none for this process."""
    if not sys.platform.startswith("linux") or not _SYNCED_WRITE:
        return None
    parameters = ctypes.create_string_buffer(_PARAMETERS.size)
    _NUMBER.pack_into(parameters, 8, _COOPERATIVE)
    address = ctypes.addressof(parameters)
    descriptor = _system_call(ctypes.CDLL)(_SETUP, _ENTRIES, ctypes.c_void_p(address))
    if descriptor < 0:
        return None
    try:
        # A call that keeps the interpreter: nothing waits in a submission.
        submit, wait = _system_call(ctypes.PyDLL), _system_call(ctypes.CDLL)
        return Ring(descriptor, submit, wait, parameters.raw)
    except OSError:
        os.close(descriptor)
        return None


def _system_call(library: Callable[[None], ctypes.CDLL]) -> _Call:
    # Without declared types a small number is passed as an int, which is what io_uring_enter takes.
    # To convert seven of them by their declarations took more than the rest of a submission.
    call = library(None)["syscall"]
    call.restype = ctypes.c_long
    return call


@final
class Ring:
    """See the module docstring. For one thread at a time."""

    __slots__ = (
        "_completed_at",
        "_count",
        "_descriptor",
        "_entries",
        "_path",
        "_results_at",
        "_results_mask",
        "_ring",
        "_size",
        "_submit",
        "_tail_at",
        "_taken_at",
        "_wait",
    )

    def __init__(self, descriptor: int, submit: _Call, wait: _Call, parameters: bytes) -> None:
        """Raises: OSError: its memory cannot be mapped."""
        values = _PARAMETERS.unpack(parameters)
        entries, results = values[0], values[1]
        submission, completion = values[7:17], values[17:27]
        array_at, self._results_at = submission[6], completion[5]
        size = max(array_at + 4 * entries, self._results_at + _RESULT.size * results)
        self._descriptor = descriptor
        self._submit = submit
        self._wait = wait
        self._ring = mmap.mmap(descriptor, size, offset=_RING_AT)
        self._entries = mmap.mmap(descriptor, _ENTRY.size * entries, offset=_ENTRIES_AT)
        self._tail_at = submission[1]
        self._taken_at, self._completed_at = completion[0], completion[1]
        self._results_mask = results - 1
        self._count = 0
        """Writes submitted, and all but the last one finished. Counts from 0 again after 2^32."""
        self._size = 0
        self._path = ""

    def fileno(self) -> int:
        """Readable when the write is done."""
        return self._descriptor

    def takes(self, file: Submittable, offset: int, alignment: int) -> bool:
        """See Submissions."""
        return is_aligned(offset, alignment) and file.direct() is not None

    def submit(self, file: Submittable, offset: int, parts: Sequence[Part], size: int) -> bool:
        """See Submissions."""
        direct = file.direct()
        if direct is None or not is_aligned(offset, size):
            return False
        address = direct.stage(parts, size)
        if not address:
            return False
        entry = (_WRITE, 0, 0, direct.fileno(), offset, address, size, _SYNCED_WRITE, 0)
        _ENTRY.pack_into(self._entries, 0, *entry)
        _NUMBER.pack_into(self._ring, self._tail_at, self._count + 1 & _NUMBER_MAX)
        if self._submit(_ENTER, self._descriptor, 1, 0, 0, 0, 0) != 1:
            _NUMBER.pack_into(self._ring, self._tail_at, self._count)
            return False
        self._count = self._count + 1 & _NUMBER_MAX
        self._size, self._path = size, file.path
        return True

    def result(self) -> bool | None:
        """See Submissions."""
        (tail,) = _NUMBER.unpack_from(self._ring, self._completed_at)
        if tail != self._count:
            return None
        at = self._results_at + _RESULT.size * (self._count - 1 & self._results_mask)
        _, written, _ = _RESULT.unpack_from(self._ring, at)
        _NUMBER.pack_into(self._ring, self._taken_at, self._count)
        if written >= 0:
            return bool(written == self._size)
        if -written in _REFUSALS:
            return False
        raise failure(OSError(-written, os.strerror(-written)), "writing or syncing", self._path)

    def wait(self) -> bool:
        """See Submissions."""
        while True:
            result = self.result()
            if result is not None:
                return result
            self._wait(_ENTER, self._descriptor, 0, 1, _GET_EVENTS, 0, 0)

    def close(self) -> None:
        """See Submissions."""
        if self._descriptor >= 0:
            self._ring.close()
            self._entries.close()
            os.close(self._descriptor)
            self._descriptor = -1
