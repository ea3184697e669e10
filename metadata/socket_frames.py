"""Frames on the socket between a metadata store and the processes that share it. Pure.

    frame = int32 length of the rest, int32 number, int8 kind, int64 version,
            int16 length of the path, path, value

Integers are big-endian, lengths are in bytes, the path is UTF-8. A request has a number of its own,
which its answer repeats; a notice has number 0. `version` is the expected version of a write, the
version of an answer, a sequence number, or the timeout of a session in milliseconds.
"""

from __future__ import annotations

from enum import IntEnum, unique
from struct import Struct
from typing import Final, NamedTuple, final

_LENGTH: Final = Struct("!I")
_HEAD: Final = Struct("!IIBqH")
_HEAD_BYTES: Final = _HEAD.size - _LENGTH.size
PATH_BYTES_MAX: Final = 2**16 - 1
NOTICE: Final = 0
"""The number of a frame that answers no request."""
ANY_VERSION: Final = -2
"""As the expected version of a write."""


@unique
class Kind(IntEnum):
    """The kind of a frame: a request, an answer or a notice."""

    BEGIN = 1
    """Begin a session with a timeout of `version` ms, or go on with the one whose token is the
    value. The first frame of a connection. A path is the token, as hexadecimal digits, of a session
    that the client has given up: it is ended. Answered with DONE: token and granted timeout."""
    PING = 2
    GET = 3
    PUT = 4
    PUT_EPHEMERAL = 5
    DELETE = 6
    CHILDREN = 7
    """Answered with DONE: the names, separated by zero bytes."""
    EXISTS = 8
    NEXT_SEQUENCE = 9
    PEEK_SEQUENCE = 10
    WATCH = 11
    END_WATCH = 12
    END = 13
    """End the session and delete its ephemeral nodes. Answered after that."""

    DONE = 64
    ABSENT = 65
    """There is no node; also: it does not exist."""
    CONFLICT = 66
    """The version is another. The value is a text."""
    NOT_FOUND = 67
    UNAVAILABLE = 68
    """The store failed. The value is a text."""
    SESSION_OVER = 69
    """The session has ended: as an answer, or as a notice."""
    CHANGED = 70
    """A notice: the node at `path` was, or may have been, changed."""
    REFUSED = 71
    """A notice, the last one: the peer broke a rule of this page, or a bound. The value is a
    text."""


@final
class Frame(NamedTuple):
    """One request, answer or notice."""

    number: int
    kind: Kind
    path: str = ""
    value: bytes = b""
    version: int = 0


@final
class FrameError(Exception):
    """The bytes are not frames, or one is too large."""


def encode_frame(frame: Frame) -> bytes:
    """The bytes on the wire. Raises: FrameError: the path is too long."""
    path = frame.path.encode()
    if len(path) > PATH_BYTES_MAX:
        raise FrameError(f"a path of {len(path)} bytes; the maximum is {PATH_BYTES_MAX}")
    length = _HEAD_BYTES + len(path) + len(frame.value)
    head = _HEAD.pack(length, frame.number, frame.kind, frame.version, len(path))
    return b"".join((head, path, frame.value))


@final
class FrameReader:
    """Takes bytes as they come and gives frames. After a FrameError it is of no use."""

    __slots__ = ("_buffer", "_frame_bytes_max")

    def __init__(self, frame_bytes_max: int) -> None:
        self._buffer = bytearray()
        self._frame_bytes_max = frame_bytes_max

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that are complete now. Raises: FrameError."""
        buffer = self._buffer
        buffer += data
        frames: list[Frame] = []
        start = 0
        while len(buffer) - start >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(buffer, start)
            if not _HEAD_BYTES <= length <= self._frame_bytes_max:
                raise FrameError(
                    f"a frame of {length} bytes; the maximum is {self._frame_bytes_max}"
                )
            end = start + _LENGTH.size + length
            if len(buffer) < end:
                break
            frames.append(_decode(buffer, start, end))
            start = end
        del buffer[:start]
        return frames


def _decode(buffer: bytearray, start: int, end: int) -> Frame:
    _length, number, kind, version, path_bytes = _HEAD.unpack_from(buffer, start)
    path_start = start + _HEAD.size
    value_start = path_start + path_bytes
    if value_start > end:
        raise FrameError("a path that is longer than its frame")
    try:
        path = buffer[path_start:value_start].decode()
        return Frame(number, Kind(kind), path, bytes(buffer[value_start:end]), version)
    except ValueError as error:
        raise FrameError(f"not a frame: {error}") from None
