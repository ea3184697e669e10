"""Wire protocol version 2: hand-packed, and what Pulsar's brokers use for adds and reads.

A packet starts with `version << 24 | opcode << 16 | flags`. A bookie serves four opcodes; the other
three numbers exist in name only. There is no transaction id: a client matches an answer to the
oldest request with the same ledger, entry and opcode, so **every** request must be answered, with
the entry id it asked for, also when that was LAST_ENTRY.

Encoders return the packet with its size prefix. Where an entry follows, they return only what
precedes it, so that the entry goes out of the object it is already in.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError
from typing import TYPE_CHECKING, Final

from google.protobuf.message import DecodeError

from protocol.bookkeeper import data_formats_pb2 as formats
from protocol.bookkeeper.digests import MASTER_KEY_SIZE_BYTES, METADATA_SIZE_BYTES
from protocol.bookkeeper.messages import (
    FENCING,
    IO_ERROR,
    OK,
    STATUSES,
    UNKNOWN_LEDGER_STATE,
    AddRequest,
    AddResponse,
    AuthRequest,
    AuthResponse,
    BatchReadRequest,
    BatchReadResponse,
    ReadRequest,
    ReadResponse,
)
from protocol.errors import RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from google.protobuf.message import Message

    from protocol.bookkeeper.messages import Request, Response

VERSION: Final = 2
ADD: Final = 1
READ: Final = 2
AUTH: Final = 3
BATCH_READ: Final = 7

BATCH_READ_OVERHEAD_BYTES: Final = 24 + 8 + 4
BATCH_READ_ENTRY_OVERHEAD_BYTES: Final = 4
"""How the size limit of a batch read is counted: once, and for each entry besides its body."""

_ADD_HEADER: Final = VERSION << 24 | ADD << 16
_READ_HEADER: Final = VERSION << 24 | READ << 16
_AUTH_HEADER: Final = VERSION << 24 | AUTH << 16
_BATCH_READ_HEADER: Final = VERSION << 24 | BATCH_READ << 16

_U32: Final = Struct(">I")
_IDS: Final = Struct(">qq")
_ADD_HEAD: Final = Struct(">II20s")
_READ_REQUEST: Final = Struct(">IIqq")
_BATCH_READ_REQUEST: Final = Struct(">IIqqqiq")
_BATCH_READ_TAIL: Final = Struct(">qqqiq")
_RESPONSE: Final = Struct(">IIIqq")
_RESPONSE_TAIL: Final = Struct(">IIqq")
_BATCH_RESPONSE: Final = Struct(">IIIqqq")
_I64: Final = Struct(">q")

_ADD_SIZE_MIN: Final = 4 + MASTER_KEY_SIZE_BYTES + METADATA_SIZE_BYTES
_ADD_BODY_AT: Final = 4 + MASTER_KEY_SIZE_BYTES
_pack_response: Final = _RESPONSE.pack
_unpack_ids: Final = _IDS.unpack_from
_unpack_u32: Final = _U32.unpack_from


# Server side: requests in, responses out.


def decode_request(packet: bytes) -> Request:
    """The request in a packet without its size prefix.

    Raises: RemoteProtocolError: it is none.
    """
    try:
        header: int = _unpack_u32(packet)[0]
        opcode = header >> 16
        flags = header & 0xFFFF
        if opcode == VERSION << 8 | ADD:
            return _decode_add(packet, flags)
        if opcode == VERSION << 8 | READ:
            ledger_id, entry_id = _unpack_ids(packet, 4)
            return ReadRequest(ledger_id, entry_id, flags, _fencing_key(packet, 20, flags))
    except StructError as error:
        raise RemoteProtocolError(f"request of {len(packet)} bytes is too short") from error
    if opcode >> 8 != VERSION:
        raise RemoteProtocolError(
            f"neither a version 3 request nor version {VERSION}: it says version {opcode >> 8}"
        )
    if opcode & 0xFF == BATCH_READ:
        return _decode_batch_read(packet, flags)
    if opcode & 0xFF == AUTH:
        message = _auth_message(packet)
        return AuthRequest(auth_plugin(message), message.payload)
    raise RemoteProtocolError(f"version 2 has no operation {opcode & 0xFF}")


def _decode_add(packet: bytes, flags: int) -> AddRequest:
    if len(packet) < _ADD_SIZE_MIN:
        raise RemoteProtocolError(f"add of {len(packet)} bytes; {_ADD_SIZE_MIN} are the least")
    ledger_id, entry_id = _unpack_ids(packet, _ADD_BODY_AT)
    return AddRequest(ledger_id, entry_id, packet[_ADD_BODY_AT:], packet[4:_ADD_BODY_AT], flags)


def _decode_batch_read(packet: bytes, flags: int) -> BatchReadRequest:
    end = 4 + _BATCH_READ_TAIL.size
    if len(packet) < end:
        raise RemoteProtocolError(f"batch read of {len(packet)} bytes is too short")
    ledger_id, entry_id, request_id, count_max, size_max = _BATCH_READ_TAIL.unpack_from(packet, 4)
    key = _fencing_key(packet, end, flags)
    return BatchReadRequest(ledger_id, entry_id, request_id, count_max, size_max, flags, key)


def _fencing_key(packet: bytes, at: int, flags: int) -> bytes:
    """The master key that follows only when the request fences."""
    if not flags & FENCING:
        return b""
    key = packet[at : at + MASTER_KEY_SIZE_BYTES]
    if len(key) < MASTER_KEY_SIZE_BYTES:
        raise RemoteProtocolError("a request that fences must carry the master key")
    return key


def _auth_message(packet: bytes) -> formats.AuthMessage:
    message = formats.AuthMessage()
    try:
        message.ParseFromString(packet[4:])
    except DecodeError as error:
        raise RemoteProtocolError(f"authentication message: {error}") from error
    if not message.IsInitialized():
        raise RemoteProtocolError("authentication message without plugin name or payload")
    return message


def auth_plugin(message: Message) -> str:
    """The plugin that an AuthMessage names. Bytes that are not UTF-8 are replaced, as by
    BookKeeper.

    protobuf gives such a field as bytes, whatever its type says.
    """
    name: object = getattr(message, "authPluginName")  # noqa: B009 - typed, it would be cast to str
    return name.decode(errors="replace") if isinstance(name, bytes) else str(name)


def encode_add_response(status: int, ledger_id: int, entry_id: int) -> bytes:
    """Answer to an add."""
    return _pack_response(24, _ADD_HEADER, _wire_status(status), ledger_id, entry_id)


def encode_add_responses(status: int, ledger_id: int, first_entry_id: int, count: int) -> bytes:
    """The same answer to the adds of consecutive entries."""
    pack = _pack_response
    said: object = _wire_status(status)
    ledger: object = ledger_id
    answers = [
        pack(24, _ADD_HEADER, said, ledger, entry_id)
        for entry_id in range(first_entry_id, first_entry_id + count)
    ]
    return b"".join(answers)


def encode_read_response_head(
    status: int, ledger_id: int, entry_id: int, body_size_bytes: int = 0
) -> bytes:
    """Answer to a read; when OK, the entry's body follows as it is stored."""
    return _pack_response(
        24 + body_size_bytes, _READ_HEADER, _wire_status(status), ledger_id, entry_id
    )


