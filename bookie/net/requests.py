"""The answers of the TCP port to the requests of BookKeeper's wire protocols, except adds.

Adds have a path of their own (`bookie.net.adds`), so that they never wait for reads. What may be
changed is decided by the bookie that is served: `bookie.net.read_only` refuses every change.

- A fence is durable before its read is answered, also when the entry is not there. BookKeeper does
  not wait then, and forgets the fence in a crash at that moment.
- Every request is answered, because a version 2 client matches answers by their order.

Source: the answers of BookKeeper 4.17 in Apache Pulsar 4.0.8 (`compat_tests/bookie_probes.py`).
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final, Protocol, final

import trio

from bookie.api import FLAG_FENCING, LAST_ENTRY, BookieError, Status
from bookie.net.refusals import read_refusal
from protocol.bookkeeper import bookkeeper_pb2 as pb
from protocol.bookkeeper import messages as m
from protocol.bookkeeper import v2, v3
from protocol.bookkeeper.availability import Availability, encode_availability
from protocol.bookkeeper.digests import INVALID_ENTRY_ID, DigestMismatch, entry_metadata

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from bookie.api import AddSink, EntryBody, LedgerProgress
    from bookie.net.long_polls import LongPolls
    from bookie.net.statistics import ServerStatistics

LONG_POLL_SECONDS_MAX: Final = 30.0
_READ_ENTRIES_MAX: Final = 10_000
"""Maximum number of entries per storage call, however small they are."""
_FILLED_EXACTLY_BYTES: Final = 128 * 1024
_ABSENT: Final = frozenset({Status.NO_LEDGER, Status.NO_ENTRY})
_REFUSED: Final = frozenset({Status.UNAUTHORIZED, Status.READ_ONLY})
_EXPLICIT_LAC: Final = Struct(">qq")
_EXPLICIT_LAC_BYTES_MAX: Final = 64
"""Two ids and the largest digest take 36."""
_TOTAL_DISK: Final = 0x1
_FREE_DISK: Final = 0x2
BATCH_PARTS_MAX: Final = 8
"""Answers of the storage in one batch: each may end early, to bound how long it takes
(`LedgerStorage.read_run`)."""


class ServedBookie(Protocol):
    """The part of a bookie that the port uses; see `bookie.bookie.Bookie`."""

    def read_nowait(self, ledger_id: int, entry_id: int) -> bytes | None:
        """An entry that is in memory. None does not prove that it is absent."""

    async def read_entry(
        self, ledger_id: int, entry_id: int, *, flags: int = 0, master_key: bytes = b""
    ) -> bytes:
        """See BookieApi."""

    async def read_batch(
        self, ledger_id: int, first_entry_id: int, count_max: int, size_bytes_max: int
    ) -> list[bytes]:
        """See BookieApi."""

    async def last_entry_id(self, ledger_id: int) -> int:
        """Raises: BookieError."""

    async def list_entry_ids(self, ledger_id: int) -> list[int]:
        """Raises: BookieError."""

    def add_entries(
        self,
        ledger_id: int,
        first_entry_id: int,
        bodies: list[EntryBody],
        master_key: bytes,
        flags: int,
        sink: AddSink,
    ) -> None:
        """See BookieApi."""

    async def fence_ledger(self, ledger_id: int, master_key: bytes) -> None:
        """See BookieApi."""

    async def force_ledger(self, ledger_id: int) -> None:
        """See BookieApi."""

    async def write_explicit_lac(self, ledger_id: int, body: bytes, master_key: bytes) -> None:
        """Raises: BookieError."""

    def explicit_lac(self, ledger_id: int) -> bytes:
        """Raises: BookieError."""

    def progress_of(self, ledger_id: int) -> LedgerProgress:
        """For a reader that waits for more of a ledger."""

    def free_and_total_bytes(self) -> tuple[int, int]:
        """Disk space."""


@final
class RequestAnswers:
    """Requests in, buffers to send out; one for all connections."""

    def __init__(
        self,
        bookie: ServedBookie,
        batch_read_bytes_max: int,
        reads_at_once: int,
        statistics: ServerStatistics,
    ) -> None:
        self._bookie = bookie
        self._batch_read_bytes_max = batch_read_bytes_max
        self.storage = trio.CapacityLimiter(reads_at_once)
        self._statistics = statistics

    def answer_now(self, request: m.Request) -> list[bytes] | None:
        """The answer to a plain version 2 read of an entry in memory, else None."""
        if not isinstance(request, m.ReadRequest) or request.txn_id is not None:
            return None
        ledger_id, entry_id = request.ledger_id, request.entry_id
        if request.flags & m.FENCING or entry_id < 0:
            return None
        body = self._bookie.read_nowait(ledger_id, entry_id)
        if body is None:
            return None
        statistics = self._statistics
        statistics.reads += 1
        statistics.entries += 1
        statistics.entry_bytes += len(body)
        return [v2.encode_read_response_head(m.OK, ledger_id, entry_id, len(body)), body]

    async def answer(self, request: m.Request) -> list[bytes]:
        """The answer, as consecutive buffers."""
        match request:
            case m.ReadRequest():
                return await self._read(request)
            case m.BatchReadRequest():
                return await self._batch_read(request)
            case m.ReadLacRequest(ledger_id, txn_id):
                return [v3.encode_response(await self._read_lac(ledger_id, txn_id))]
            case m.ListEntriesRequest(ledger_id, txn_id):
                return [v3.encode_response(await self._list_entries(ledger_id, txn_id))]
            case m.BookieInfoRequest(requested, txn_id):
                free, total = self._bookie.free_and_total_bytes()
                info = m.BookieInfoResponse(
                    m.OK,
                    txn_id,
                    total if requested & _TOTAL_DISK else None,
                    free if requested & _FREE_DISK else None,
                )
                return [v3.encode_response(info)]
            case m.AuthRequest(_, _, txn_id):
                if txn_id is None:
                    return [v2.encode_auth_response(m.AUTH_DISABLED_PLUGIN)]
                disabled = m.AuthResponse(m.OK, m.AUTH_DISABLED_PLUGIN, b"", txn_id)
                return [v3.encode_response(disabled)]
            case m.WriteLacRequest(ledger_id, _, _, _, txn_id):
                status = await self._write_lac(request)
                return [v3.encode_response(m.WriteLacResponse(status, ledger_id, txn_id))]
            case m.ForceLedgerRequest(ledger_id, txn_id):
                status = await self._status_of(self._bookie.force_ledger(ledger_id))
                return [v3.encode_response(m.ForceLedgerResponse(status, ledger_id, txn_id))]
            case m.StartTlsRequest(txn_id):
                self._statistics.requests_refused += 1
                return [v3.encode_error_response(pb.START_TLS, m.BAD_REQUEST, txn_id)]
            case m.UnknownRequest(operation, txn_id):
                self._statistics.requests_refused += 1
                return [v3.encode_error_response(operation, m.BAD_REQUEST, txn_id)]
            case _:
                raise AssertionError(f"{type(request).__name__} is answered elsewhere")

    async def _write_lac(self, request: m.WriteLacRequest) -> int:
        if len(request.body) > _EXPLICIT_LAC_BYTES_MAX:
            return m.BAD_REQUEST
        return await self._status_of(
            self._bookie.write_explicit_lac(request.ledger_id, request.body, request.master_key)
        )

    async def _status_of(self, change: Awaitable[None]) -> int:
        try:
            await change
        except BookieError as error:
            self._statistics.requests_refused += error.status in _REFUSED
            return error.status
        return m.OK

    def overloaded(self, request: m.Request) -> list[bytes]:
        """TOO_MANY_REQUESTS, for a read."""
        self._statistics.reads += 1
        self._statistics.reads_overloaded += 1
        assert isinstance(request, m.ReadRequest | m.BatchReadRequest)
        return read_refusal(request, m.TOO_MANY_REQUESTS)

    async def _read(self, request: m.ReadRequest) -> list[bytes]:
        self._statistics.reads += 1
        ledger_id, entry_id, txn_id = request.ledger_id, request.entry_id, request.txn_id
        max_lac: int | None = None
        try:
            if request.flags & FLAG_FENCING:
                await self._bookie.fence_ledger(ledger_id, request.master_key)
            async with self.storage:
                if request.previous_lac is not None and not request.flags & FLAG_FENCING:
                    return [v3.encode_response(await self._long_poll(request))]
                body = await self._entry(ledger_id, entry_id)
                if txn_id is not None:
                    max_lac = await self._last_add_confirmed(ledger_id)
        except BookieError as error:
            return self._failed_read(request, error)
        self._given([body])
        if txn_id is None:
            return [v2.encode_read_response_head(m.OK, ledger_id, entry_id, len(body)), body]
        response = m.ReadResponse(m.OK, ledger_id, entry_id, body, txn_id, max_lac)
        return [v3.encode_response(response)]

    async def _entry(self, ledger_id: int, entry_id: int) -> bytes:
        if entry_id >= LAST_ENTRY:
            return await self._bookie.read_entry(ledger_id, entry_id)
        await self._bookie.last_entry_id(ledger_id)  # raises for a ledger that is not here
        raise BookieError(Status.NO_ENTRY, f"no entry has the id {entry_id}")

    async def _batch_read(self, request: m.BatchReadRequest) -> list[bytes]:
        self._statistics.reads += 1
        self._statistics.batch_reads += 1
        try:
            if request.flags & FLAG_FENCING:
                await self._bookie.fence_ledger(request.ledger_id, request.master_key)
            async with self.storage:
                bodies = await self._run(request)
        except BookieError as error:
            return self._failed_read(request, error)
        self._given(bodies)
        return v2.encode_batch_read_response(
            m.OK, request.ledger_id, request.entry_id, request.request_id, bodies
        )

    async def _run(self, request: m.BatchReadRequest) -> list[bytes]:
        """Consecutive entries, up to the first missing one, as many as fit and are found in
        `BATCH_PARTS_MAX` parts; at least one."""
        ledger_id, entry_id = request.ledger_id, request.entry_id
        if entry_id < 0:
            return [await self._entry(ledger_id, entry_id)]
        count_max = request.count_max if request.count_max > 0 else _READ_ENTRIES_MAX
        count_max = min(count_max, _READ_ENTRIES_MAX)
        room = min(request.size_bytes_max, self._batch_read_bytes_max)
        room -= v2.BATCH_READ_OVERHEAD_BYTES
        # The last bytes of a large answer do not justify another storage read.
        enough = room // 16 if room > _FILLED_EXACTLY_BYTES else 0
        bodies: list[bytes] = []
        parts = 0
        while len(bodies) < count_max and (room > enough or not bodies):
            if parts == BATCH_PARTS_MAX:
                break
            parts += 1
            try:
                found = await self._bookie.read_batch(
                    ledger_id, entry_id + len(bodies), count_max - len(bodies), max(room, 0)
                )
            except BookieError:
                if not bodies:
                    raise
                break
            for body in found:
                room -= v2.BATCH_READ_ENTRY_OVERHEAD_BYTES + len(body)
                if room < 0 and bodies:
                    break
                bodies.append(body)
        return bodies

    async def _last_add_confirmed(self, ledger_id: int) -> int:
        """Last add confirmed, from the last entry here or from the writer's explicit record."""
        explicit = self._bookie.explicit_lac(ledger_id)
        known = _EXPLICIT_LAC.unpack_from(explicit)[1] if len(explicit) >= 16 else INVALID_ENTRY_ID
        body = await self._bookie.read_entry(ledger_id, LAST_ENTRY)
        try:
            return max(known, entry_metadata(body)[2])
        except DigestMismatch as error:
            raise BookieError(Status.IO_ERROR, str(error)) from error

    def is_long_poll(self, request: m.Request) -> bool:
        """Whether the answer may take long although storage is not slow."""
        return (
            isinstance(request, m.ReadRequest)
            and request.previous_lac is not None
            and request.timeout_ms > 0
            and not request.flags & FLAG_FENCING
        )

    async def answer_long_poll(
        self, request: m.ReadRequest, polls: LongPolls, wait: trio.CancelScope
    ) -> list[bytes]:
        """As `answer`, but waits until the last add confirmed is beyond the one the reader knows,
        the ledger is fenced, or its timeout ends. Cancelling `wait` ends the wait."""
        assert request.previous_lac is not None
        ledger_id = request.ledger_id
        wait.deadline = trio.current_time() + min(request.timeout_ms / 1000, LONG_POLL_SECONDS_MAX)
        progress = self._bookie.progress_of(ledger_id)
        with wait:
            while await self._is_known(ledger_id, request.previous_lac) and not progress.is_over:
                progress = await polls.change(ledger_id, progress)
        return await self.answer(request)

    async def _is_known(self, ledger_id: int, last_add_confirmed: int) -> bool:
        """Whether no more than this is confirmed."""
        try:
            async with self.storage:
                return await self._last_add_confirmed(ledger_id) <= last_add_confirmed
        except BookieError:
            return False

    async def _long_poll(self, request: m.ReadRequest) -> m.ReadResponse:
        """The current state: the entry after the last add confirmed that the reader knows."""
        assert request.previous_lac is not None
        ledger_id, txn_id = request.ledger_id, request.txn_id
        known = await self._last_add_confirmed(ledger_id)
        if known <= request.previous_lac:
            return m.ReadResponse(m.OK, ledger_id, request.entry_id, b"", txn_id, known)
        entry_id = request.previous_lac + 1 if request.is_piggyback else request.entry_id
        body = await self._entry(ledger_id, entry_id)
        self._given([body])
        return m.ReadResponse(m.OK, ledger_id, entry_id, body, txn_id, known)

    async def _read_lac(self, ledger_id: int, txn_id: int) -> m.ReadLacResponse:
        last: bytes | None = None
        try:
            explicit = self._bookie.explicit_lac(ledger_id) or None
            async with self.storage:
                last = await self._bookie.read_entry(ledger_id, LAST_ENTRY)
        except BookieError as error:
            if error.status != Status.NO_ENTRY or not explicit:
                return m.ReadLacResponse(error.status, ledger_id, txn_id)
        return m.ReadLacResponse(m.OK, ledger_id, txn_id, explicit, last)

    async def _list_entries(self, ledger_id: int, txn_id: int) -> m.ListEntriesResponse:
        try:
            async with self.storage:
                entry_ids = await self._bookie.list_entry_ids(ledger_id)
        except BookieError as error:
            return m.ListEntriesResponse(error.status, ledger_id, txn_id)
        encoded = encode_availability(Availability.of(entry_ids))
        return m.ListEntriesResponse(m.OK, ledger_id, txn_id, encoded)

    def _given(self, bodies: list[bytes]) -> None:
        self._statistics.entries += len(bodies)
        self._statistics.entry_bytes += sum(map(len, bodies))

    def _failed_read(
        self, request: m.ReadRequest | m.BatchReadRequest, error: BookieError
    ) -> list[bytes]:
        statistics = self._statistics
        if error.status in _ABSENT:
            statistics.reads_absent += 1
        elif error.status in _REFUSED:
            statistics.requests_refused += 1
        elif error.status is Status.TOO_MANY_REQUESTS:
            statistics.reads_overloaded += 1
        else:
            statistics.reads_failed += 1
        return read_refusal(request, error.status)


def is_read(request: m.Request) -> bool:
    """Whether it requests entries, which the bound on pending reads counts."""
    return isinstance(request, m.ReadRequest | m.BatchReadRequest)
