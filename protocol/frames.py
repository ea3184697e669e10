"""Cuts the byte stream of a connection into commands.

A frame, numbers big-endian:

    total size (4) | command size (4) | BaseCommand [| headers and payload]

The total counts everything after itself. The part after the command (only with SEND and MESSAGE) is
handed on as it is; `protocol.metadata` looks into it.

Bounds: a decoder holds at most one unfinished frame, of at most `frame_size_max` bytes, and a size
is checked as soon as its four bytes are there. Small payloads are copied out of the received chunk
(a slice that only refers to it would keep a megabyte alive for one small message); a payload that
arrived in several chunks is copied exactly once, when they are joined.

Errors do not lose what came before them: the commands decoded before a violation are returned,
`failure` is set, and every later call raises it.

A broker gives the first frame, which is CONNECT, a bound of its own, so that a client that has not
sent CONNECT cannot make the broker collect megabytes.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

from google.protobuf.message import DecodeError, EncodeError

from protocol import pulsar_api_pb2 as pb
from protocol.errors import LocalProtocolError, RemoteProtocolError
from protocol.long_commands import LONG_COMMAND_BYTES, LongCommand, long_command
from protocol.plain_acks import ACK_PREFIX, PlainAck, read_acks
from protocol.send_fields import SEND_PREFIX, Send, read_send, send_of
from protocol.send_runs import SendRun, read_run

if TYPE_CHECKING:
    from google.protobuf.message import Message
    from mypy_extensions import i64

    from protocol.ack_runs import AckRun, AckRuns

FRAME_PADDING_BYTES: Final = 10 * 1024
"""A frame may be larger than the largest message by this much: room for the command."""

MESSAGE_SIZE_BYTES_MAX_DEFAULT: Final = 5 * 1024 * 1024

ParsedFrame: TypeAlias = tuple[pb.BaseCommand, bytes | None]
"""A command; with SEND and MESSAGE the headers and payload, else None."""

Frame: TypeAlias = ParsedFrame | Send | SendRun | PlainAck | LongCommand
"""With `plain_sends`, which brokers use, a SEND is a `Send`, several may be a `SendRun`, the usual
ACK or several are mostly a `PlainAck`, and a command with many ids a `LongCommand`. Without, every
frame is a `ParsedFrame`."""

MessageType = Any
"""A descriptor: that of the C implementation is a class of its own."""

_SIZES: Final = Struct(">II")
_U32: Final = Struct(">I")
_parse_command = pb.BaseCommand.FromString

_SMALL_CHUNK_BYTES: Final = 4096
"""Chunks of an unfinished frame below this are collected in one buffer, not as objects."""

_ACK_BYTES_MAX: Final = 128
"""No ACK of a run is larger; an unfinished frame of so few bytes may be one."""

_TYPE: Final = SEND_PREFIX[0]
_SEND_PREFIX_1: Final = SEND_PREFIX[1]
_SEND_PREFIX_2: Final = SEND_PREFIX[2]
_ACK_PREFIX_1: Final = ACK_PREFIX[1]
_ACK_PREFIX_2: Final = ACK_PREFIX[2]
_SEND: Final = pb.BaseCommand.SEND
_HOT_TYPES: Final = frozenset(
    {pb.BaseCommand.SEND, pb.BaseCommand.ACK, pb.BaseCommand.FLOW, pb.BaseCommand.MESSAGE}
)
_PAYLOAD_TYPES: Final = frozenset({pb.BaseCommand.SEND, pb.BaseCommand.MESSAGE})


def _fields() -> dict[int, str]:
    """Command type -> name of the BaseCommand field that belongs to it.

    The names differ in spelling (PARTITIONED_METADATA and partitionMetadata), the numbers agree:
    the field's number is the type's number.
    """
    by_number = {field.number: field.name for field in pb.BaseCommand.DESCRIPTOR.fields}
    numbers = pb.BaseCommand.Type.values()
    return {int(number): by_number[int(number)] for number in numbers}


COMMAND_FIELDS: Final = _fields()


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


def decode_command(encoded: bytes) -> pb.BaseCommand:
    """The command, checked to be of a known type and complete.

    In the commands of the hot path (SEND, ACK, FLOW, and for clients MESSAGE) only the presence of
    the command itself is checked; a required number missing in them reads as 0, which does no harm
    but the sender.

    Raises: RemoteProtocolError: not a command of this protocol.
    """
    try:
        command = _parse_command(encoded)
    except DecodeError as error:
        raise RemoteProtocolError(f"command cannot be read: {error}") from None
    kind = command.type
    if not command.HasField(COMMAND_FIELDS[kind]):
        if not command.HasField("type"):
            raise RemoteProtocolError(f"command of unknown type: {encoded[:16].hex()}")
        raise RemoteProtocolError(f"{pb.BaseCommand.Type.Name(kind)} without its content")
    if kind not in _HOT_TYPES and not command.IsInitialized():
        raise RemoteProtocolError(f"{pb.BaseCommand.Type.Name(kind)} lacks a required field")
    if kind not in _HOT_TYPES and not has_ascii_texts(encoded):
        for field, content in command.ListFields():
            texts = _TEXTS.get(field.number)
            if texts is not None:
                texts.check(content)
    return command


def has_ascii_texts(encoded: bytes) -> bool:
    """Whether all that can be text in a command that was parsed is ASCII, seen from its bytes: much
    cheaper than asking for each field. Numbers do not count, except within parts of parts (message
    ids): False means that nothing is known. It goes by lengths that the parser has checked, so it
    ends at fields that the parser only stepped over.
    """
    at = content_end = 0
    end = len(encoded)
    while at < end:
        is_content = at >= content_end
        wire_type = encoded[at] & 7
        tag = shift = 0
        while encoded[at] & 0x80:
            tag |= (encoded[at] & 0x7F) << shift
            shift += 7
            at += 1
        tag |= encoded[at] << shift
        at += 1
        if is_content and wire_type == 2 and tag >> 3 not in COMMAND_FIELDS:
            return False  # an unknown field: the parser has not looked into it
        if wire_type == 0:
            while encoded[at] & 0x80:
                at += 1
            at += 1
        elif wire_type == 2:
            size = shift = 0
            while encoded[at] & 0x80:
                size |= (encoded[at] & 0x7F) << shift
                shift += 7
                at += 1
            size |= encoded[at] << shift
            at += 1
            if is_content:
                content_end = at + size
                continue
            if not encoded[at : at + size].isascii():
                return False
            at += size
        elif wire_type in (1, 5):
            at += 8 if wire_type == 1 else 4
        else:
            return False
    return True


@final
class _Texts:
    """Where a type of message has text, its parts included."""

    __slots__ = ("_lists", "_name", "_part_lists", "_parts", "_texts")

    def __init__(self, message: MessageType, known: dict[str, _Texts]) -> None:
        self._name = str(message.full_name)
        self._texts: list[str] = []
        self._lists: list[str] = []
        self._parts: list[tuple[str, _Texts]] = []
        self._part_lists: list[tuple[str, _Texts]] = []
        known[self._name] = self
        for field in message.fields:
            if field.type == field.TYPE_STRING:
                (self._lists if field.is_repeated else self._texts).append(field.name)
            elif field.type == field.TYPE_MESSAGE and _has_text(field.message_type, set()):
                inner = field.message_type
                part = known.get(inner.full_name) or _Texts(inner, known)
                (self._part_lists if field.is_repeated else self._parts).append((field.name, part))

    def check(self, message: Message) -> None:
        """Refuse text that is not UTF-8: the parser lets it through and shows it as bytes.

        Raises: RemoteProtocolError.
        """
        for name in self._texts:
            if getattr(message, name).__class__ is not str:
                raise RemoteProtocolError(f"{self._name}.{name} is not UTF-8")
        for name in self._lists:
            for text in getattr(message, name):
                if text.__class__ is not str:
                    raise RemoteProtocolError(f"{self._name}.{name} is not UTF-8")
        for name, part in self._parts:
            if message.HasField(name):
                part.check(getattr(message, name))
        for name, part in self._part_lists:
            for each in getattr(message, name):
                part.check(each)


def _has_text(message: MessageType, seen: set[str]) -> bool:
    """Whether it or one of its parts can hold text; `seen` types are being asked already."""
    if message.full_name in seen:
        return False
    seen.add(message.full_name)
    return any(
        field.type == field.TYPE_STRING
        or (field.type == field.TYPE_MESSAGE and _has_text(field.message_type, seen))
        for field in message.fields
    )


def _texts_by_field() -> dict[int, _Texts]:
    known: dict[str, _Texts] = {}
    command: MessageType = pb.BaseCommand.DESCRIPTOR
    return {
        int(field.number): known.get(field.message_type.full_name)
        or _Texts(field.message_type, known)
        for field in command.fields
        if field.type == field.TYPE_MESSAGE and _has_text(field.message_type, set())
    }


_TEXTS: Final = _texts_by_field()
"""By the number of the field of BaseCommand, which is that of the type."""


@final
class FrameDecoder:
    """The receiving half of a connection, either side."""

    __slots__ = (
        "_buffered",
        "_failure",
        "_frame_size_max",
        "_later_frame_size_max",
        "_needed",
        "_parts",
        "_plain_sends",
        "_tail",
        "ack_runs",
    )

    def __init__(
        self,
        frame_size_bytes_max: int = MESSAGE_SIZE_BYTES_MAX_DEFAULT + FRAME_PADDING_BYTES,
        *,
        plain_sends: bool = False,
        first_frame_size_bytes_max: int = 0,
    ) -> None:
        """`first_frame_size_bytes_max`: of the first frame alone; 0: as all others."""
        self._plain_sends = plain_sends
        self._frame_size_max = first_frame_size_bytes_max or frame_size_bytes_max
        self._later_frame_size_max = frame_size_bytes_max
        self._parts: list[bytes | bytearray | memoryview] = []
        self._tail: bytearray | None = None  # the last of _parts while it may still grow
        self._buffered = 0  # bytes in _parts
        self._needed = 0  # bytes of the unfinished frame, its size included; 0: not known yet
        self._failure = ""  # not the error: its traceback would hold on to the whole connection
        self.ack_runs: AckRuns | None = None
        """The consumers whose ACKs `take_ack_runs` recognises; None: the connection has none."""

    @property
    def failure(self) -> RemoteProtocolError | None:
        """Why no more commands will come, once the peer has violated the protocol."""
        return RemoteProtocolError(self._failure) if self._failure else None

    @property
    def buffered_bytes(self) -> int:
        """Bytes held of an unfinished frame."""
        return self._buffered

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that `data` completes.

        Raises: RemoteProtocolError: the peer violated the protocol, and every frame before the
            violation has been returned. When this call still had frames to return it does so, and
            only `failure` and the next call tell.
        """
        if self._failure:
            raise RemoteProtocolError(self._failure)
        frames: list[Frame] = []
        position = 0
        try:
            if self._buffered >= 8:
                position = self._continue(data, frames)
            elif self._buffered:
                # Not even the sizes are there: cheaper to start again than to keep pieces.
                data = b"".join((*self._parts, data))
                self.forget()
            if self._frame_size_max != self._later_frame_size_max:
                position = self._cut_first(data, position, frames)
            if position < len(data):
                self._cut(data, position, frames)
        except RemoteProtocolError as failure:
            self._failure = str(failure)
            self.forget()
            if not frames:
                raise
        return frames

    def take_ack_runs(self, data: bytes) -> tuple[list[AckRun], bytes]:
        """The runs of plain ACKs that `data` begins with, and what is left of it for `feed`, which
        has to be given it before anything else."""
        runs: list[AckRun] = []
        known = self.ack_runs
        if known is None or self._buffered > _ACK_BYTES_MAX or self._failure:
            return runs, data
        if self._buffered:
            data = b"".join((*self._parts, data))
            self.forget()
        taken = known.take(data, runs)
        return runs, data[taken:]

    def _cut_first(self, data: bytes, position: int, frames: list[Frame]) -> int:
        """Take the first frame if it is whole; where the next one begins."""
        if not frames and len(data) - position >= 8:
            end = position + 4 + _U32.unpack_from(data, position)[0]
            if end - position > self._frame_size_max:
                raise self._size_error(end - position - 4, 0)
            if end <= len(data):
                self._cut(data[:end], position, frames)
                position = end
        if frames:
            self._frame_size_max = self._later_frame_size_max
        return position

    def _cut(self, data: bytes, position: i64, frames: list[Frame]) -> None:
        """Take the whole frames off `data`, in which one starts at `position`; keep the rest."""
        plain_sends = self._plain_sends
        limit: i64 = self._frame_size_max
        length: i64 = len(data)
        while length - position >= 8:
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
            start = position + 8
            payload_start = start + size
            if total + 4 > limit or payload_start > end:
                raise self._size_error(total, size)
            if end > length:
                self._needed = total + 4
                break
            if plain_sends and start + 4 < payload_start and data[start] == _TYPE:
                if (
                    payload_start < end
                    and data[start + 1] == _SEND_PREFIX_1
                    and data[start + 2] == _SEND_PREFIX_2
                ):
                    if end + 4 + total <= length:  # room for another one
                        found = read_run(data, position, limit)
                        if found is not None:
                            frames.append(found[0])
                            position = found[1]
                            continue
                    send = read_send(data, start, payload_start, end)
                    if send is not None:
                        frames.append(send)
                        position = end
                        continue
                elif (
                    payload_start == end
                    and data[start + 1] == _ACK_PREFIX_1
                    and data[start + 2] == _ACK_PREFIX_2
                ):
                    acks = read_acks(data, start, end, limit)
                    if acks is not None:
                        frames.append(acks[0])
                        position = acks[1]
                        continue
            payload = data[payload_start:end] if payload_start != end else None
            frames.append(self._frame(data[start:payload_start], payload))
            position = end
        if position < length:
            self._keep(data, position)

    def _keep(self, data: bytes, position: int) -> None:
        """Start to collect an unfinished frame, without keeping much more of `data` alive."""
        if self._needed == 0 and len(data) - position >= 4:
            self._learn_size(_U32.unpack_from(data, position)[0])
        rest = len(data) - position
        self._tail = None
        if rest < _SMALL_CHUNK_BYTES:
            self._tail = bytearray(data[position:])
            self._parts.append(self._tail)
        elif 2 * rest >= len(data):
            self._parts.append(memoryview(data)[position:])
        else:
            self._parts.append(data[position:])
        self._buffered = rest

    def _learn_size(self, total: int) -> None:
        if total < 4 or total + 4 > self._frame_size_max:
            raise self._size_error(total, 0)
        self._needed = total + 4

    def _continue(self, data: bytes, frames: list[Frame]) -> int:
        """Add to the unfinished frame; returns how much of `data` belongs to it."""
        missing = self._needed - self._buffered
        if len(data) < missing:
            self._collect(data)
            return len(data)
        self._parts.append(data if len(data) == missing else memoryview(data)[:missing])
        parts = self._parts
        self.forget()
        encoded, payload = _joined_frame(parts)
        acks = None
        if self._plain_sends and payload is None and encoded.startswith(ACK_PREFIX):
            acks = read_acks(encoded, 0, len(encoded), 0)
        frames.append(self._frame(encoded, payload) if acks is None else acks[0])
        return missing

    def _frame(self, encoded: bytes, payload: bytes | None) -> Frame:
        if self._plain_sends and len(encoded) > LONG_COMMAND_BYTES:
            divided = long_command(encoded)
            if divided is not None:
                return divided
        command = decode_command(encoded)
        if payload is None and command.type in _PAYLOAD_TYPES:
            raise RemoteProtocolError("SEND or MESSAGE without a message")
        if self._plain_sends and command.type == _SEND and payload is not None:
            return send_of(command.send, payload)
        return command, payload

    def _collect(self, data: bytes) -> None:
        self._buffered += len(data)
        if len(data) >= _SMALL_CHUNK_BYTES:
            self._tail = None
            self._parts.append(data)
        elif self._tail is not None:
            self._tail += data
        else:
            self._tail = bytearray(data)
            self._parts.append(self._tail)

    def forget(self) -> None:
        """Give up the unfinished frame: nothing is to be decoded any more."""
        self._parts = []
        self._tail = None
        self._buffered = 0
        self._needed = 0

    def _size_error(self, total: int, size: int) -> RemoteProtocolError:
        if total + 4 > self._frame_size_max:
            where = (
                "" if self._frame_size_max == self._later_frame_size_max else " as the first frame"
            )
            return RemoteProtocolError(
                f"frame of {total + 4} bytes, the limit is {self._frame_size_max} bytes{where}"
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
