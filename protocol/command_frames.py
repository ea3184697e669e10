"""Builds the frame of any command from its fields: what commands and client encoders share."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any, Final, final

from google.protobuf.message import Message

from protocol import pulsar_api_pb2 as pb
from protocol.decoding import COMMAND_FIELDS
from protocol.frames import encode_frame
from protocol.position import Position, unsigned_id
from protocol.templates import varint

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_SIZES: Final = Struct(">II")
_LENGTH_DELIMITED: Final = 2
"""Wire type of a message in a message."""


def set_fields(content: Message, fields: Mapping[str, Any]) -> None:
    """Set the fields by their protocol names, whatever their kind; None means not set."""
    for name, value in fields.items():
        if value is None:
            continue
        if isinstance(value, Message):
            getattr(content, name).CopyFrom(value)
        elif isinstance(value, list | tuple):
            getattr(content, name).extend(value)
        else:
            setattr(content, name, value)


def command_frame(kind: pb.BaseCommand.Type, **fields: Any) -> bytes:  # noqa: ANN401
    """A command of this type whose content has these fields; None means not set."""
    command = pb.BaseCommand(type=kind)
    content = getattr(command, COMMAND_FIELDS[kind])
    content.SetInParent()
    set_fields(content, fields)
    return encode_frame(command)


def command_frame_of(kind: pb.BaseCommand.Type, content: Sequence[bytes]) -> list[bytes]:
    """The same for content that is encoded already, in pieces which protobuf would merge: a head
    and the pieces themselves, which are not copied."""
    field = pb.BaseCommand.DESCRIPTOR.fields_by_name[COMMAND_FIELDS[kind]].number
    size = sum(map(len, content))
    head = pb.BaseCommand(type=kind).SerializeToString()
    head += varint(field << 3 | _LENGTH_DELIMITED) + varint(size)
    size += len(head)
    return [_SIZES.pack(4 + size, size) + head, *content]


@final
class AnswerTemplate:
    """Answers to very many requests that differ in the request id alone: protobuf encodes one for
    each size that the id's varint can have, and the id is put into its place."""

    __slots__ = ("_fields", "_kind", "_prefixes", "_tail")

    def __init__(self, kind: pb.BaseCommand.Type, **fields: Any) -> None:  # noqa: ANN401
        """`fields` as in `command_frame`, without the request id."""
        self._kind = kind
        self._fields = fields
        self._prefixes: list[bytes | None] = [None] * 11
        one, other = (command_frame(kind, request_id=number, **fields) for number in (0, 1))
        self._tail = one[1 + next(at for at, byte in enumerate(one) if byte != other[at]) :]

    def frame(self, request_id: int) -> bytes:
        """The same bytes as `command_frame` with this request id."""
        number = varint(request_id)
        prefix = self._prefixes[len(number)]
        if prefix is None:
            frame = command_frame(self._kind, request_id=request_id, **self._fields)
            prefix = frame[: len(frame) - len(self._tail) - len(number)]
            self._prefixes[len(number)] = prefix
        return prefix + number + self._tail


def message_id(position: Position, partition: int | None = None) -> pb.MessageIdData:
    """The wire form of a position; -1 becomes 2^64-1."""
    data = pb.MessageIdData(ledgerId=unsigned_id(position[0]), entryId=unsigned_id(position[1]))
    if partition is not None:
        data.partition = partition
    return data
