"""Length-prefixed packets, and the answers in them.

Every packet of both protocols is a four byte big-endian size, not counting itself, and that many
bytes.

Memory: besides what a call delivers, at most one packet of `frame_size_max` bytes is held, and
only bytes that have arrived. A bad packet fails the decoder for good; what was decoded before it
in the same chunk is still delivered, and the error follows with the next call.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final, final

from protocol.bookkeeper import v2, v3
from protocol.errors import RemoteProtocolError

if TYPE_CHECKING:
    from protocol.bookkeeper.messages import Response

FRAME_SIZE_MAX: Final = 5 * 1024 * 1024 + 10 * 1024
"""Pulsar's bookies: the largest message and room for its metadata."""

_PREFIX_SIZE_BYTES: Final = 4
_unpack_size: Final = Struct(">i").unpack_from


@final
class PacketDecoder:
    """Bytes as they arrive -> payloads of whole packets, each an object of its own."""

    __slots__ = ("_error", "_frame_size_max", "_pending")

    def __init__(self, frame_size_max: int = FRAME_SIZE_MAX) -> None:
        self._frame_size_max = frame_size_max
        self._pending = bytearray()
        self._error: RemoteProtocolError | None = None

    @property
    def error(self) -> RemoteProtocolError | None:
        """Why nothing more will be decoded; the connection must be closed."""
        return self._error

    @property
    def pending_size_bytes(self) -> int:
        """Bytes held of a packet that is not complete yet."""
        return len(self._pending)

    def feed(self, data: bytes) -> list[bytes]:
        """The packets that `data` completes.

        Raises: RemoteProtocolError: a size out of bounds, now or before.
        """
        if self._error is not None:
            raise self._error
        packets: list[bytes] = []
        at = self._complete_pending(data, packets) if self._pending else 0
        end = len(data)
        while self._error is None and end - at >= _PREFIX_SIZE_BYTES:
            size = self._size_at(data, at)
            if size < 0 or end - at - _PREFIX_SIZE_BYTES < size:
                break
            at += _PREFIX_SIZE_BYTES
            packets.append(data[at : at + size])
            at += size
        if self._error is None:
            self._pending += memoryview(data)[at:]
        elif not packets:
            raise self._error
        return packets

    def _complete_pending(self, data: bytes, packets: list[bytes]) -> int:
        """Take from `data` what the packet begun earlier lacks; returns how much that was."""
        pending = self._pending
        at = 0
        if len(pending) < _PREFIX_SIZE_BYTES:
            at = min(_PREFIX_SIZE_BYTES - len(pending), len(data))
            pending += data[:at]
            if len(pending) < _PREFIX_SIZE_BYTES:
                return at
        size = self._size_at(pending, 0)
        if size < 0:
            return at
        missing = _PREFIX_SIZE_BYTES + size - len(pending)
        pending += memoryview(data)[at : at + missing]
        if len(pending) == _PREFIX_SIZE_BYTES + size:
            packets.append(bytes(memoryview(pending)[_PREFIX_SIZE_BYTES:]))
            self._pending = bytearray()
        return min(at + missing, len(data))

    def _size_at(self, data: bytes | bytearray, at: int) -> int:
        size: int = _unpack_size(data, at)[0]
        if 0 <= size <= self._frame_size_max:
            return size
        self.fail(f"packet of {size} bytes; allowed are 0 to {self._frame_size_max}")
        return -1

    def fail(self, reason: str) -> None:
        """Decode nothing more; the next call says why."""
        self._error = RemoteProtocolError(reason)
        self._pending = bytearray()


@final
class ResponseDecoder:
    """One client connection: bytes as they arrive -> responses of the protocol it chose."""

    __slots__ = ("_decode", "_packets")

    def __init__(self, version: int, frame_size_max: int = FRAME_SIZE_MAX) -> None:
        self._packets = PacketDecoder(frame_size_max)
        self._decode = {2: v2.decode_response, 3: v3.decode_response}[version]

    @property
    def error(self) -> RemoteProtocolError | None:
        """Why nothing more will be decoded; the connection must be closed."""
        return self._packets.error

    def feed(self, data: bytes) -> list[Response]:
        """The responses that `data` completes.

        Raises: RemoteProtocolError: something is no response, now or before.
        """
        responses: list[Response] = []
        for packet in self._packets.feed(data):
            try:
                responses.append(self._decode(packet))
            except RemoteProtocolError as error:
                self._packets.fail(str(error))
                if not responses:
                    raise
                break
        return responses