def encode_batch_read_response(
    status: int,
    ledger_id: int,
    entry_id: int,
    request_id: int,
    bodies: Sequence[bytes] = (),
) -> list[bytes]:
    """Answer to a batch read, as buffers to be sent one after the other."""
    size = 32 + sum(len(body) for body in bodies) + 4 * len(bodies)
    buffers = [
        _BATCH_RESPONSE.pack(
            size, _BATCH_READ_HEADER, _wire_status(status), ledger_id, entry_id, request_id
        )
    ]
    for body in bodies:
        buffers += (_U32.pack(len(body)), body)
    return buffers


def encode_auth_response(plugin: str, payload: bytes = b"") -> bytes:
    """One step of authentication; version 2 has no status for it."""
    return _encode_auth(plugin, payload)


def _encode_auth(plugin: str, payload: bytes) -> bytes:
    message = formats.AuthMessage(authPluginName=plugin, payload=payload).SerializeToString()
    return _U32.pack(4 + len(message)) + _U32.pack(_AUTH_HEADER) + message


def _wire_status(status: int) -> int:
    """Version 2 clients of BookKeeper do not survive UNKNOWN_LEDGER_STATE."""
    return IO_ERROR if status == UNKNOWN_LEDGER_STATE else status


# Client side: requests out, responses in.


