"""Frames of requests as a broker sees them: what its clients send.

What arrives very often is not parsed by protobuf but read from its bytes: SENDs, also many at once
(`Send`, `SendRun`), the usual ACKs, one or many (`PlainAck`), and the frequent requests of
consumers (`protocol.plain_requests`). A command with many ids comes undivided (`LongCommand`).
Everything else is a `ParsedRequest`, or what `protocol.requests` makes of one.

Requests take longer to decode and to handle than messages, so one call reads a slice of them: at
most `REQUESTS_PER_SLICE` and `REQUEST_BYTES_PER_SLICE`, however large the chunk that came. The rest
is read by later calls (`more`). A slice ends with the message that reaches `SENDS_PER_SLICE`, too.
What a message costs is known only when it has been handled: a turn may read further slices of
messages (`go_on`) as long as it has time, up to `SENDS_PER_TURN`. So the chunk of a usual publisher
is one turn, and forms one group of the journal.

The first frame, which is CONNECT, has a bound of its own, so that a client that has not sent it
cannot make the broker collect megabytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias, final

from protocol import pulsar_api_pb2 as pb
from protocol.decoding import COMMAND_FIELDS, decode_command
from protocol.frame_stream import NO_FRAMES, FrameStream
from protocol.frames import FRAME_PADDING_BYTES, MESSAGE_SIZE_BYTES_MAX_DEFAULT, check_payload
from protocol.long_commands import LONG_COMMAND_BYTES, LongCommand, long_command
from protocol.plain_acks import ACK_PREFIX, PlainAck, read_acks
from protocol.plain_requests import read_request
from protocol.requests import REQUESTS, ParsedRequest, Request
from protocol.send_fields import SEND_PREFIX, Send, read_send, send_of
from protocol.send_runs import SendRun, read_verified

if TYPE_CHECKING:
    from mypy_extensions import i64

    from protocol.ack_runs import AckRun, AckRuns

Frame: TypeAlias = Request | PlainAck | Send | SendRun | LongCommand

REQUESTS_PER_SLICE: Final = 64
REQUEST_BYTES_PER_SLICE: Final = 8 * 1024
"""A long request has many fields, so that it counts by its size."""
_REQUEST_BYTES_MIN: Final = REQUEST_BYTES_PER_SLICE // REQUESTS_PER_SLICE
ACKS_PER_REQUEST: Final = 8
"""Entries of a run of plain ACKs that count as one request more: a slice has 512 of them, or those
of one command."""
SENDS_PER_SLICE: Final = 256
"""A run counts with all its messages. A chunk of 1 MB can have 22,000 of them, which took 70 ms."""
SENDS_PER_TURN: Final = 1_024
"""Two messages of a run count as one. It bounds the group that is in front of another client's next
message. A chunk of 1 MB has fewer messages of 1 KB."""
_SEND_BYTES_SHIFT: Final = 10
"""Each KB counts as one message more, because metadata may have as many fields as fit into it."""
_ACK_BYTES_MAX: Final = 128
"""No ACK of a run is larger; an unfinished frame of so few bytes may be one."""

_TYPE: Final = SEND_PREFIX[0]
_SEND_PREFIX_1: Final = SEND_PREFIX[1]
_SEND_PREFIX_2: Final = SEND_PREFIX[2]
_ACK_PREFIX_1: Final = ACK_PREFIX[1]
_ACK_PREFIX_2: Final = ACK_PREFIX[2]


@final
class RequestDecoder(FrameStream):
    """The receiving half of a broker's connection."""

    __slots__ = (
        "_allowed_later",
        "_at",
        "_chunk",
        "_sends_allowed",
        "_sends_allowed_later",
        "ack_runs",
    )

    def __init__(
        self,
        frame_size_bytes_max: int = MESSAGE_SIZE_BYTES_MAX_DEFAULT + FRAME_PADDING_BYTES,
        first_frame_size_bytes_max: int = 0,
    ) -> None:
        super().__init__(frame_size_bytes_max, first_frame_size_bytes_max)
        self._chunk = b""
        self._at: i64 = 0
        """Up to here the chunk is read."""
        self._sends_allowed: i64 = 0
        self._allowed_later: i64 = 0
        """The count that the messages which ended the slice have left for its requests."""
        self._sends_allowed_later: i64 = 0
        """How many messages the turn may still read."""
        self.ack_runs: AckRuns | None = None
        """The consumers whose ACKs `take_ack_runs` recognises; None: the connection has none."""

    @property
    def is_left(self) -> bool:
        """Whether `more` has to be called before the next `feed`."""
        return self._at < len(self._chunk)

    @property
    def may_go_on(self) -> bool:
        """Whether messages ended the slice and the turn may read more of what is left (`go_on`)."""
        return (
            self._allowed_later > 0
            and self._sends_allowed_later > 0
            and self._at < len(self._chunk)
        )

    def feed(self, data: bytes) -> list[Frame]:
        """The first slice of the frames that `data` completes.

        Raises: RemoteProtocolError: the peer violated the protocol, and every frame before the
            violation has been returned. If this call still had frames to return it does so, and
            only `failure` and the next call report it.
        """
        assert self._at >= len(self._chunk), "a slice is left"
        self._chunk = data
        self._at = 0
        return self.more()

    def more(self) -> list[Frame]:
        """The next slice, for another turn. Raises: as `feed`."""
        self._sends_allowed_later = SENDS_PER_TURN
        return self._slice(REQUEST_BYTES_PER_SLICE)

    def go_on(self) -> list[Frame]:
        """The next slice, for the same turn, whose requests count together. Raises: as `feed`."""
        return self._slice(self._allowed_later)

    def _slice(self, allowed: i64) -> list[Frame]:
        frames: list[Frame] = []
        chunk, at = self._chunk, self._at
        self._chunk = b""
        self._at = 0
        self._frames = frames
        self._allowed = allowed
        self._allowed_later = 0
        self._sends_allowed = SENDS_PER_SLICE
        try:
            at = self._take(chunk, at)
        finally:
            self._frames = NO_FRAMES
        if at < len(chunk):
            self._chunk = chunk
            self._at = at
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

    def forget(self) -> None:
        """Give up what is unfinished or not read yet."""
        super().forget()
        self._chunk = b""
        self._at = 0

    def _read(self, data: bytes, position: i64, start: i64, payload_start: i64, end: i64) -> i64:
        is_usual = start + 4 < payload_start and data[start] == _TYPE
        if payload_start == end:
            self._allowed -= max(end - start, _REQUEST_BYTES_MIN)
            if is_usual:
                if data[start + 1] == _ACK_PREFIX_1 and data[start + 2] == _ACK_PREFIX_2:
                    acks = read_acks(data, start, end, self._frame_size_max)
                    if acks is not None:
                        self._add_acks(acks[0])
                        return acks[1]
                else:
                    request = read_request(data, start, end)
                    if request is not None:
                        self._frames.append(request)
                        return end
            self._read_parsed(data[start:end], None)
            return end
        is_usual = (
            is_usual and data[start + 1] == _SEND_PREFIX_1 and data[start + 2] == _SEND_PREFIX_2
        )
        if is_usual and 2 * end - position <= len(data):  # room for another one
            found = read_verified(data, position, self._frame_size_max)
            if found is not None:
                sends, count, end_of_run = found
                self._count_sends(count, end_of_run - position)
                self._frames.append(sends)
                return end_of_run
        self._count_sends(1, end - position)
        if is_usual:
            send = read_send(data, start, payload_start, end)
            if send is not None:
                self._frames.append(send)
                return end
        self._read_parsed(data[start:payload_start], data[payload_start:end])
        return end

    def _count_sends(self, count: i64, size_bytes: i64) -> None:
        """Count SENDs; the last allowed one ends the slice."""
        self._sends_allowed_later -= (count + 1) >> 1
        self._sends_allowed -= count + (size_bytes >> _SEND_BYTES_SHIFT)
        if self._sends_allowed <= 0:
            self._allowed_later = self._allowed
            self._allowed = 0

    def _read_joined(self, encoded: bytes, payload: bytes | None) -> None:
        if payload is None and encoded.startswith(ACK_PREFIX):
            acks = read_acks(encoded, 0, len(encoded), 0)
            if acks is not None:
                self._add_acks(acks[0])
                return
        self._read_parsed(encoded, payload)

    def _add_acks(self, acks: PlainAck) -> None:
        self._allowed -= _REQUEST_BYTES_MIN * (len(acks.entry_ids) // ACKS_PER_REQUEST)
        self._frames.append(acks)

    def _read_parsed(self, encoded: bytes, payload: bytes | None) -> None:
        if len(encoded) > LONG_COMMAND_BYTES:
            divided = long_command(encoded)
            if divided is not None:
                self._frames.append(divided)
                return
        command = decode_command(encoded)
        check_payload(command, payload)
        kind = command.type
        if kind == pb.BaseCommand.SEND and payload is not None:
            self._frames.append(send_of(command.send, payload))
            return
        make = REQUESTS.get(kind)
        if make is None:
            self._frames.append(ParsedRequest(command))
        else:
            self._frames.append(make(getattr(command, COMMAND_FIELDS[kind])))
