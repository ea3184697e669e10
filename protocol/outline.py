"""The outline of an encoded message: where its fields end, and how many it has.

protobuf parses a field that occurs 300,000 times within milliseconds, but Python then takes a
microsecond for each of them. So what a peer sends is counted before it is parsed. Pure.
"""

from __future__ import annotations

from typing import Any, Final, final

from google.protobuf.message import DecodeError

from protocol import pulsar_api_pb2 as pb
from protocol.errors import RemoteProtocolError

MessageType = Any
"""A descriptor: that of the C implementation is a class of its own."""

ACK_WORDS_MAX: Final = 2**20 // 64
"""Words of an `ack_set`: one bit for each message of the largest batch."""
ID_BYTES_MAX: Final = ACK_WORDS_MAX * 11 + 128
"""A message id with the largest `ack_set`: a word takes up to ten bytes, and its tag one."""

_ID_NAME: Final = pb.MessageIdData.DESCRIPTOR.full_name


@final
class Shape:
    """The fields of a message type that are counted by their content."""

    __slots__ = ("inner", "is_id")

    def __init__(self, descriptor: MessageType) -> None:
        self.is_id: bool = descriptor.full_name == _ID_NAME
        self.inner: dict[int, Shape] = {}
        """By field number: those of a message type that holds repeated fields."""
        if not self.is_id:
            for field in descriptor.fields:
                if field.message_type is not None and _holds_repeated(field.message_type):
                    self.inner[field.number] = Shape(field.message_type)


def _holds_repeated(descriptor: MessageType) -> bool:
    if descriptor.full_name == _ID_NAME:
        return True
    return any(
        field.is_repeated
        or (field.message_type is not None and _holds_repeated(field.message_type))
        for field in descriptor.fields
    )


def check_fields(data: bytes, at: int, end: int, shape: Shape, fields_max: int) -> None:
    """Count the fields of `data[at:end]` and, since protobuf merges what occurs twice, those of all
    messages within it together.

    Raises: RemoteProtocolError: there are more than `fields_max`, or it is malformed.
    """
    outer: list[tuple[int, Shape]] = []
    fields = id_bytes = 0
    while True:
        if at >= end:
            if not outer:
                return
            end, shape = outer.pop()
            continue
        fields += 1
        if fields > fields_max:
            raise too_many_fields(fields_max)
        begin, at = at, after_field(data, at)
        if at > end:
            raise _cut_short()
        tag, content = varint(data, begin)
        inner = shape.inner.get(tag >> 3)
        if inner is None or tag & 7 != 2:
            continue
        _, content = varint(data, content)
        if inner.is_id:
            id_bytes += at - content
            if id_bytes > ID_BYTES_MAX:
                raise _id_too_long()
            check_id(data, content, at)
        else:
            outer.append((end, shape))
            at, end, shape = content, at, inner


def check_id(data: bytes, start: int, end: int) -> None:
    """Raises: RemoteProtocolError: a message id with more words than the largest batch has."""
    if end - start <= ACK_WORDS_MAX:
        return
    if end - start > ID_BYTES_MAX:
        raise _id_too_long()
    try:
        parsed = pb.MessageIdData.FromString(data[start:end])
    except DecodeError as error:
        raise RemoteProtocolError(f"message id cannot be read: {error}") from None
    if len(parsed.ack_set) > ACK_WORDS_MAX:
        raise _id_too_long()


def too_many_fields(fields_max: int) -> RemoteProtocolError:
    """The refusal of a message with more."""
    return RemoteProtocolError(f"command or metadata with more than {fields_max} fields")


def _id_too_long() -> RemoteProtocolError:
    return RemoteProtocolError(
        f"message id with an ack_set for more than {64 * ACK_WORDS_MAX} messages"
    )


def _cut_short() -> RemoteProtocolError:
    return RemoteProtocolError("command cannot be read: it ends within a field")


def varint(data: bytes, at: int) -> tuple[int, int]:
    """The number there, and where the next field begins. Raises: IndexError."""
    value = shift = 0
    while data[at] & 0x80:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if shift > 63:
            raise RemoteProtocolError("command cannot be read: a number is too long")
    return value | data[at] << shift, at + 1


def after_field(data: bytes, at: int) -> int:
    """Where the field after this one begins. Raises: RemoteProtocolError: it is not whole."""
    try:
        wire_type = data[at] & 7
        if data[at] & 0x80:
            at = varint(data, at)[1]
        else:
            at += 1
        if wire_type == 2:
            size = data[at]
            if size & 0x80:
                size, at = varint(data, at)
            else:
                at += 1
            at += size
        elif wire_type == 0:
            while data[at] & 0x80:
                at += 1
            at += 1
        elif wire_type in (1, 5):
            at += 8 if wire_type == 1 else 4
        else:
            raise RemoteProtocolError("command cannot be read: a group")
    except IndexError:
        raise _cut_short() from None
    if at > len(data):
        raise _cut_short()
    return at
