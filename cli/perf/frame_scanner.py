"""Reads a stream of frames that differ in one id, at a fraction of a parser's cost.

Pure. A load generator for 100,000 consumers receives the same message 100,000 times, and before
that 300,000 answers: frames that are equal byte for byte except for the consumer or request id. So
the first of each kind is decoded by the real codec, and from it a `Pattern` is learned:

    prefix | id (always the same number of bytes) | suffix | body

The head (prefix, id, suffix) of every frame is checked. The body of a message, which is the stored
entry, is compared with the first one in full while `Meaning.verify_all`, else for the first frame
of every run. A frame that matches no pattern is decoded. A pattern is learned only if the codec
reads the frame, with another id put in, as the same command with that other id.

The ids of one kind must have varints of one size on all connections that share a scanner. Otherwise
each size gets a pattern of its own (which is correct, but slower).
"""

from __future__ import annotations

import re
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, Protocol, final

from google.protobuf.message import DecodeError

from protocol import pulsar_api_pb2 as pb
from protocol.decoding import COMMAND_FIELDS, decode_command
from protocol.errors import RemoteProtocolError
from protocol.templates import varint

if TYPE_CHECKING:
    from collections.abc import Sequence

FRAME_SIZE_MAX: Final = 64 * 1024 * 1024
PATTERNS_MAX: Final = 64
RUN_FIRST: Final = 4
RUN_MAX: Final = 4096

_SIZES: Final = Struct(">II")
_FIRST_SIZE: Final = Struct(">I")
_ID_FIELDS: Final[dict[int, str]] = {
    pb.BaseCommand.MESSAGE: "consumer_id",
    pb.BaseCommand.SUCCESS: "request_id",
    pb.BaseCommand.PARTITIONED_METADATA_RESPONSE: "request_id",
    pb.BaseCommand.LOOKUP_RESPONSE: "request_id",
    pb.BaseCommand.ACTIVE_CONSUMER_CHANGE: "consumer_id",
}


class Meaning:
    """The common meaning of frames of a pattern, made by the target."""

    verify_all = False
    """Compare every body, not only the first of a run."""


class FrameTarget(Protocol):
    """One connection, as the scanner sees it."""

    def meaning(self, command: pb.BaseCommand, body: bytes) -> Meaning | None:
        """The meaning of such frames, if they may be treated alike; else `on_frame` gets it."""

    def on_run(self, meaning: Meaning, ids: Sequence[bytes]) -> None:
        """Frames of one meaning, with these ids as varints, one after the other."""

    def on_frame(self, command: pb.BaseCommand, body: bytes) -> None:
        """Any other frame."""


@final
class Pattern:
    """The form of frames that differ only in their id."""

    __slots__ = (
        "body",
        "body_offset",
        "frame_size",
        "ids",
        "meaning",
        "prefix",
        "suffix",
        "tail_offset",
    )

    def __init__(self, frame: bytes, id_start: int, id_end: int, head_end: int) -> None:
        self.prefix = frame[:id_start]
        self.suffix = frame[id_end:head_end]
        self.body = frame[head_end:]
        self.body_offset = head_end
        self.frame_size = len(frame)
        self.tail_offset = id_end
        head = b"%b(.{%d})%b.{%d}" % (
            re.escape(self.prefix),
            id_end - id_start,
            re.escape(self.suffix),
            len(self.body),
        )
        self.ids = re.compile(head, re.DOTALL).findall
        """The ids of frames in a part of the data, which may have other bytes between them."""
        self.meaning: Meaning | None = None


def learn(frame: bytes, command: pb.BaseCommand, command_size: int) -> Pattern | None:
    """The pattern of a decoded frame; None if its id cannot be separated from the rest."""
    field = _ID_FIELDS.get(command.type)
    if field is None:
        return None
    name = COMMAND_FIELDS[command.type]
    number: int = getattr(getattr(command, name), field)
    encoded = varint(number)
    other = number ^ 1
    changed: Any = pb.BaseCommand()
    changed.CopyFrom(command)
    setattr(getattr(changed, name), field, other)
    head = frame[8 : 8 + command_size]
    start = head.find(encoded)
    while start >= 0:
        end = start + len(encoded)
        try:
            same = pb.BaseCommand.FromString(head[:start] + varint(other) + head[end:]) == changed
        except DecodeError:
            same = False
        if same:
            return Pattern(frame, 8 + start, 8 + end, 8 + command_size)
        start = head.find(encoded, start + 1)
    return None


