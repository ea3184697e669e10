"""SEND read straight from its bytes: the command that arrives once per message.

Building the protobuf objects of a SEND and asking them for four numbers costs more than twice as
much as reading the four numbers. Only the form every client writes is read here (type first, then
the SEND and nothing else, numbers only); anything else goes through protobuf, with the same result:
`protocol/tests/test_frames.py` holds the two equal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from protocol.new_messages import NO_SEQUENCE_ID, NewMessage

if TYPE_CHECKING:
    from mypy_extensions import i64

    from protocol import pulsar_api_pb2 as pb

_UINT64_MAX: Final = 2**64 - 1
SEND_PREFIX: Final = b"\x08\x06\x32"
"""BaseCommand.type = SEND, then the tag of BaseCommand.send, whose size is the next byte."""

_PRODUCER_ID: Final = 0x08
_SEQUENCE_ID: Final = 0x10
_NUM_MESSAGES: Final = 0x18
_HIGHEST_SEQUENCE_ID: Final = 0x30
_IS_CHUNK: Final = 0x38
_VARINT_BITS_READ: Final = 63
"""More do not fit into an i64, with which compiled code computes without objects."""


@final
class Send(NewMessage):
    """A SEND. `payload` is what follows the command: headers, metadata and payload. The highest
    sequence id is NO_SEQUENCE_ID when the client has sent none (or 0, or the largest number). The
    number of messages that the client claims is left out: `metadata.count_messages` counts."""

    __slots__ = ("producer_id",)

    def __init__(
        self,
        producer_id: int,
        sequence_id: int,
        highest_sequence_id: int,
        is_chunk: bool,
        payload: bytes,
    ) -> None:
        super().__init__(sequence_id, highest_sequence_id, is_chunk, payload)
        self.producer_id = producer_id


def send_of(send: pb.CommandSend, payload: bytes) -> Send:
    """A SEND that protobuf has read."""
    highest = send.highest_sequence_id
    return Send(
        send.producer_id,
        send.sequence_id,
        NO_SEQUENCE_ID if highest in (0, _UINT64_MAX) else highest,
        send.is_chunk,
        payload,
    )


def read_send(data: bytes, start: i64, end: i64, payload_end: i64) -> Send | None:
    """The SEND command at `data[start:end]`, which begins with SEND_PREFIX, and the payload after
    it; None if it is one that protobuf has to look at (longer, unusual fields, or broken)."""
    position: i64 = start + 4
    if data[start + 3] != end - position:
        return None
    producer_id: i64 = -1
    sequence_id: i64 = -1
    highest: i64 = 0
    is_chunk: i64 = 0
    last = end - 1  # a tag needs a byte after it
    while position < last:
        tag: i64 = data[position]
        value: i64 = data[position + 1]
        position += 2
        if value > 0x7F:
            value &= 0x7F
            shift: i64 = 7
            while position < end:
                byte: i64 = data[position]
                position += 1
                value |= (byte & 0x7F) << shift
                if byte < 0x80:
                    break
                shift += 7
                if shift == _VARINT_BITS_READ:
                    return None
            else:
                return None
        if tag == _PRODUCER_ID:
            producer_id = value
        elif tag == _SEQUENCE_ID:
            sequence_id = value
        elif tag == _HIGHEST_SEQUENCE_ID:
            highest = value
        elif tag == _IS_CHUNK:
            is_chunk = value
        elif tag != _NUM_MESSAGES:  # which are counted from the metadata
            return None
    if position != end or producer_id < 0 or sequence_id < 0:
        return None
    return Send(
        producer_id,
        sequence_id,
        highest if highest != 0 else NO_SEQUENCE_ID,
        is_chunk != 0,
        data[end:payload_end],
    )
