"""GatheredBytes: one `bytes` of a known size, made from pieces that come one after another.

A join at the end finds memory for all of it at once, and fills it: 3 ms for 5 MB, most of which the
kernel needs to find the pages. A buffer that grows is moved now and then, at the same cost. Here
the place is found once, and each piece touches its own part. There is nothing for this in Python
itself, so the object is made by the function of CPython that C code uses for it, which leaves the
content to its caller. Nobody else has the object before it is whole.

No part of the extension: each call copies a piece of many KB, so the way to it costs nothing.
"""

from __future__ import annotations

import ctypes
from typing import Final, final

_new_bytes = ctypes.pythonapi.PyBytes_FromStringAndSize
_new_bytes.restype = ctypes.py_object
_new_bytes.argtypes = (ctypes.c_void_p, ctypes.c_ssize_t)
_address_of = ctypes.pythonapi.PyBytes_AsString
_address_of.restype = ctypes.c_void_p
_address_of.argtypes = (ctypes.py_object,)
_SIZE_BYTES_MIN: Final = 2
"""CPython has only one object for each shorter content."""


@final
class GatheredBytes:
    """See the module docstring."""

    __slots__ = ("_bytes", "_filled", "size")

    def __init__(self, size: int) -> None:
        """`size`: in bytes, at least 2.

        Raises: MemoryError: there is no room for it.
        """
        assert size >= _SIZE_BYTES_MIN
        self._bytes: bytes | None = _new_bytes(None, size)
        self._filled = 0
        self.size = size

    def append(self, piece: bytes, begin: int, end: int) -> None:
        """Append `piece[begin:end]`, which must fit into what is left."""
        count = end - begin
        assert self._bytes is not None, "it is whole, and somebody may have it"
        assert 0 <= begin <= end <= len(piece)
        assert count <= self.size - self._filled
        if count:
            ctypes.memmove(
                _address_of(self._bytes) + self._filled, _address_of(piece) + begin, count
            )
            self._filled += count

    def whole(self) -> bytes:
        """All of it, when everything was put. Only once."""
        gathered, self._bytes = self._bytes, None
        assert gathered is not None
        assert self._filled == self.size
        return gathered
