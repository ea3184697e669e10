"""Commands as protobuf parses them, checked for what the parser lets through.

The parser accepts missing required fields, unknown enum values and text that is not UTF-8, which it
then shows as bytes. All three are refused here, text even in fields that are not read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

from google.protobuf.message import DecodeError

from protocol import pulsar_api_pb2 as pb
from protocol.errors import RemoteProtocolError

if TYPE_CHECKING:
    from google.protobuf.message import Message

MessageType = Any
"""A descriptor: that of the C implementation is a class of its own."""

_parse_command = pb.BaseCommand.FromString

_HOT_TYPES: Final = frozenset(
    {pb.BaseCommand.SEND, pb.BaseCommand.ACK, pb.BaseCommand.FLOW, pb.BaseCommand.MESSAGE}
)


def _fields() -> dict[int, str]:
    """Command type -> name of the BaseCommand field that belongs to it.

    The names differ in spelling (PARTITIONED_METADATA and partitionMetadata), the numbers agree:
    the field's number is the type's number.
    """
    by_number = {field.number: field.name for field in pb.BaseCommand.DESCRIPTOR.fields}
    numbers = pb.BaseCommand.Type.values()
    return {int(number): by_number[int(number)] for number in numbers}


COMMAND_FIELDS: Final = _fields()


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