@final
class FrameScanner:
    """See the module docstring. One may serve many connections."""

    def __init__(self) -> None:
        self.corrupt = 0
        """Messages whose body is not that of the first one with the same message id."""
        self.decoded = 0
        """Frames that took the slow path."""
        self._patterns: list[Pattern] = []
        self._run_limit = RUN_FIRST

    def scan(self, data: bytearray, end: int, target: FrameTarget) -> int:
        """Pass the whole frames of `data[:end]` to the target. Returns their bytes.

        Raises: RemoteProtocolError.
        """
        position = 0
        while end - position >= 8:
            frame_size = 4 + _FIRST_SIZE.unpack_from(data, position)[0]
            if end - position < frame_size <= FRAME_SIZE_MAX:
                break
            pattern = self._matching(data, position, end)
            if pattern is not None:
                used = self._take_run(pattern, data, position, end, target)
            else:
                used = self._take_one(data, position, end, target)
            if not used:
                break
            position += used
        return position

    def _matching(self, data: bytearray, position: int, end: int) -> Pattern | None:
        for index, pattern in enumerate(self._patterns):
            if data.startswith(pattern.prefix, position, end) and data.startswith(
                pattern.suffix, position + pattern.tail_offset, end
            ):
                if index:
                    del self._patterns[index]
                    self._patterns.insert(0, pattern)
                return pattern
        return None

    def _take_run(
        self, pattern: Pattern, data: bytearray, position: int, end: int, target: FrameTarget
    ) -> int:
        frame_size = pattern.frame_size
        count = min((end - position) // frame_size, self._run_limit)
        if not count:
            return 0
        ids = pattern.ids(data, position, position + count * frame_size)
        if len(ids) == count:  # so there is nothing between them
            self._run_limit = min(4 * self._run_limit, RUN_MAX)
        else:
            ids = self._first_ids(pattern, data, position, count)
            count = len(ids)
            self._run_limit = RUN_FIRST
        meaning = pattern.meaning
        assert meaning is not None
        if pattern.body:
            last = count if meaning.verify_all else 1
            start = position + pattern.body_offset
            for offset in range(start, start + last * frame_size, frame_size):
                if not data.startswith(pattern.body, offset):
                    self.corrupt += 1
        target.on_run(meaning, ids)
        return count * frame_size

    def _first_ids(
        self, pattern: Pattern, data: bytearray, position: int, count: int
    ) -> list[bytes]:
        """The ids of the frames before the first one that has another form. The first one has this
        one."""
        id_offset, tail_offset = len(pattern.prefix), pattern.tail_offset
        ids: list[bytes] = []
        for at in range(position, position + count * pattern.frame_size, pattern.frame_size):
            if not (
                data.startswith(pattern.prefix, at)
                and data.startswith(pattern.suffix, at + tail_offset)
            ):
                break
            ids.append(bytes(data[at + id_offset : at + tail_offset]))
        return ids

    def _take_one(self, data: bytearray, position: int, end: int, target: FrameTarget) -> int:
        total: int
        total, command_size = _SIZES.unpack_from(data, position)
        frame_size = 4 + total
        if frame_size > FRAME_SIZE_MAX or command_size > total - 4:
            raise RemoteProtocolError(f"a frame of {total} bytes with {command_size} of command")
        if frame_size > end - position:
            return 0
        frame = bytes(data[position : position + frame_size])
        command = decode_command(frame[8 : 8 + command_size])
        body = frame[8 + command_size :]
        self.decoded += 1
        pattern = learn(frame, command, command_size)
        meaning = None if pattern is None else target.meaning(command, body)
        if pattern is None or meaning is None:
            target.on_frame(command, body)
            return frame_size
        pattern.meaning = meaning
        self._patterns.insert(0, pattern)
        del self._patterns[PATTERNS_MAX:]
        target.on_run(meaning, [frame[len(pattern.prefix) : pattern.tail_offset]])
        return frame_size
