"""A bookie behind a real port that stores what it is given, and lies about it."""

from __future__ import annotations

from contextlib import asynccontextmanager
from struct import Struct

import trio

from bookie.api import LAST_ENTRY, Status
from protocol.bookkeeper import v2
from protocol.bookkeeper.digests import Digest, DigestType, entry_metadata
from protocol.bookkeeper.messages import AddRequest, BatchReadRequest, ReadRequest
from protocol.bookkeeper.packets import PacketDecoder

_ADDED = Struct(">IIIqq")
_HEAD_SIZE_BYTES = 36


def added(ledger_id, entry_id, status=0, operation=v2.ADD, version=v2.VERSION):
    """The answer to an add."""
    return _ADDED.pack(24, version << 24 | operation << 16, status, ledger_id, entry_id)


def restated(body, **changes):
    """An entry whose head says something else, with a digest that matches."""
    ledger_id, entry_id, confirmed, length = entry_metadata(body)
    head = {"ledger_id": ledger_id, "entry_id": entry_id, "confirmed": confirmed, **changes}
    payload = body[_HEAD_SIZE_BYTES:]
    return Digest(DigestType.CRC32C).head(*head.values(), length, payload) + payload


class LyingBookie:
    """`on_add(ledger id, entry id)` returns the bytes of the answer. `on_read(body, is_last)`
    returns a status and a body; None: no answer. `greeting` is sent again and again instead."""

    def __init__(self):
        self.on_add = added
        self.on_read = lambda body, is_last: (Status.OK, body)
        self.greeting = b""
        self.entries = {}

    async def serve(self, stream):
        packets = PacketDecoder()
        try:
            while self.greeting:
                await stream.send_all(self.greeting)
            while data := await stream.receive_some(1 << 20):
                answers = [self._answer(v2.decode_request(each)) for each in packets.feed(data)]
                await stream.send_all(b"".join(answers))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return  # the client has left

    def _answer(self, request):
        if isinstance(request, AddRequest):
            self.entries[request.ledger_id, request.entry_id] = request.body
            return self.on_add(request.ledger_id, request.entry_id)
        ledger_id, entry_id = request.ledger_id, request.entry_id
        found = self._read(ledger_id, entry_id)
        if found is None:
            return b""
        status, body = found
        if isinstance(request, ReadRequest):
            return v2.encode_read_response_head(status, ledger_id, entry_id, len(body)) + body
        assert isinstance(request, BatchReadRequest)
        bodies = [body] if status == Status.OK else []
        return b"".join(
            v2.encode_batch_read_response(status, ledger_id, entry_id, request.request_id, bodies)
        )

    def _read(self, ledger_id, entry_id):
        last = max((each[1] for each in self.entries if each[0] == ledger_id), default=-1)
        body = self.entries.get((ledger_id, last if entry_id == LAST_ENTRY else entry_id))
        if body is None:
            return Status.NO_ENTRY, b""
        return self.on_read(body, entry_id == LAST_ENTRY)


@asynccontextmanager
async def lying_bookie():
    """(bookie, its id), while it serves."""
    bookie = LyingBookie()
    async with trio.open_nursery() as nursery:
        [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, bookie.serve, [listener])
        yield bookie, f"127.0.0.1:{listener.socket.getsockname()[1]}"
        nursery.cancel_scope.cancel()
