"""Wire protocol version 3: protobuf, with transaction ids, used by BookKeeper's own tools.

Pulsar's brokers use it beside version 2 for what version 2 lacks. Not a hot path: a message is
parsed into protobuf and from there into the tuples of `messages`, statuses and flags translated.
Encoders return the packet with its size prefix.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from google.protobuf.message import DecodeError

from protocol.bookkeeper import bookkeeper_pb2 as pb
from protocol.bookkeeper import messages as m
from protocol.bookkeeper.v2 import auth_plugin
from protocol.errors import LocalProtocolError, RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Mapping

HIGH_PRIORITY: Final = 100
"""Priority a client gives to repairs; a bookie takes any above 0 as high."""

DEFERRED_SYNC: Final = 0x1

_U32: Final = Struct(">I")

_STATUS_TO_WIRE: Final[Mapping[int, pb.StatusCode]] = {
    m.OK: pb.EOK,
    m.NO_LEDGER: pb.ENOLEDGER,
    m.NO_ENTRY: pb.ENOENTRY,
    m.BAD_REQUEST: pb.EBADREQ,
    m.IO_ERROR: pb.EIO,
    m.UNAUTHORIZED: pb.EUA,
    m.BAD_VERSION: pb.EBADVERSION,
    m.FENCED: pb.EFENCED,
    m.READ_ONLY: pb.EREADONLY,
    m.TOO_MANY_REQUESTS: pb.ETOOMANYREQUESTS,
    m.UNKNOWN_LEDGER_STATE: pb.EUNKNOWNLEDGERSTATE,
}
_STATUS_FROM_WIRE: Final[Mapping[int, int]] = {
    wire: status for status, wire in _STATUS_TO_WIRE.items()
}
_READ_FLAG: Final = pb.ReadRequest.Flag


# Server side: requests in, responses out.


def decode_request(packet: bytes) -> m.Request | None:
    """The request in a packet without its size prefix; None: it is no version 3 request."""
    request = pb.Request()
    try:
        request.ParseFromString(packet)
    except DecodeError:
        return None
    if not request.IsInitialized():
        return None
    return _from_wire(request)


def _from_wire(request: pb.Request) -> m.Request:
    operation, txn_id = request.header.operation, request.header.txnId
    match operation:
        case pb.ADD_ENTRY if request.HasField("addRequest"):
            return _add_from_wire(request)
        case pb.READ_ENTRY if request.HasField("readRequest"):
            return _read_from_wire(request)
        case pb.AUTH if request.HasField("authRequest"):
            auth = request.authRequest
            return m.AuthRequest(auth_plugin(auth), auth.payload, txn_id)
        case pb.WRITE_LAC if request.HasField("writeLacRequest"):
            lac = request.writeLacRequest
            return m.WriteLacRequest(lac.ledgerId, lac.lac, lac.body, lac.masterKey, txn_id)
        case pb.READ_LAC if request.HasField("readLacRequest"):
            return m.ReadLacRequest(request.readLacRequest.ledgerId, txn_id)
        case pb.FORCE_LEDGER if request.HasField("forceLedgerRequest"):
            return m.ForceLedgerRequest(request.forceLedgerRequest.ledgerId, txn_id)
        case pb.GET_BOOKIE_INFO if request.HasField("getBookieInfoRequest"):
            return m.BookieInfoRequest(request.getBookieInfoRequest.requested, txn_id)
        case pb.GET_LIST_OF_ENTRIES_OF_LEDGER if request.HasField(
            "getListOfEntriesOfLedgerRequest"
        ):
            ledger_id = request.getListOfEntriesOfLedgerRequest.ledgerId
            return m.ListEntriesRequest(ledger_id, txn_id)
        case pb.START_TLS:
            return m.StartTlsRequest(txn_id)
        case _:
            return m.UnknownRequest(operation, txn_id)


def _add_from_wire(request: pb.Request) -> m.AddRequest:
    add = request.addRequest
    flags = m.HIGH_PRIORITY if request.header.priority > 0 else 0
    if add.HasField("flag"):
        flags |= m.RECOVERY_ADD
    return m.AddRequest(
        add.ledgerId,
        add.entryId,
        add.body,
        add.masterKey,
        flags,
        request.header.txnId,
        bool(add.writeFlags & DEFERRED_SYNC),
    )


def _read_from_wire(request: pb.Request) -> m.ReadRequest:
    read = request.readRequest
    flags = m.HIGH_PRIORITY if request.header.priority > 0 else 0
    has_flag = read.HasField("flag")
    is_fencing = has_flag and read.flag == _READ_FLAG.FENCE_LEDGER
    is_long_poll = read.HasField("previousLAC") and not is_fencing
    return m.ReadRequest(
        read.ledgerId,
        read.entryId,
        flags | (m.FENCING if is_fencing else 0),
        read.masterKey,
        request.header.txnId,
        read.previousLAC if is_long_poll else None,
        max(0, read.timeOut),
        has_flag and read.flag == _READ_FLAG.ENTRY_PIGGYBACK,
    )


def encode_response(response: m.Response) -> bytes:
    """Any response that version 3 has; its `txn_id` is that of the request.

    Raises: LocalProtocolError: version 3 has no such response.
    """
    match response:
        case m.AddResponse(status, ledger_id, entry_id, txn_id):
            out = _response(pb.ADD_ENTRY, status, txn_id)
            out.addResponse.status = out.status
            out.addResponse.ledgerId = ledger_id
            out.addResponse.entryId = entry_id
        case m.ReadResponse():
            out = _read_to_wire(response)
        case m.AuthResponse(status, plugin, payload, txn_id):
            out = _response(pb.AUTH, status, txn_id)
            out.authResponse.authPluginName = plugin
            out.authResponse.payload = payload
        case m.WriteLacResponse(status, ledger_id, txn_id):
            out = _response(pb.WRITE_LAC, status, txn_id)
            out.writeLacResponse.status = out.status
            out.writeLacResponse.ledgerId = ledger_id
        case m.ReadLacResponse():
            out = _read_lac_to_wire(response)
        case m.ForceLedgerResponse(status, ledger_id, txn_id):
            out = _response(pb.FORCE_LEDGER, status, txn_id)
            out.forceLedgerResponse.status = out.status
            out.forceLedgerResponse.ledgerId = ledger_id
        case m.BookieInfoResponse():
            out = _bookie_info_to_wire(response)
        case m.ListEntriesResponse(status, ledger_id, txn_id, availability):
            out = _response(pb.GET_LIST_OF_ENTRIES_OF_LEDGER, status, txn_id)
            entries = out.getListOfEntriesOfLedgerResponse
            entries.status = out.status
            entries.ledgerId = ledger_id
            if availability:
                entries.availabilityOfEntriesOfLedger = availability
        case m.StartTlsResponse(status, txn_id):
            out = _response(pb.START_TLS, status, txn_id)
            out.startTLSResponse.SetInParent()
        case _:
            raise LocalProtocolError(f"version 3 has no {type(response).__name__}")
    return _packet(out)


def encode_error_response(operation: int, status: int, txn_id: int) -> bytes:
    """An answer with nothing but a status, for UnknownRequest."""
    return _packet(_response(pb.OperationType.Name(operation), status, txn_id))


def _response(operation: pb.OperationType | str, status: int, txn_id: int | None) -> pb.Response:
    if txn_id is None:
        raise LocalProtocolError("a version 3 response needs the transaction id of its request")
    return pb.Response(
        header=pb.BKPacketHeader(version=pb.VERSION_THREE, operation=operation, txnId=txn_id),
        status=_STATUS_TO_WIRE[status],
    )


def _read_to_wire(response: m.ReadResponse) -> pb.Response:
    out = _response(pb.READ_ENTRY, response.status, response.txn_id)
    read = out.readResponse
    read.status = out.status
    read.ledgerId = response.ledger_id
    read.entryId = response.entry_id
    if response.body:
        read.body = response.body
    if response.max_lac is not None:
        read.maxLAC = response.max_lac
    if response.lac_updated_ms is not None:
        read.lacUpdateTimestamp = response.lac_updated_ms
    return out


def _read_lac_to_wire(response: m.ReadLacResponse) -> pb.Response:
    out = _response(pb.READ_LAC, response.status, response.txn_id)
    lac = out.readLacResponse
    lac.status = out.status
    lac.ledgerId = response.ledger_id
    if response.lac_body is not None:
        lac.lacBody = response.lac_body
    if response.last_entry_body is not None:
        lac.lastEntryBody = response.last_entry_body
    return out


def _bookie_info_to_wire(response: m.BookieInfoResponse) -> pb.Response:
    out = _response(pb.GET_BOOKIE_INFO, response.status, response.txn_id)
    info = out.getBookieInfoResponse
    info.status = out.status
    if response.total_bytes is not None:
        info.totalDiskCapacity = response.total_bytes
    if response.free_bytes is not None:
        info.freeDiskSpace = response.free_bytes
    return out


def _packet(message: pb.Request | pb.Response) -> bytes:
    encoded: bytes = message.SerializeToString()
    return _U32.pack(len(encoded)) + encoded


# Client side: requests out, responses in.


def encode_request(request: m.Request) -> bytes:
    """Any request that version 3 has; it needs a `txn_id`.

    Raises: LocalProtocolError: version 3 has no such request, or it has no transaction id.
    """
    match request:
        case m.AddRequest():
            out = _add_to_wire(request)
        case m.ReadRequest():
            out = _read_request_to_wire(request)
        case m.AuthRequest(plugin, payload, txn_id):
            out = _request(pb.AUTH, txn_id)
            out.authRequest.authPluginName = plugin
            out.authRequest.payload = payload
        case m.WriteLacRequest(ledger_id, last_add_confirmed, body, master_key, txn_id):
            out = _request(pb.WRITE_LAC, txn_id)
            lac = out.writeLacRequest
            lac.ledgerId = ledger_id
            lac.lac = last_add_confirmed
            lac.masterKey = master_key
            lac.body = body
        case m.ReadLacRequest(ledger_id, txn_id):
            out = _request(pb.READ_LAC, txn_id)
            out.readLacRequest.ledgerId = ledger_id
        case m.ForceLedgerRequest(ledger_id, txn_id):
            out = _request(pb.FORCE_LEDGER, txn_id)
            out.forceLedgerRequest.ledgerId = ledger_id
        case m.BookieInfoRequest(requested, txn_id):
            out = _request(pb.GET_BOOKIE_INFO, txn_id)
            out.getBookieInfoRequest.requested = requested
        case m.ListEntriesRequest(ledger_id, txn_id):
            out = _request(pb.GET_LIST_OF_ENTRIES_OF_LEDGER, txn_id)
            out.getListOfEntriesOfLedgerRequest.ledgerId = ledger_id
        case m.StartTlsRequest(txn_id):
            out = _request(pb.START_TLS, txn_id)
            out.startTLSRequest.SetInParent()
        case _:
            raise LocalProtocolError(f"version 3 has no {type(request).__name__}")
    return _packet(out)


def _request(operation: pb.OperationType, txn_id: int | None, flags: int = 0) -> pb.Request:
    if txn_id is None:
        raise LocalProtocolError("a version 3 request needs a transaction id")
    header = pb.BKPacketHeader(version=pb.VERSION_THREE, operation=operation, txnId=txn_id)
    if flags & m.HIGH_PRIORITY:
        header.priority = HIGH_PRIORITY
    return pb.Request(header=header)


def _add_to_wire(request: m.AddRequest) -> pb.Request:
    out = _request(pb.ADD_ENTRY, request.txn_id, request.flags)
    add = out.addRequest
    add.ledgerId = request.ledger_id
    add.entryId = request.entry_id
    add.masterKey = request.master_key
    add.body = request.body
    if request.is_deferred_sync:
        add.writeFlags = DEFERRED_SYNC
    if request.flags & m.RECOVERY_ADD:
        add.flag = pb.AddRequest.RECOVERY_ADD
    return out


def _read_request_to_wire(request: m.ReadRequest) -> pb.Request:
    out = _request(pb.READ_ENTRY, request.txn_id, request.flags)
    read = out.readRequest
    read.ledgerId = request.ledger_id
    read.entryId = request.entry_id
    if request.flags & m.FENCING:
        read.masterKey = request.master_key
        read.flag = _READ_FLAG.FENCE_LEDGER
    elif request.previous_lac is not None:
        read.previousLAC = request.previous_lac
        read.timeOut = request.timeout_ms
        if request.is_piggyback:
            read.flag = _READ_FLAG.ENTRY_PIGGYBACK
    return out


def decode_response(packet: bytes) -> m.Response:
    """The response in a packet without its size prefix. The inner status counts when the outer
    one is OK.

    Raises: RemoteProtocolError: it is none.
    """
    response = pb.Response()
    try:
        response.ParseFromString(packet)
    except DecodeError as error:
        raise RemoteProtocolError(f"no version 3 response: {error}") from error
    if not response.IsInitialized():
        raise RemoteProtocolError("version 3 response lacks required fields")
    return _response_from_wire(response)


def _response_from_wire(response: pb.Response) -> m.Response:
    txn_id = response.header.txnId
    if response.HasField("addResponse"):
        add = response.addResponse
        return m.AddResponse(_status(response, add.status), add.ledgerId, add.entryId, txn_id)
    if response.HasField("readResponse"):
        read = response.readResponse
        return m.ReadResponse(
            _status(response, read.status),
            read.ledgerId,
            read.entryId,
            read.body,
            txn_id,
            read.maxLAC if read.HasField("maxLAC") else None,
            read.lacUpdateTimestamp if read.HasField("lacUpdateTimestamp") else None,
        )
    if response.HasField("authResponse"):
        auth = response.authResponse
        return m.AuthResponse(_status(response), auth_plugin(auth), auth.payload, txn_id)
    if response.HasField("writeLacResponse"):
        write_lac = response.writeLacResponse
        status = _status(response, write_lac.status)
        return m.WriteLacResponse(status, write_lac.ledgerId, txn_id)
    if response.HasField("readLacResponse"):
        read_lac = response.readLacResponse
        return m.ReadLacResponse(
            _status(response, read_lac.status),
            read_lac.ledgerId,
            txn_id,
            read_lac.lacBody if read_lac.HasField("lacBody") else None,
            read_lac.lastEntryBody if read_lac.HasField("lastEntryBody") else None,
        )
    if response.HasField("forceLedgerResponse"):
        force = response.forceLedgerResponse
        return m.ForceLedgerResponse(_status(response, force.status), force.ledgerId, txn_id)
    if response.HasField("getBookieInfoResponse"):
        info = response.getBookieInfoResponse
        return m.BookieInfoResponse(
            _status(response, info.status),
            txn_id,
            info.totalDiskCapacity if info.HasField("totalDiskCapacity") else None,
            info.freeDiskSpace if info.HasField("freeDiskSpace") else None,
        )
    if response.HasField("getListOfEntriesOfLedgerResponse"):
        entries = response.getListOfEntriesOfLedgerResponse
        return m.ListEntriesResponse(
            _status(response, entries.status),
            entries.ledgerId,
            txn_id,
            entries.availabilityOfEntriesOfLedger,
        )
    if response.HasField("startTLSResponse"):
        return m.StartTlsResponse(_status(response), txn_id)
    return m.ErrorResponse(_status(response), txn_id)


def _status(response: pb.Response, inner: int = pb.EOK) -> int:
    return _STATUS_FROM_WIRE[response.status if response.status != pb.EOK else inner]
