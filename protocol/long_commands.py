"""Long commands, seen before they are parsed: what is bounded, and what is handled in parts.

ACK and REDELIVER_UNACKNOWLEDGED_MESSAGES may name as many messages as fit into a frame, about
850,000. Clients do that rightly, so the command is not refused. It is divided into commands of
`IDS_PER_PART` ids or `PART_BYTES` each, which have the effect of the whole when they are handled in
order. Only the last one has the request id. To parse the whole at once would already take 0.1 s.

All other commands hold at most `FIELDS_MAX` fields (properties, mostly), counting those of a schema
and the ranges of a Key_Shared consumer, and `COMMAND_SIZE_BYTES_MAX` bytes. The `ack_set` of an id
is no longer than the largest batch.

The type must come first in a long command, and its content must follow as the only other field.
Every implementation of protobuf writes the fields in this order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from google.protobuf.message import DecodeError

from protocol import pulsar_api_pb2 as pb
from protocol.errors import RemoteProtocolError
from protocol.outline import (
    ACK_WORDS_MAX,
    Shape,
    after_field,
    check_fields,
    check_id,
    too_many_fields,
    varint,
)
from protocol.requests import ParsedRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

LONG_COMMAND_BYTES: Final = 512
"""A turn may handle many commands, so those of more than a few dozen ids are long already."""
IDS_PER_PART: Final = 1_000
"""About 3 ms of a turn. The Java client groups up to 1,000 ids in one command."""
FIELDS_PER_STEP: Final = 4_000
"""Fields looked at before other connections get a turn: about 2 ms."""
FIELDS_MAX: Final = 4_000
COMMAND_SIZE_BYTES_MAX: Final = 2 * 1024 * 1024
OTHERS_BYTES_MAX: Final = 256 * 1024
"""Everything that is not an id is parsed with each part."""
PART_BYTES: Final = 64 * 1024
"""Ids with the messages of batches fill a part sooner: a word of a byte costs as much as an id of
the Java client without one."""

_ACK: Final = pb.BaseCommand.ACK
_REDELIVER: Final = pb.BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES
_ACK_ID_TAG: Final = pb.CommandAck.MESSAGE_ID_FIELD_NUMBER << 3 | 2
_REDELIVER_ID_TAG: Final = (
    pb.CommandRedeliverUnacknowledgedMessages.MESSAGE_IDS_FIELD_NUMBER << 3 | 2
)
_SHAPE: Final = Shape(pb.BaseCommand.DESCRIPTOR)
_PLAIN: Final = Shape(pb.CommandPing.DESCRIPTOR)
"""The outline of a command without messages that hold repeated fields."""
_TYPE_TAG: Final = pb.BaseCommand.TYPE_FIELD_NUMBER << 3


@final
class LongCommand:
    """An ACK or REDELIVER_UNACKNOWLEDGED_MESSAGES that is not parsed yet."""

    __slots__ = ("_encoded", "_kind", "_start")

    def __init__(self, kind: int, encoded: bytes, start: int) -> None:
        """`start`: where the content begins in the encoded command."""
        self._kind = kind
        self._encoded = encoded
        self._start = start

    def parts(self) -> Iterator[ParsedRequest | None]:
        """The requests that have the effect of this one. None: the turn should end here.

        Raises: RemoteProtocolError: the command is malformed. If its outline is, or a field other
            than an id, no part has been returned before.
        """
        encoded, at = self._encoded, self._start
        end = len(encoded)
        id_tag = _ACK_ID_TAG if self._kind == _ACK else _REDELIVER_ID_TAG
        cuts: list[int] = []
        others: list[bytes] = []
        ids = fields = others_bytes = 0
        while at < end:
            begin = at
            at = after_field(encoded, at)
            fields += 1
            if encoded[begin] != id_tag:
                others.append(encoded[begin:at])
                others_bytes += at - begin
                if len(others) > FIELDS_MAX:
                    raise too_many_fields(FIELDS_MAX)
                if others_bytes > OTHERS_BYTES_MAX:
                    raise RemoteProtocolError(
                        f"more than {OTHERS_BYTES_MAX} bytes beside the ids of a command"
                    )
            else:
                if at - begin > ACK_WORDS_MAX:
                    check_id(encoded, varint(encoded, begin + 1)[1], at)
                    yield None
                if ids == IDS_PER_PART or not cuts or at - cuts[-1] > PART_BYTES:
                    cuts.append(begin)
                    ids = 0
                ids += 1
            if fields % FIELDS_PER_STEP == 0:
                yield None
        if self._kind == _ACK:
            head = _new_ack(b"".join(others), None)
            if head.ack.message_id:
                raise RemoteProtocolError("a long ACK with ids in an unusual form")
            if head.ack.ack_type == pb.CommandAck.Cumulative:
                # Ignored by all types of subscriptions when it has several ids, as in Pulsar.
                del cuts[1:]
                end = after_field(encoded, cuts[0]) if cuts else end
                end = after_field(encoded, end) if end < len(encoded) else end
            make = _new_ack
        else:
            head = _new_redeliver(b"".join(others), None)
            if head.redeliverUnacknowledgedMessages.message_ids:
                raise RemoteProtocolError("a long request to redeliver in an unusual form")
            make = _new_redeliver
        if not cuts:
            yield ParsedRequest(head)
            return
        cuts.append(end)
        for number in range(1, len(cuts)):
            part = make(encoded[cuts[number - 1] : cuts[number]], head)
            if self._kind == _ACK and number < len(cuts) - 1:
                part.ack.ClearField("request_id")
            yield ParsedRequest(part)
            yield None


def long_command(encoded: bytes) -> LongCommand | None:
    """Look at a command of more than `LONG_COMMAND_BYTES`. None: it is to be parsed.

    Raises: RemoteProtocolError: it is too large, or not in the usual form.
    """
    try:
        if encoded[0] != _TYPE_TAG:
            raise RemoteProtocolError("a long command must begin with its type")
        kind, at = varint(encoded, 1)
        tag, at = varint(encoded, at)
        size, at = varint(encoded, at)
    except IndexError:
        raise RemoteProtocolError("command cannot be read") from None
    if tag != kind << 3 | 2 or at + size != len(encoded):
        raise RemoteProtocolError("a long command must hold its type, its content, nothing else")
    if kind in (_ACK, _REDELIVER):
        return LongCommand(kind, encoded, at)
    if size > COMMAND_SIZE_BYTES_MAX:
        raise RemoteProtocolError(
            f"command of {size} bytes, the limit is {COMMAND_SIZE_BYTES_MAX} bytes"
        )
    check_fields(encoded, at, len(encoded), _SHAPE.inner.get(kind, _PLAIN), FIELDS_MAX)
    return None


def _new_ack(content: bytes, head: pb.BaseCommand | None) -> pb.BaseCommand:
    command = pb.BaseCommand(type=_ACK)
    try:
        command.ack.MergeFromString(content)
    except DecodeError as error:
        raise RemoteProtocolError(f"command cannot be read: {error}") from None
    if head is not None:
        command.ack.MergeFrom(head.ack)
    return command


def _new_redeliver(content: bytes, head: pb.BaseCommand | None) -> pb.BaseCommand:
    command = pb.BaseCommand(type=_REDELIVER)
    body = command.redeliverUnacknowledgedMessages
    try:
        body.MergeFromString(content)
    except DecodeError as error:
        raise RemoteProtocolError(f"command cannot be read: {error}") from None
    if head is not None:
        body.MergeFrom(head.redeliverUnacknowledgedMessages)
    if not command.IsInitialized():
        raise RemoteProtocolError("REDELIVER_UNACKNOWLEDGED_MESSAGES lacks a required field")
    return command
