"""A run of SENDs: what a producer at full speed sends in one chunk, as columns.

An object for each message costs more than to read it. Here consecutive SENDs of one producer
become lists of their numbers and payloads, from the decoder to the receipts. Only messages with
nothing unusual are in a run: a small payload whose checksum fits, no chunk, no second sequence id.
The first SEND that is otherwise ends it, and is read and answered by itself
(`protocol.send_fields`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar, final

from protocol.metadata import METADATA_UNCOUNTED_BYTES, count_messages, verify_checksum
from protocol.send_fields import NO_SEQUENCE_ID, SEND_PREFIX, Send

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mypy_extensions import i64

T = TypeVar("T")

RUN_MESSAGES_MIN: Final = 2
PAYLOAD_BYTES_MIN: Final = 10
"""A size of metadata and the three required fields of metadata."""
_COMMAND_BYTES_MAX: Final = 64
_FRAME_BYTES_MIN: Final = 16
"""Both sizes and the least that a SEND has."""
_VARINT_BITS_READ: Final = 63
_PREFIX_0: Final = SEND_PREFIX[0]
_PREFIX_1: Final = SEND_PREFIX[1]
_PREFIX_2: Final = SEND_PREFIX[2]
_PRODUCER_ID: Final = 0x08
_SEQUENCE_ID: Final = 0x10
_NUM_MESSAGES: Final = 0x18


@final
class SendRun:
    """Messages of one producer, in their order: one item of each column for each of them. The
    checksums are verified."""

    __slots__ = ("counts", "payloads", "producer_id", "sequence_ids", "size_bytes")

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.sequence_ids: list[int] = []
        self.payloads: list[bytes] = []
        """As in a Send."""
        self.counts: list[int] = []
        """What `count_messages` says of each."""
        self.size_bytes = 0
        """Of all payloads."""

    def send(self, index: int) -> Send:
        """One of the messages by itself."""
        sequence_id, payload = self.sequence_ids[index], self.payloads[index]
        return Send(self.producer_id, sequence_id, NO_SEQUENCE_ID, False, payload)

    def sends(self) -> list[Send]:
        """Each message by itself."""
        return [self.send(index) for index in range(len(self.payloads))]


@final
class _Head:
    """Where the parts of a frame are, and the numbers of its SEND. Used again for each frame."""

    __slots__ = ("command_end", "end", "producer_id", "sequence_id")

    def __init__(self) -> None:
        self.command_end: i64 = 0
        self.end: i64 = 0
        self.producer_id: i64 = -1
        self.sequence_id: i64 = -1

    def read(self, data: bytes, position: i64, frame_size_max: i64) -> bool:
        """Whether a frame that may belong to a run is at `position`, whole."""
        total: i64 = data[position]
        total = total << 8 | data[position + 1]
        total = total << 8 | data[position + 2]
        total = total << 8 | data[position + 3]
        size: i64 = data[position + 4]
        size = size << 8 | data[position + 5]
        size = size << 8 | data[position + 6]
        size = size << 8 | data[position + 7]
        end = position + 4 + total
        command_end = position + 8 + size
        self.end, self.command_end = end, command_end
        return (
            end <= len(data)
            and total + 4 <= frame_size_max
            and size <= _COMMAND_BYTES_MAX
            and end - command_end >= PAYLOAD_BYTES_MIN
            and end - command_end <= METADATA_UNCOUNTED_BYTES
            and data[position + 8] == _PREFIX_0
            and data[position + 9] == _PREFIX_1
            and data[position + 10] == _PREFIX_2
            and data[position + 11] == size - 4
            and self._read_numbers(data, position + 12, command_end)
        )

    def _read_numbers(self, data: bytes, at: i64, end: i64) -> bool:
        producer_id: i64 = -1
        sequence_id: i64 = -1
        while at + 1 < end:
            tag: i64 = data[at]
            value: i64 = data[at + 1]
            at += 2
            if value > 0x7F:
                value &= 0x7F
                shift: i64 = 7
                byte: i64 = 0x80
                while byte > 0x7F:
                    if at == end or shift == _VARINT_BITS_READ:
                        return False
                    byte = data[at]
                    value |= (byte & 0x7F) << shift
                    at += 1
                    shift += 7
            if tag == _PRODUCER_ID:
                producer_id = value
            elif tag == _SEQUENCE_ID:
                sequence_id = value
            elif tag != _NUM_MESSAGES:  # which are counted from the metadata
                return False
        self.producer_id, self.sequence_id = producer_id, sequence_id
        return at == end and producer_id >= 0 and sequence_id >= 0


def read_run(data: bytes, start: i64, frame_size_max: i64) -> tuple[SendRun, int] | None:
    """The run that begins at `start`, where a frame does, and where it ends; None if fewer than
    RUN_MESSAGES_MIN messages belong to one."""
    head = _Head()
    run: SendRun | None = None
    producer_id: i64 = -1
    size_bytes: i64 = 0
    position = start
    while len(data) - position >= _FRAME_BYTES_MIN and head.read(data, position, frame_size_max):
        if run is None:
            producer_id = head.producer_id
            run = SendRun(producer_id)
        elif head.producer_id != producer_id:
            break
        payload = data[head.command_end : head.end]
        if not verify_checksum(payload):
            break
        run.sequence_ids.append(head.sequence_id)
        run.payloads.append(payload)
        run.counts.append(count_messages(payload))
        size_bytes += head.end - head.command_end
        position = head.end
    if run is None or len(run.payloads) < RUN_MESSAGES_MIN:
        return None
    run.size_bytes = size_bytes
    return run, position


def one_by_one(frames: Iterator[T | SendRun], waiting: list[Send]) -> Iterator[T | Send]:
    """The frames, without runs: where each message may have to wait. Those of a run are in
    `waiting` until it is their turn, the next one last. One that the caller puts back there comes
    first in the next call: an iterator around the rest would be one more each time."""
    while True:
        while waiting:
            yield waiting.pop()
        for frame in frames:
            if isinstance(frame, SendRun):
                waiting.extend(reversed(frame.sends()))
                break
            yield frame
        else:
            return
