"""The adds of one connection: runs to the bookie, its replies to bytes.

Consecutive entries of one ledger that arrived together go to the bookie as one run, and are
answered as the bookie groups its replies. An add is not queued with the reads of its connection.

Version 2 answers are made from the reply alone. Version 3 answers need the transaction id of the
request, found by ledger and entry id; requests for the same entry are answered in their order.

`bytes_pending` bounds memory: what was taken and not answered yet. The bookie holds these bytes.

A deferred sync (version 3) is honoured as an ordinary add: it is answered after the sync, which
is later than its client allows for, never earlier.
"""

from __future__ import annotations

from collections import deque
from struct import Struct
from typing import TYPE_CHECKING, Final, final

from bookie.api import Status
from protocol.bookkeeper import messages as m
from protocol.bookkeeper import v2, v3

if TYPE_CHECKING:
    from collections.abc import Callable

    from bookie.net.requests import ServedBookie
    from bookie.net.statistics import ServerStatistics
    from protocol.bookkeeper.request_runs import AddRun

_unpack_ids: Final = Struct(">qq").unpack_from
_IDS_SIZE_BYTES: Final = 16


@final
class _Pending:
    """Entries of one ledger without an answer."""

    __slots__ = ("count", "size_bytes")

    def __init__(self) -> None:
        self.count = 0
        self.size_bytes = 0


@final
class ConnectionAdds:
    """The AddSink of a connection. `send` is called with answers, at the end of each group."""

    __slots__ = (
        "_answers",
        "_bookie",
        "_pending",
        "_send",
        "_statistics",
        "_txn_ids",
        "bytes_pending",
    )

    def __init__(
        self,
        bookie: ServedBookie,
        statistics: ServerStatistics,
        send: Callable[[list[bytes]], None],
    ) -> None:
        self._bookie = bookie
        self._statistics = statistics
        self._send = send
        self.bytes_pending = 0
        self._answers: list[bytes] = []
        self._pending: dict[int, _Pending] = {}
        """By ledger. Replies say how many entries they are for and not which: a refusal may
        overtake an entry that waits for room. So bytes are counted down by the mean size."""
        self._txn_ids: dict[tuple[int, int], deque[int]] = {}

    def take(self, run: AddRun) -> None:
        """Adds of version 2."""
        count = len(run.bodies)
        self._count(run.ledger_id, count, run.size_bytes)
        self._bookie.add_entries(
            run.ledger_id, run.first_entry_id, run.bodies, run.master_key, run.flags, self
        )

    def take_v3(self, request: m.AddRequest) -> None:
        """An add of version 3. Its body must be an entry with the ids of the request, which the
        bookie stores it by. BookKeeper stores it by the ids in the body, whatever the request
        says."""
        assert request.txn_id is not None
        ids = (request.ledger_id, request.entry_id)
        if len(request.body) < _IDS_SIZE_BYTES or _unpack_ids(request.body) != ids:
            refused = m.AddResponse(m.BAD_REQUEST, *ids, request.txn_id)
            self._send([v3.encode_response(refused)])
            return
        self._txn_ids.setdefault(ids, deque()).append(request.txn_id)
        self._count(request.ledger_id, 1, len(request.body))
        body = (request.body, b"")
        self._bookie.add_entries(*ids, [body], request.master_key, request.flags, self)

    def _count(self, ledger_id: int, count: int, size_bytes: int) -> None:
        self.bytes_pending += size_bytes
        pending = self._pending.get(ledger_id)
        if pending is None:
            pending = self._pending[ledger_id] = _Pending()
        pending.count += count
        pending.size_bytes += size_bytes

    def on_add_replies(self, status: int, ledger_id: int, first_entry_id: int, count: int) -> None:
        """See AddSink."""
        statistics = self._statistics
        statistics.adds += count
        if status:
            statistics.adds_refused += count
        pending = self._pending[ledger_id]
        size_bytes = pending.size_bytes * count // pending.count
        self.bytes_pending -= size_bytes
        pending.count -= count
        pending.size_bytes -= size_bytes
        if not pending.count:
            del self._pending[ledger_id]
        if self._txn_ids:
            for entry_id in range(first_entry_id, first_entry_id + count):
                self._answers.append(self._answer_v3(status, ledger_id, entry_id))
        else:
            self._answers.append(v2.encode_add_responses(status, ledger_id, first_entry_id, count))

    def _answer_v3(self, status: int, ledger_id: int, entry_id: int) -> bytes:
        txn_ids = self._txn_ids.get((ledger_id, entry_id))
        if txn_ids is None:  # the connection went on in version 2
            return v2.encode_add_response(status, ledger_id, entry_id)
        txn_id = txn_ids.popleft()
        if not txn_ids:
            del self._txn_ids[ledger_id, entry_id]
        return v3.encode_response(m.AddResponse(Status(status), ledger_id, entry_id, txn_id))

    def on_replies_end(self) -> None:
        """See AddSink."""
        answers, self._answers = self._answers, []
        self._send(answers)
