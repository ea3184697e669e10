"""The frequent requests of consumers, read straight from their bytes.

A hundred thousand consumers that arrive together send four requests each. To build protobuf's
objects and to ask them for their fields costs several times as much as reading the bytes. Only the
form that clients write is read here: fields in the order of their numbers, each once (properties
are together), text in ASCII, numbers below 2^63. Anything else, a command of more than
`LONG_COMMAND_BYTES` included, whose fields are counted before they are looked at, is left to
protobuf, with the same result: `protocol/tests/test_plain_requests.py` holds the two equal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from protocol import pulsar_api_pb2 as pb
from protocol.long_commands import LONG_COMMAND_BYTES
from protocol.requests import (
    PERMITS_MAX,
    CloseConsumer,
    Flow,
    Lookup,
    Partitions,
    Ping,
    Subscribe,
)
from protocol.varints import read_varint

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mypy_extensions import i64

    from protocol.requests import Request

_COMMAND_BYTES_MIN: Final = 5
_TYPE: Final = 0x08
_FLOW: Final = int(pb.BaseCommand.FLOW)
_LOOKUP: Final = int(pb.BaseCommand.LOOKUP)
_SUBSCRIBE: Final = int(pb.BaseCommand.SUBSCRIBE)
_PARTITIONS: Final = int(pb.BaseCommand.PARTITIONED_METADATA)
_CLOSE_CONSUMER: Final = int(pb.BaseCommand.CLOSE_CONSUMER)
_PING: Final = int(pb.BaseCommand.PING)
_METADATA: Final = 0x52
_NUMBER_MAX: Final = 2**31 - 1
"""The largest number in fields of 32 bits."""
_SUB_TYPE_MAX: Final = max(pb.CommandSubscribe.SubType.values())
_SETS_OF_PROPERTIES_MAX: Final = 64
_PROPERTIES: Final[dict[bytes, Mapping[str, str]]] = {}
"""The properties seen last, by their bytes: very many consumers have the same. They are never
changed."""


def read_request(data: bytes, start: i64, end: i64) -> Request | None:
    """The request at `data[start:end]`; None if it is another command, or one that protobuf has to
    look at (longer, other fields, or broken)."""
    if not _COMMAND_BYTES_MIN <= end - start <= LONG_COMMAND_BYTES or data[start] != _TYPE:
        return None
    kind: i64 = data[start + 1]
    tag: i64 = data[start + 2]
    at: i64 = start + 3
    if tag > 0x7F:
        second: i64 = data[at]
        tag = (tag & 0x7F) | second << 7
        at += 1
    if tag != (kind << 3 | 2):
        return None
    at, after = _content(data, at, end)
    if after != end:
        return None
    if kind == _FLOW:
        return _read_flow(data, at, end)
    if kind == _SUBSCRIBE:
        return _read_subscribe(data, at, end)
    if kind == _LOOKUP:
        return _read_lookup(data, at, end)
    if kind == _PARTITIONS:
        return _read_partitions(data, at, end)
    if kind == _CLOSE_CONSUMER:
        return _read_close_consumer(data, at, end)
    if kind == _PING and at == end:
        return Ping()
    return None


def _read_flow(data: bytes, at: i64, end: i64) -> Flow | None:
    consumer_id, at = _number(data, at, end, 0x08)
    permits, at = _number(data, at, end, 0x10)
    if at != end or not 0 <= permits <= PERMITS_MAX:
        return None
    return Flow(consumer_id, permits)


def _read_close_consumer(data: bytes, at: i64, end: i64) -> CloseConsumer | None:
    consumer_id, at = _number(data, at, end, 0x08)
    request_id, at = _number(data, at, end, 0x10)
    return CloseConsumer(consumer_id, request_id) if at == end else None


def _read_partitions(data: bytes, at: i64, end: i64) -> Partitions | None:
    topic, at = _text(data, at, end, 0x0A)
    request_id, at = _number(data, at, end, 0x10)
    may_create: i64 = 1
    if 0 <= at < end and data[at] == 0x30:
        may_create, at = _flag(data, at, end)
    if topic is None or at != end:
        return None
    return Partitions(topic, request_id, may_create == 1)


def _read_lookup(data: bytes, at: i64, end: i64) -> Lookup | None:
    topic, at = _text(data, at, end, 0x0A)
    request_id, at = _number(data, at, end, 0x10)
    authoritative: i64 = 0
    if 0 <= at < end and data[at] == 0x18:
        authoritative, at = _flag(data, at, end)
    listener: str | None = ""
    if 0 <= at < end and data[at] == 0x3A:
        listener, at = _text(data, at, end, 0x3A)
    if topic is None or listener is None or at != end:
        return None
    return Lookup(topic, request_id, authoritative == 1, listener)


def _read_subscribe(data: bytes, at: i64, end: i64) -> Subscribe | None:
    size_bytes = end - at
    topic, at = _text(data, at, end, 0x0A)
    subscription, at = _text(data, at, end, 0x12)
    sub_type, at = _number(data, at, end, 0x18)
    consumer_id, at = _number(data, at, end, 0x20)
    request_id, at = _number(data, at, end, 0x28)
    if topic is None or subscription is None or at < 0 or sub_type > _SUB_TYPE_MAX:
        return None
    request = Subscribe(topic, subscription, sub_type, consumer_id, request_id)
    request.size_bytes = size_bytes
    if at < end and data[at] == 0x32:
        name, at = _text(data, at, end, 0x32)
        if name is None:
            return None
        request.consumer_name = name
    if at < end and data[at] == 0x38:
        level, at = _number(data, at, end, 0x38)
        if at < 0 or level > _NUMBER_MAX:
            return None
        request.priority_level = level
    flag: i64 = 0
    if at < end and data[at] == 0x40:
        flag, at = _flag(data, at, end)
        request.durable = flag == 1
    if 0 <= at < end and data[at] == _METADATA:
        metadata, at = _properties(data, at, end)
        if metadata is None:
            return None
        request.metadata = metadata
    if 0 <= at < end and data[at] == 0x58:
        flag, at = _flag(data, at, end)
        request.read_compacted = flag == 1
    if 0 <= at < end and data[at] == 0x68:  # initialPosition: Latest or Earliest
        flag, at = _flag(data, at, end)
        request.earliest = flag == 1
    if 0 <= at < end and data[at] == 0x70:  # replicate_subscription_state
        flag, at = _flag(data, at, end)
        request.replicated = flag == 1
    if 0 <= at < end and data[at] == 0x78:
        flag, at = _flag(data, at, end)
        request.may_create = flag == 1
    if 0 <= at < end - 1 and data[at] == 0x98 and data[at + 1] == 0x01:  # a tag of two bytes
        epoch, at = _number(data, at + 1, end, 0x01)
        request.epoch = epoch
    return request if at == end else None


def _properties(data: bytes, at: i64, end: i64) -> tuple[Mapping[str, str] | None, i64]:
    """The properties whose fields begin there, and where they end. None: protobuf has to look at
    them."""
    begin = at
    while 0 <= at < end and data[at] == _METADATA:
        _, at = _content(data, at + 1, end)
    if at < 0:
        return None, -1
    encoded = data[begin:at]
    known = _PROPERTIES.get(encoded)
    if known is None:
        known = _read_properties(encoded)
        if known is not None:
            if len(_PROPERTIES) >= _SETS_OF_PROPERTIES_MAX:
                _PROPERTIES.clear()
            _PROPERTIES[encoded] = known
    return known, at


def _read_properties(data: bytes) -> Mapping[str, str] | None:
    """`data` is a sequence of whole fields."""
    at: i64 = 0
    end: i64 = len(data)
    read: dict[str, str] = {}
    while at < end:
        at, after = _content(data, at + 1, end)
        key, at = _text(data, at, after, 0x0A)
        value, at = _text(data, at, after, 0x12)
        if key is None or value is None or at != after:
            return None
        read[key] = value
    return read


def _content(data: bytes, at: i64, end: i64) -> tuple[i64, i64]:
    """Where the content begins whose size is there, and where it ends. The end is negative if it
    does not fit, or the size has more than two bytes."""
    if not 0 <= at < end:
        return -1, -1
    size: i64 = data[at]
    at += 1
    if size > 0x7F:
        if at >= end or data[at] > 0x7F:
            return -1, -1
        second: i64 = data[at]
        size = (size & 0x7F) | second << 7
        at += 1
    return (at, at + size) if size <= end - at else (-1, -1)


def _text(data: bytes, at: i64, end: i64, tag: i64) -> tuple[str | None, i64]:
    """The text of the field that begins there, and where it ends. None and a negative end: it is
    another field, or protobuf has to look at the text."""
    if not 0 <= at < end or data[at] != tag:
        return None, -1
    start, after = _content(data, at + 1, end)
    if after < 0:
        return None, -1
    encoded = data[start:after]
    if not encoded.isascii():
        return None, -1
    return encoded.decode("ascii"), after


def _flag(data: bytes, at: i64, end: i64) -> tuple[i64, i64]:
    """The 0 or 1 of the field that begins there with a tag of one byte, and where it ends. A
    negative end: protobuf has to look at it."""
    if at + 1 >= end or data[at + 1] > 1:
        return 0, -1
    return data[at + 1], at + 2


def _number(data: bytes, at: i64, end: i64, tag: i64) -> tuple[i64, i64]:
    """The number of the field that begins there, and where it ends. A negative end: it is another
    field, or the number is too large or broken."""
    if not 0 <= at < end or data[at] != tag:
        return 0, -1
    return read_varint(data, at + 1, end)
