"""Frames of commands as a client sees them: everything that a broker sends, parsed by protobuf.

`protocol.frame_stream` has the form of a frame and its bounds. A broker reads what clients send
with `protocol.request_frames`.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final, TypeAlias, final

from google.protobuf.message import EncodeError

from protocol import pulsar_api_pb2 as pb
from protocol.decoding import decode_command
from protocol.errors import LocalProtocolError, RemoteProtocolError
from protocol.frame_stream import NO_FRAMES, FrameStream

if TYPE_CHECKING:
    from mypy_extensions import i64

FRAME_PADDING_BYTES: Final = 10 * 1024
"""A frame may be larger than the largest message by this much: room for the command."""

MESSAGE_SIZE_BYTES_MAX_DEFAULT: Final = 5 * 1024 * 1024

ParsedFrame: TypeAlias = tuple[pb.BaseCommand, bytes | None]
"""A command; with SEND and MESSAGE the headers and payload, else None."""

PAYLOAD_TYPES: Final = frozenset({pb.BaseCommand.SEND, pb.BaseCommand.MESSAGE})

_SIZES: Final = Struct(">II")


def frame_size_max(message_size_bytes_max: int) -> int:
    """Largest frame, its own size included, of a connection with this maxMessageSize."""
    return message_size_bytes_max + FRAME_PADDING_BYTES


def encode_frame(command: pb.BaseCommand, headers_and_payload: bytes = b"") -> bytes:
    """A finished frame. For everything but the hot path, which has `protocol.templates`."""
    try:
        encoded = command.SerializeToString()
    except EncodeError as error:
        raise LocalProtocolError(f"incomplete command: {error}") from None
    size = len(encoded)
    sizes = _SIZES.pack(4 + size + len(headers_and_payload), size)
    return b"".join((sizes, encoded, headers_and_payload))


def check_payload(command: pb.BaseCommand, payload: bytes | None) -> None:
    """Raises: RemoteProtocolError: there is none where one belongs."""
    if payload is None and command.type in PAYLOAD_TYPES:
        raise RemoteProtocolError("SEND or MESSAGE without a message")


@final
class FrameDecoder(FrameStream):
    """The receiving half of a client's connection."""

    __slots__ = ()

    def __init__(
        self, frame_size_bytes_max: int = MESSAGE_SIZE_BYTES_MAX_DEFAULT + FRAME_PADDING_BYTES
    ) -> None:
        super().__init__(frame_size_bytes_max, 0)

    def feed(self, data: bytes) -> list[ParsedFrame]:
        """The frames that `data` completes.

        Raises: RemoteProtocolError: as `FrameStream._take`: the peer violated the protocol, and
            every frame before the violation has been returned.
        """
        frames: list[ParsedFrame] = []
        self._frames = frames
        try:
            self._take(data, 0)
        finally:
            self._frames = NO_FRAMES
        return frames

    def _read(self, data: bytes, position: i64, start: i64, payload_start: i64, end: i64) -> i64:
        payload = data[payload_start:end] if payload_start != end else None
        self._read_joined(data[start:payload_start], payload)
        return end

    def _read_joined(self, encoded: bytes, payload: bytes | None) -> None:
        command = decode_command(encoded)
        check_payload(command, payload)
        self._frames.append((command, payload))
