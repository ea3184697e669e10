"""Builds the frame of any command from its fields: what commands and client encoders share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from google.protobuf.message import Message

from protocol import pulsar_api_pb2 as pb
from protocol.frames import COMMAND_FIELDS, encode_frame
from protocol.position import Position, unsigned_id

if TYPE_CHECKING:
    from collections.abc import Mapping


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


def message_id(position: Position, partition: int | None = None) -> pb.MessageIdData:
    """The wire form of a position; -1 becomes 2^64-1."""
    data = pb.MessageIdData(ledgerId=unsigned_id(position[0]), entryId=unsigned_id(position[1]))
    if partition is not None:
        data.partition = partition
    return data