def encode_add_request_head(body_size_bytes: int, master_key: bytes, flags: int = 0) -> bytes:
    """The bytes before the body (entry head, then payload) of an add."""
    return _ADD_HEAD.pack(_ADD_BODY_AT + body_size_bytes, _ADD_HEADER | flags, master_key)


def encode_read_request(
    ledger_id: int, entry_id: int, flags: int = 0, master_key: bytes = b""
) -> bytes:
    """A read; with FENCING it needs the master key."""
    key = master_key if flags & FENCING else b""
    return _READ_REQUEST.pack(20 + len(key), _READ_HEADER | flags, ledger_id, entry_id) + key


def encode_batch_read_request(request: BatchReadRequest) -> bytes:
    """Consecutive entries in one answer."""
    flags = request.flags
    key = request.master_key if flags & FENCING else b""
    head = _BATCH_READ_REQUEST.pack(
        40 + len(key),
        _BATCH_READ_HEADER | flags,
        request.ledger_id,
        request.entry_id,
        request.request_id,
        request.count_max,
        request.size_bytes_max,
    )
    return head + key


def encode_auth_request(plugin: str, payload: bytes = b"") -> bytes:
    """One step of authentication."""
    return _encode_auth(plugin, payload)


def decode_response(packet: bytes) -> Response:
    """The response in a packet without its size prefix.

    Raises: RemoteProtocolError: it is none.
    """
    if len(packet) < 4:
        raise RemoteProtocolError(f"response of {len(packet)} bytes is too short")
    opcode = _unpack_u32(packet)[0] >> 16
    if opcode == VERSION << 8 | AUTH:
        message = _auth_message(packet)
        return AuthResponse(OK, auth_plugin(message), message.payload)
    if len(packet) < _RESPONSE_TAIL.size:
        raise RemoteProtocolError(f"response of {len(packet)} bytes is too short")
    _, status, ledger_id, entry_id = _RESPONSE_TAIL.unpack_from(packet)
    if status not in STATUSES:
        raise RemoteProtocolError(f"response with unknown status {status}")
    if opcode == VERSION << 8 | ADD:
        return AddResponse(status, ledger_id, entry_id)
    if opcode == VERSION << 8 | READ:
        return ReadResponse(status, ledger_id, entry_id, packet[_RESPONSE_TAIL.size :])
    if opcode == VERSION << 8 | BATCH_READ:
        return _decode_batch_response(packet, status, ledger_id, entry_id)
    raise RemoteProtocolError(f"response of version {opcode >> 8} to operation {opcode & 0xFF}")


def _decode_batch_response(
    packet: bytes, status: int, ledger_id: int, entry_id: int
) -> BatchReadResponse:
    at = _RESPONSE_TAIL.size + _I64.size
    if len(packet) < at:
        raise RemoteProtocolError(f"batch response of {len(packet)} bytes is too short")
    request_id = _I64.unpack_from(packet, _RESPONSE_TAIL.size)[0]
    bodies: list[bytes] = []
    while at < len(packet):
        if len(packet) - at < 4:
            raise RemoteProtocolError("batch response ends within the size of an entry")
        size = _unpack_u32(packet, at)[0]
        at += 4
        if len(packet) - at < size:
            raise RemoteProtocolError(
                f"batch response: entry of {size} bytes, {len(packet) - at} are left"
            )
        bodies.append(packet[at : at + size])
        at += size
    return BatchReadResponse(status, ledger_id, entry_id, request_id, tuple(bodies))
