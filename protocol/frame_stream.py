"""Cuts the byte stream of a connection into frames, for any reader of them.

A frame, numbers big-endian:

    total size (4) | command size (4) | BaseCommand [| headers and payload]

The total counts everything after itself. The part after the command (only with SEND and MESSAGE) is
handed on as it is; `protocol.metadata` looks into it.

Bounds: a stream holds at most one unfinished frame, of at most `frame_size_max` bytes, and a size
is checked as soon as its four bytes are there. Small payloads are copied out of the received chunk
(a slice that only refers to it would keep a megabyte alive for one small message); a payload that
arrived in several chunks is copied exactly once: when they are joined, or, if it is large, with
each of them (`native.gathering`), because a join of 5 MB takes 3 ms.

Errors do not lose what came before them: the frames read before a violation are returned, `failure`
is set, and every later call raises it.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from native.gathering import GatheredBytes
from protocol.errors import RemoteProtocolError

if TYPE_CHECKING:
    from mypy_extensions import i64

_U32: Final = Struct(">I")
_SMALL_CHUNK_BYTES: Final = 4096
"""Chunks of an unfinished frame below this are collected in one buffer, not as objects."""
LARGE_FRAME_BYTES: Final = 1 << 20
"""The payload of a larger frame is put together little by little."""
_ANNOUNCED_MAX: Final = 8
"""The place for it is found when one in so many bytes has come: who only announces a large frame
takes no memory."""
UNBOUNDED: Final = 1 << 62
NO_FRAMES: Final[list[Any]] = []
"""The frames of a stream that reads nothing: one list for all connections at rest."""


class FrameStream:
    """The receiving half of a connection. A subclass says what becomes of a frame."""

    __slots__ = (
        "_allowed",
        "_buffered",
        "_command",
        "_failure",
        "_frame_size_max",
        "_frames",
        "_later_frame_size_max",
        "_needed",
        "_parts",
        "_payload",
        "_tail",
    )

    def __init__(self, frame_size_bytes_max: int, first_frame_size_bytes_max: int) -> None:
        """`first_frame_size_bytes_max`: of the first frame alone; 0: as all others."""
        self._frame_size_max: i64 = first_frame_size_bytes_max or frame_size_bytes_max
        self._later_frame_size_max: i64 = frame_size_bytes_max
        self._frames = NO_FRAMES
        """The frames that this call has read."""
        self._allowed: i64 = UNBOUNDED
        """How much this call may still read, in units of the subclass."""
        self._parts: list[bytes | bytearray | memoryview] = []
        self._tail: bytearray | None = None  # the last of _parts while it may still grow
        self._payload: GatheredBytes | None = None
        """The bytes that have come of an unfinished large frame. Then `_parts` is empty."""
        self._command = b""
        """The encoded command before this payload."""
        self._buffered = 0  # bytes in _parts, or of the frame with this payload
        self._needed = 0  # bytes of the unfinished frame, its size included; 0: not known yet
        self._failure = ""  # not the error: its traceback would hold on to the whole connection

    @property
    def failure(self) -> RemoteProtocolError | None:
        """Why no more frames will come, once the peer has violated the protocol."""
        return RemoteProtocolError(self._failure) if self._failure else None

    @property
    def buffered_bytes(self) -> int:
        """Bytes held of an unfinished frame."""
        return self._buffered

    def _read(self, data: bytes, position: i64, start: i64, payload_start: i64, end: i64) -> i64:
        """Append to `_frames` what becomes of the whole frame at `position`: its command is
        `data[start:payload_start]`, its payload the rest up to `end`. Returns where the next frame
        begins; it may have read more than one.

        Raises: RemoteProtocolError.
        """
        raise NotImplementedError

    def _read_joined(self, encoded: bytes, payload: bytes | None) -> None:
        """The same for a frame that came in pieces."""
        raise NotImplementedError

    def _take(self, data: bytes, position: i64) -> i64:
        """Read the frames that `data`, from `position` on, completes, as far as `_allowed`.
        Returns where it stopped, from where it has to be called again: the end if all was read.

        Raises: RemoteProtocolError: the peer violated the protocol, and every frame before the
            violation has been returned. When this call still had frames to return it does so, and
            only `failure` and the next call tell.
        """
        if self._failure:
            raise RemoteProtocolError(self._failure)
        if position >= len(data):
            return position
        try:
            if self._buffered >= 8:
                position = self._continue(data)
            elif self._buffered:
                # Not even the sizes are there: cheaper to start again than to keep pieces.
                pieces = b"".join(self._parts)
                self.forget()
                return self._cut(pieces + data, 0) - len(pieces)
            if position < len(data):
                position = self._cut(data, position)
        except RemoteProtocolError as failure:
            self._failure = str(failure)
            self.forget()
            if not self._frames:
                raise
            return len(data)
        return position

    def _cut(self, data: bytes, position: i64) -> i64:
        """Take whole frames off `data`, in which one starts at `position`. Keeps the rest, unless
        it stopped because no more was allowed."""
        length: i64 = len(data)
        while length - position >= 8 and self._allowed > 0:
            # By hand, because compiled code reads bytes without making objects of them.
            total: i64 = data[position]
            total = total << 8 | data[position + 1]
            total = total << 8 | data[position + 2]
            total = total << 8 | data[position + 3]
            size: i64 = data[position + 4]
            size = size << 8 | data[position + 5]
            size = size << 8 | data[position + 6]
            size = size << 8 | data[position + 7]
            end = position + 4 + total
            payload_start = position + 8 + size
            if total + 4 > self._frame_size_max or payload_start > end:
                raise self._size_error(total, size)
            if end > length:
                self._needed = total + 4
                break
            position = self._read(data, position, position + 8, payload_start, end)
            self._frame_size_max = self._later_frame_size_max
        if position < length and self._allowed > 0:
            self._keep(data, position)
            return length
        return position

    def _keep(self, data: bytes, position: int) -> None:
        """Start to collect an unfinished frame, without keeping much more of `data` alive."""
        if self._needed == 0 and len(data) - position >= 4:
            self._learn_size(_U32.unpack_from(data, position)[0])
        rest = len(data) - position
        self._tail = None
        self._buffered = rest
        if rest < _SMALL_CHUNK_BYTES:
            self._tail = bytearray(data[position:])
            self._parts.append(self._tail)
        elif 2 * rest >= len(data):
            self._parts.append(memoryview(data)[position:])
        else:
            self._parts.append(data[position:])
        if self._needed > LARGE_FRAME_BYTES:
            self._find_place()

    def _find_place(self) -> None:
        """For the payload of the unfinished frame, which is large, if it is time for that. Its
        first part has the sizes."""
        if self._buffered < 8 or _ANNOUNCED_MAX * self._buffered < self._needed:
            return
        payload_start: int = 8 + _U32.unpack_from(self._parts[0], 4)[0]
        if payload_start >= self._buffered or self._needed - payload_start < LARGE_FRAME_BYTES:
            return
        begun = b"".join(self._parts)
        self._command = begun[8:payload_start]
        self._payload = GatheredBytes(self._needed - payload_start)
        self._payload.append(begun, payload_start, len(begun))
        self._parts = []
        self._tail = None

    def _learn_size(self, total: int) -> None:
        if total < 4 or total + 4 > self._frame_size_max:
            raise self._size_error(total, 0)
        self._needed = total + 4

    def _continue(self, data: bytes) -> int:
        """Add to the unfinished frame; returns how much of `data` belongs to it."""
        missing = self._needed - self._buffered
        if len(data) < missing:
            self._collect(data)
            return len(data)
        if self._payload is not None:
            gathered, encoded = self._payload, self._command
            self.forget()
            gathered.append(data, 0, missing)
            self._read_joined(encoded, gathered.whole())
        else:
            self._parts.append(data if len(data) == missing else memoryview(data)[:missing])
            parts = self._parts
            self.forget()
            self._read_joined(*_joined_frame(parts))
        self._frame_size_max = self._later_frame_size_max
        return missing

    def _collect(self, data: bytes) -> None:
        self._buffered += len(data)
        if self._payload is not None:
            self._payload.append(data, 0, len(data))
            return
        if len(data) >= _SMALL_CHUNK_BYTES:
            self._tail = None
            self._parts.append(data)
        elif self._tail is not None:
            self._tail += data
        else:
            self._tail = bytearray(data)
            self._parts.append(self._tail)
        if self._needed > LARGE_FRAME_BYTES:
            self._find_place()

    def forget(self) -> None:
        """Give up the unfinished frame: nothing is to be decoded any more."""
        self._parts = []
        self._tail = None
        self._payload = None
        self._command = b""
        self._buffered = 0
        self._needed = 0

    def _size_error(self, total: int, size: int) -> RemoteProtocolError:
        limit = self._frame_size_max
        if total + 4 > limit:
            where = "" if limit == self._later_frame_size_max else " as the first frame"
            return RemoteProtocolError(
                f"frame of {total + 4} bytes, the limit is {limit} bytes{where}"
            )
        return RemoteProtocolError(f"frame of {total + 4} bytes with a command of {size} bytes")


def _joined_frame(
    parts: list[bytes | bytearray | memoryview],
) -> tuple[bytes, bytes | None]:
    """The frame whose pieces these are: the encoded command, and the payload, which is copied once,
    by the join."""
    first = parts[0]
    size = _U32.unpack_from(first, 4)[0] if len(first) >= 8 else -1
    if size < 0 or len(first) < 8 + size:
        whole = b"".join(parts)
        size = _U32.unpack_from(whole, 4)[0]
        _check_command_size(len(whole), size)
        encoded, payload = whole[8 : 8 + size], whole[8 + size :]
    else:
        _check_command_size(sum(map(len, parts)), size)
        encoded = bytes(memoryview(first)[8 : 8 + size])
        parts[0] = memoryview(first)[8 + size :]
        payload = b"".join(parts)
    return encoded, payload or None


def _check_command_size(frame_size: int, size: int) -> None:
    if 8 + size > frame_size:
        raise RemoteProtocolError(f"frame of {frame_size} bytes with a command of {size} bytes")
