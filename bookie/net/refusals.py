"""Answers that refuse a request, whatever it is, with the protocol's own status. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from protocol.bookkeeper import bookkeeper_pb2 as pb
from protocol.bookkeeper import messages as m
from protocol.bookkeeper import v2, v3
from protocol.bookkeeper.request_runs import AddRun
from protocol.errors import RemoteProtocolError

if TYPE_CHECKING:
    from protocol.bookkeeper.request_runs import Asked

_OPERATION: Final = {
    m.AddRequest: pb.ADD_ENTRY,
    m.AuthRequest: pb.AUTH,
    m.BookieInfoRequest: pb.GET_BOOKIE_INFO,
    m.ForceLedgerRequest: pb.FORCE_LEDGER,
    m.ListEntriesRequest: pb.GET_LIST_OF_ENTRIES_OF_LEDGER,
    m.ReadLacRequest: pb.READ_LAC,
    m.StartTlsRequest: pb.START_TLS,
    m.WriteLacRequest: pb.WRITE_LAC,
}


def refusal(asked: Asked, status: int) -> list[bytes]:
    """The answer, as consecutive buffers.

    Raises: RemoteProtocolError: version 2 has no refusal of this request.
    """
    if isinstance(asked, AddRun):
        count = len(asked.bodies)
        answers = v2.encode_add_responses(status, asked.ledger_id, asked.first_entry_id, count)
        return [answers]
    if isinstance(asked, m.ReadRequest | m.BatchReadRequest):
        return read_refusal(asked, status)
    if asked.txn_id is None:
        raise RemoteProtocolError(f"{type(asked).__name__} is refused")
    operation = asked.operation if isinstance(asked, m.UnknownRequest) else _OPERATION[type(asked)]
    return [v3.encode_error_response(operation, status, asked.txn_id)]


def read_refusal(request: m.ReadRequest | m.BatchReadRequest, status: int) -> list[bytes]:
    """The same, of a request for entries."""
    if isinstance(request, m.BatchReadRequest):
        return v2.encode_batch_read_response(
            status, request.ledger_id, request.entry_id, request.request_id
        )
    if request.txn_id is None:
        return [v2.encode_read_response_head(status, request.ledger_id, request.entry_id)]
    return [
        v3.encode_response(
            m.ReadResponse(status, request.ledger_id, request.entry_id, b"", request.txn_id)
        )
    ]
