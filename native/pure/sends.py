"""A run of SENDs as columns. Pure.

A frame is two sizes (all that follows the first, and the command), the command, and a payload:
headers, metadata and content. The run goes up to the first frame of another form, of another
producer, or with a checksum that does not fit: that one is looked at by itself. It has
RUN_MESSAGES_MAX messages at most, and ends with the one that reaches RUN_BYTES_MAX.
"""

from __future__ import annotations

from array import array
from struct import Struct
from typing import Final, NamedTuple

from native.pure.checksums import crc32c
from native.pure.fields import Unusual, read_fields

PAYLOAD_BYTES_MIN: Final = 10
"""A size of metadata and the three required fields of metadata."""
PAYLOAD_BYTES_MAX: Final = 64 * 1024
RUN_MESSAGES_MAX: Final = 512
RUN_BYTES_MAX: Final = 256 * 1024
"""A longer run is divided, so that the cost of a run is bounded."""
_FRAME_BYTES_MIN: Final = 16
"""Both sizes and the least that a SEND has."""
_COMMAND_BYTES_MAX: Final = 64
_PREFIX: Final = b"\x08\x06\x32"
"""BaseCommand.type = SEND, then the tag of BaseCommand.send, whose size is the next byte."""
_COMMAND_NUMBERS: Final = 0b1110
"""Fields of a SEND: producer, sequence id, and a number of messages, which is not believed."""
_PRODUCER_AND_SEQUENCE: Final = 0b110
_NUMBERS: Final = 0b1010_0001_0010_0000_1100
"""Fields of the metadata of a message by itself: sequence id, times, size, whether the key is
base64."""
_TEXTS: Final = 0b0101_0000_0000_0100_0010
"""Producer, keys, version of the schema."""
_REQUIRED: Final = 0b1110
_MAGIC: Final = b"\x0e\x01"
_BROKER_MAGIC: Final = b"\x0e\x02"
_UNCHECKED_BYTES: Final = 6
_U32: Final = Struct(">I")
_SIZES: Final = Struct(">II")


ARE_SINGLE: Final = 1
"""Each surely is one message that clients can read. Else they have to be counted."""
ARE_CONSECUTIVE: Final = 2
"""Each sequence id is the one before plus 1."""


class SendColumns(NamedTuple):
    """Messages of one producer, in their order."""

    producer_id: int
    """-1: there are none."""
    sequence_ids: bytes
    """Numbers of 64 bits in the byte order of the machine."""
    payloads: list[bytes]
    """The bytes after each command. The checksum of each that has one fits."""
    size_bytes: int
    """The size of all payloads."""
    size_each_bytes: int
    """The size of each payload; 0: they differ."""
    flags: int
    """ARE_SINGLE, ARE_CONSECUTIVE."""
    end: int
    """Where the next frame begins."""


def read_sends(data: bytes, start: int, frame_size_max: int) -> SendColumns:
    """The run that begins at `start`, where a frame does. The extension answers with a plain tuple.

    Raises: TypeError: `data` is not bytes.
    """
    if not isinstance(data, bytes):
        raise TypeError(f"expected bytes, {type(data).__name__} found")
    sequence_ids = array("q")
    payloads: list[bytes] = []
    producer_id = -1
    size_bytes = 0
    flags = ARE_SINGLE | ARE_CONSECUTIVE
    while len(payloads) < RUN_MESSAGES_MAX and start >= 0 and len(data) - start >= _FRAME_BYTES_MIN:
        total, size = _SIZES.unpack_from(data, start)
        begin, end = start + 8 + size, start + 4 + total
        if (
            end > len(data)
            or total + 4 > frame_size_max
            or size > _COMMAND_BYTES_MAX
            or not PAYLOAD_BYTES_MIN <= end - begin <= PAYLOAD_BYTES_MAX
            or not data.startswith(_PREFIX, start + 8)
            or data[start + 11] != size - 4
        ):
            break
        try:
            send = read_fields(data, start + 12, begin, _COMMAND_NUMBERS, 0)
        except Unusual:
            break
        if send.seen & _PRODUCER_AND_SEQUENCE != _PRODUCER_AND_SEQUENCE or (
            payloads and (send.values[1] != producer_id or size_bytes >= RUN_BYTES_MAX)
        ):
            break
        payload = data[begin:end]
        if payload.startswith(_BROKER_MAGIC):
            break
        is_checked = payload.startswith(_MAGIC)
        if is_checked and _U32.unpack_from(payload, 2)[0] != crc32c(payload, 0, _UNCHECKED_BYTES):
            break
        if not _is_single(payload, _UNCHECKED_BYTES if is_checked else 0):
            flags &= ~ARE_SINGLE
        if payloads and send.values[2] != sequence_ids[-1] + 1:
            flags &= ~ARE_CONSECUTIVE
        producer_id = send.values[1]
        sequence_ids.append(send.values[2])
        payloads.append(payload)
        size_bytes += len(payload)
        start = end
    sizes = set(map(len, payloads))
    return SendColumns(
        producer_id,
        sequence_ids.tobytes(),
        payloads,
        size_bytes,
        sizes.pop() if len(sizes) == 1 else 0,
        flags,
        start,
    )


def _is_single(payload: bytes, at: int) -> bool:
    """Whether it surely is a message by itself that clients can read, which has its metadata at
    `at`."""
    end = at + 4 + _U32.unpack_from(payload, at)[0]
    if end > len(payload):
        return False
    try:
        fields = read_fields(payload, at + 4, end, _NUMBERS, _TEXTS)
    except Unusual:
        return False
    return fields.seen & _REQUIRED == _REQUIRED
