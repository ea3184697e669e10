"""The adds of one connection: requests to runs, answers to bytes.

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

    from bookie.api import EntryBody
    from bookie.net.requests import ServedBookie
    from bookie.net.statistics import ServerStatistics

_unpack_ids: Final = Struct(">qq").unpack_from
_IDS_SIZE_BYTES: Final = 16
_RUN_ENTRIES_MAX: Final = 1_000


@final
class ConnectionAdds:
    """The AddSink of a connection. `on_answers` is told of bytes that can be sent."""

    __slots__ = (
        "_bodies",
        "_bookie",
        "_first",
        "_flags",
        "_key",
        "_ledger_id",
        "_on_answers",
        "_sizes",
        "_statistics",
        "_txn_ids",
        "answers",
        "bytes_pending",
    )

    def __init__(
        self, bookie: ServedBookie, statistics: ServerStatistics, on_answers: Callable[[], None]
    ) -> None:
        self._bookie = bookie
        self._statistics = statistics
        self._on_answers = on_answers
        self.bytes_pending = 0
        self.answers: list[bytes] = []
        self._sizes: dict[int, deque[int]] = {}
        """Sizes of the unanswered entries, by ledger. A refusal may overtake an entry that waits
        for room; their sum is right all the same."""
        self._txn_ids: dict[tuple[int, int], deque[int]] = {}
        self._bodies: list[EntryBody] = []
        """The run under way: consecutive entries from `_first` on."""
        self._ledger_id = 0
        self._first = 0
        self._key = b""
        self._flags = 0

    def take(self, request: m.AddRequest) -> None:
        """Add an entry to the run under way, or end that and begin another."""
        ledger_id, entry_id, body = request.ledger_id, request.entry_id, request.body
        if request.txn_id is not None and not self._take_v3(request):
            return
        bodies = self._bodies
        if bodies and not (
            ledger_id == self._ledger_id
            and entry_id == self._first + len(bodies)
            and request.flags == self._flags
            and request.master_key == self._key
            and len(bodies) < _RUN_ENTRIES_MAX
        ):
            self.end_run()
            bodies = self._bodies
        if not bodies:
            self._ledger_id, self._first = ledger_id, entry_id
            self._key, self._flags = request.master_key, request.flags
        bodies.append((body, b""))
        size = len(body)
        self.bytes_pending += size
        sizes = self._sizes.get(ledger_id)
        if sizes is None:
            sizes = self._sizes[ledger_id] = deque()
        sizes.append(size)

    def _take_v3(self, request: m.AddRequest) -> bool:
        """Whether the body is an entry with the ids of the request, which the bookie stores it by.
        BookKeeper stores it by the ids in the body, whatever the request says."""
        assert request.txn_id is not None
        ids = (request.ledger_id, request.entry_id)
        if len(request.body) < _IDS_SIZE_BYTES or _unpack_ids(request.body) != ids:
            refused = m.AddResponse(m.BAD_REQUEST, *ids, request.txn_id)
            self.answers.append(v3.encode_response(refused))
            self._on_answers()
            return False
        self._txn_ids.setdefault(ids, deque()).append(request.txn_id)
        return True

    def end_run(self) -> None:
        """Hand the run under way to the bookie: a request of another kind follows, or none."""
        bodies = self._bodies
        if bodies:
            self._bodies = []
            self._bookie.add_entries(
                self._ledger_id, self._first, bodies, self._key, self._flags, self
            )

    def on_add_replies(self, status: int, ledger_id: int, first_entry_id: int, count: int) -> None:
        """See AddSink."""
        statistics = self._statistics
        statistics.adds += count
        if status:
            statistics.adds_refused += count
        sizes = self._sizes[ledger_id]
        popped = sizes.popleft
        for _ in range(count):
            self.bytes_pending -= popped()
        if not sizes:
            del self._sizes[ledger_id]
        encode = v2.encode_add_response
        answers = self.answers
        for entry_id in range(first_entry_id, first_entry_id + count):
            if self._txn_ids:
                answers.append(self._answer_v3(status, ledger_id, entry_id))
            else:
                answers.append(encode(status, ledger_id, entry_id))

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
        self._on_answers()
