"""SEND read straight from its bytes: the command that arrives once per message.

Building the protobuf objects of a SEND and asking them for four numbers costs more than twice as
much as reading the four numbers. Only the form every client writes is read here (type first, then
the SEND and nothing else, numbers only); anything else goes through protobuf, with the same result:
`protocol/tests/test_frames.py` holds the two equal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from protocol import pulsar_api_pb2 as pb

SendFields = tuple[int, int, int, int, bool]
"""(producer id, sequence id, number of messages, highest sequence id, is chunk). The highest
sequence id is NO_SEQUENCE_ID when the client has sent none."""

NO_SEQUENCE_ID: Final = 2**64 - 1
SEND_PREFIX: Final = b"\x08\x06\x32"
"""BaseCommand.type = SEND, then the tag of BaseCommand.send, whose size is the next byte."""

_PRODUCER_ID: Final = 0x08
_SEQUENCE_ID: Final = 0x10
_NUM_MESSAGES: Final = 0x18
_HIGHEST_SEQUENCE_ID: Final = 0x30
_IS_CHUNK: Final = 0x38
_VARINT_BITS_MAX: Final = 64
_NUM_MESSAGES_MAX: Final = 2**31 - 1


def send_fields(send: pb.CommandSend) -> SendFields:
    """The fields of a SEND that protobuf has read."""
    return (
        send.producer_id,
        send.sequence_id,
        send.num_messages,
        send.highest_sequence_id or NO_SEQUENCE_ID,
        send.is_chunk,
    )


def read_send(data: bytes, start: int, end: int) -> SendFields | None:
    """The fields of the SEND command at `data[start:end]`, which begins with SEND_PREFIX; None if
    it is one that protobuf has to look at (longer, unusual fields, or broken)."""
    position = start + 4
    if data[start + 3] != end - position:
        return None
    producer_id = sequence_id = -1
    count = 1
    highest = 0
    is_chunk = 0
    last = end - 1  # a tag needs a byte behind it
    while position < last:
        tag = data[position]
        value = data[position + 1]
        position += 2
        if value > 0x7F:
            value &= 0x7F
            shift = 7
            while position < end:
                byte = data[position]
                position += 1
                value |= (byte & 0x7F) << shift
                if byte < 0x80:
                    break
                shift += 7
            else:
                return None
            if shift >= _VARINT_BITS_MAX - 1:
                return None
        if tag == _PRODUCER_ID:
            producer_id = value
        elif tag == _SEQUENCE_ID:
            sequence_id = value
        elif tag == _NUM_MESSAGES:
            count = value
        elif tag == _HIGHEST_SEQUENCE_ID:
            highest = value
        elif tag == _IS_CHUNK:
            is_chunk = value
        else:
            return None
    if position != end or producer_id < 0 or sequence_id < 0 or count > _NUM_MESSAGES_MAX:
        return None
    return producer_id, sequence_id, count, highest or NO_SEQUENCE_ID, is_chunk != 0
