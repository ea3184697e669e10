"""Writes one ledger to several bookies: striped, confirmed in order, going on when bookies fail.

Every entry goes to the W bookies of its write set. `EnsembleAcks` knows how far the ledger is
acknowledged. Entries that are not confirmed, or that a bookie has not answered, are kept for
sending again.

A bookie that fails loses its place in the ensemble to another one (`ensemble_change`). All
unconfirmed entries of the place are then sent to its new bookie, and to no other. During the change
nothing is confirmed. Answers of a bookie that lost its place count for nothing, however late they
come.

A bookie without room (TOO_MANY_REQUESTS) has not failed. Its entries are sent again later, as
`HeldAdds` decides; the others of the ensemble go on. A bookie that stays too far behind the
confirmed entries loses its place. So does one that takes nothing for a time, if there is another
one: where every entry needs it, nothing is confirmed that it could be behind.

Invariants: `last_add_confirmed` only grows, by entries that A distinct bookies of the current
ensemble have. After the first failure of the writer, a fence or `close` it never moves again.

Source: LedgerHandle and PendingAddOp of BookKeeper.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, final

import structlog

from bookie.api import Status
from ledgers.ensemble_acks import EnsembleAcks
from ledgers.ensemble_change import EnsembleChange
from ledgers.entry_writer import EntryWriter, WriterListener
from ledgers.held_adds import HeldAdds
from ledgers.open_record import OpenRecord
from protocol.bookkeeper.digests import Digest, master_key

if TYPE_CHECKING:
    from bookie.api import BookieApi, EntryBody
    from ledgers.cluster import Cluster
    from metadata.store import MetadataStore
    from protocol.bookkeeper.ledger_metadata import LedgerMetadata

_log = structlog.get_logger()

_OK: Final = int(Status.OK)
_NO_ROOM: Final = int(Status.TOO_MANY_REQUESTS)
_FATAL: Final = frozenset({int(Status.FENCED), int(Status.UNAUTHORIZED)})
BEHIND_ENTRIES_MAX: Final = 10_000
BEHIND_BYTES_MAX: Final = 4 * 1024 * 1024
"""Confirmed entries, and their payload bytes, that a bookie without room may lack before it loses
its place. Those that it has not answered yet are bounded where they wait for the answer."""
REFUSALS_MAX: Final = 15
"""Windows that a bookie without room may refuse, one after the other (about 10 s), before it loses
its place to another one."""


@final
class QuorumWriter(EntryWriter):
    """See the module docstring."""

    __slots__ = (
        "_acks",
        "_change",
        "_cluster",
        "_digest",
        "_failure",
        "_is_stopped",
        "_kept_from",
        "_lengths",
        "_listener",
        "_master_key",
        "_places",
        "_record",
        "_runs",
        "metadata",
    )

    def __init__(
        self,
        store: MetadataStore,
        cluster: Cluster,
        ledger_id: int,
        metadata: LedgerMetadata,
        version: int,
        listener: WriterListener,
        delay_ensemble_change: bool = False,
    ) -> None:
        super().__init__(ledger_id)
        self.metadata = metadata
        self._cluster = cluster
        self._listener = listener
        self._digest = Digest(metadata.digest_type, metadata.password)
        self._master_key = master_key(metadata.password)
        self._acks = EnsembleAcks(
            metadata.ensemble_size, metadata.write_quorum_size, metadata.ack_quorum_size
        )
        self._record = OpenRecord(store, self, version)
        self._change = EnsembleChange(
            self, cluster, self._record, self._acks, is_delaying=delay_ensemble_change
        )
        self._kept_from = 0
        """The first entry that is kept for sending again."""
        self._lengths: list[int] = []
        """Payload bytes of the ledger with each entry, from `_kept_from` on."""
        self._runs: deque[tuple[int, list[bytes]]] = deque()
        """(first entry id, payloads), from `_kept_from` or a little before it on."""
        self._failure: int | None = None
        self._is_stopped = False
        self._places: list[_Place] = []
        bookies = cluster.bookies
        for index, bookie_id in enumerate(metadata.last_ensemble[1]):
            self._places.append(_Place(self, index, bookie_id, bookies.get(bookie_id)))

    @property
    def is_stopped(self) -> bool:
        """Nothing can be added any more."""
        return self._is_stopped

    @property
    def has_failed(self) -> bool:
        """See ChangingWriter."""
        return self._failure is not None

    @property
    def places(self) -> list[_Place]:
        """See ChangingWriter."""
        return self._places

    def fail(self, status: int) -> None:
        """See ChangingWriter."""
        self._failure = status

    # --- adding -------------------------------------------------------------------------

    def add_run(self, payloads: list[bytes], are_intact: bool = False) -> int:
        """See EntryWriter."""
        assert not self._is_stopped
        lengths = self._lengths
        length = self.length_sent
        first = self.next_entry_id
        bodies = self._digest.bodies(
            self.ledger_id, first, self.last_add_confirmed, length, payloads, are_intact
        )
        for payload in payloads:
            length += len(payload)
            lengths.append(length)
        self.length_sent = length
        self.next_entry_id = first + len(payloads)
        self._runs.append((first, payloads))
        for place in self._places:
            if place.failure is None:
                self._send(place, first, bodies)
        return first

    def _send(self, place: _Place, first: int, bodies: list[EntryBody]) -> None:
        """Send to a place what it stores of these consecutive entries."""
        end = first + len(bodies)
        for start, count in self._acks.runs_of(place.index, first, end):
            if len(place.held):
                place.held.hold(start, count)
            else:
                place.send(start, bodies[start - first : start - first + count])

    def retry(self) -> None:
        """Send again entries for which a bookie had no room, or part of them."""
        if self._is_stopped:
            return
        for place in self._places:
            if place.is_waiting:
                place.is_waiting = False
                self._send_window(place)

    def _send_window(self, place: _Place) -> None:
        for first, count in place.held.take_window():
            place.send(first, self._bodies_again(first, count))

    def _bodies_again(self, first: int, count: int) -> list[EntryBody]:
        """The bodies of kept entries once more."""
        confirmed = min(self.last_add_confirmed, first - 1)
        bodies: list[EntryBody] = []
        end = first + count
        for run_first, payloads in self._runs:
            for entry_id in range(max(first, run_first), min(end, run_first + len(payloads))):
                payload = payloads[entry_id - run_first]
                length = self._lengths[entry_id - self._kept_from]
                head = self._digest.head(self.ledger_id, entry_id, confirmed, length, payload)
                bodies.append((head, payload))
        assert len(bodies) == count
        return bodies

    # --- answers ------------------------------------------------------------------------

    def on_replies(self, place: _Place, status: int, first_entry_id: int, count: int) -> None:
        """Replies of a bookie in its place."""
        place.unanswered -= count
        if status == _OK:
            self._acks.on_ok(place.index, first_entry_id, count)
        elif status == _NO_ROOM:
            if place.failure is None:
                place.is_slow = True
                place.held.refused(first_entry_id, count)
        elif status in _FATAL:
            if self._failure is None:
                self._failure = status
        else:
            self.on_failed(place, status)

    def on_failed(self, place: _Place, status: int) -> None:
        """The bookie cannot be written to."""
        if place.failure is None:
            place.failure = status
            place.held = HeldAdds()
            place.is_slow = False
            if status == Status.IO_ERROR:
                self._cluster.on_bookie_failed(place.bookie_id, Status(status).name)

    def settle(self) -> None:
        """Act on what a group of replies changed."""
        if self._is_stopped:
            return
        # A failed change may have had effect. Then entries are looked for on other bookies than
        # those that acknowledged them.
        if self._failure is None and not self._change.is_running:
            self._advance()
            self._forget()
            for place in self._places:
                if place.failure is not None and not place.is_done_without:
                    self._change.begin()
                    break
        if self._failure is not None and not self._is_stopped:
            self._is_stopped = True
            self._listener.on_writer_failed(self, self._failure)
        if not self._is_stopped:
            for place in self._places:
                if place.is_slow:
                    self._go_on_with_held(place)

    def _advance(self) -> None:
        """Confirm what is acknowledged, forget what is not needed any more, notify the listener."""
        confirmed = self._acks.confirmed(self.next_entry_id)
        if confirmed <= self.last_add_confirmed:
            return
        length = self.length = self._lengths[confirmed - self._kept_from]
        self.last_add_confirmed = confirmed
        self._listener.on_entries_confirmed(self, confirmed, length)

    def _forget(self) -> None:
        """Drop entries that are confirmed and that no bookie may refuse for lack of room. A bookie
        without room that would have too many kept loses its place."""
        lengths = self._lengths
        kept_from = self._kept_from
        keep_from = confirmed = self.last_add_confirmed + 1
        for place in self._places:
            if place.failure is not None:
                continue
            missing = self._acks.missing[place.index]
            if missing >= keep_from:
                continue
            if place.is_slow:
                behind = lengths[confirmed - 1 - kept_from] - lengths[missing - kept_from]
                if confirmed - missing > BEHIND_ENTRIES_MAX or behind > BEHIND_BYTES_MAX:
                    self.on_failed(place, _NO_ROOM)
                    continue
            keep_from = missing
        if keep_from == kept_from:
            return
        del lengths[: keep_from - kept_from]
        self._kept_from = keep_from
        runs = self._runs
        while runs and runs[0][0] + len(runs[0][1]) <= keep_from:
            runs.popleft()

    def _go_on_with_held(self, place: _Place) -> None:
        """Once all entries sent have been answered, the next window may be sent."""
        if place.unanswered or place.is_waiting:
            return
        if not len(place.held):
            place.is_slow = False
            place.held = HeldAdds()
            return
        delay_s = place.held.delay_s()
        if place.held.refusals >= REFUSALS_MAX and self._change.can_replace(place.index):
            self.on_failed(place, _NO_ROOM)
            if not self._change.is_running:
                self._change.begin()
        elif delay_s:
            place.is_waiting = True
            self._listener.on_adds_refused(self, delay_s)
        else:
            self._send_window(place)

    def install(self, replaced: frozenset[int], ensemble: tuple[str, ...]) -> None:
        """See ChangingWriter."""
        first = self.last_add_confirmed + 1
        bodies = self._bodies_again(first, self.next_entry_id - first)
        bookies = self._cluster.bookies
        for index in replaced:
            old = self._places[index]
            old.is_replaced = True
            _log.warning(
                "bookie_replaced",
                ledger_id=self.ledger_id,
                bookie=old.bookie_id,
                by=ensemble[index],
                status=Status(old.failure or 0).name,
                first_entry_id=first,
            )
            bookie_id = ensemble[index]
            place = _Place(self, index, bookie_id, bookies.get(bookie_id))
            self._places[index] = place
            self._acks.reset(index, first)
            if place.failure is None:
                self._send(place, first, bodies)

    # --- closing ------------------------------------------------------------------------

    async def close(self) -> None:
        """Fix the end of the ledger at the last confirmed entry. May be called again.

        Raises: LedgerFenced: another client closed it at another entry, or is about to.
            LedgerNotFound: the ledger was deleted meanwhile.
        """
        self._is_stopped = True
        await self._record.close()


@final
class _Place:
    """A bookie at its place in the ensemble, for as long as it has it (an AddSink)."""

    __slots__ = (
        "bookie",
        "bookie_id",
        "failure",
        "held",
        "index",
        "is_done_without",
        "is_replaced",
        "is_slow",
        "is_waiting",
        "unanswered",
        "writer",
    )

    def __init__(
        self, writer: QuorumWriter, index: int, bookie_id: str, bookie: BookieApi | None
    ) -> None:
        self.writer = writer
        self.index = index
        self.bookie_id = bookie_id
        self.bookie = bookie
        self.failure: int | None = None if bookie is not None else int(Status.UNREACHABLE)
        self.held = HeldAdds()
        self.unanswered = 0
        self.is_replaced = False
        self.is_done_without = False
        self.is_slow = False
        """It had no room for entries that it lacks still."""
        self.is_waiting = False
        """Until the owner calls `retry`."""

    def send(self, first: int, bodies: list[EntryBody]) -> None:
        """Consecutive entries to this bookie."""
        assert self.bookie is not None
        writer = self.writer
        self.unanswered += len(bodies)
        self.bookie.add_entries(writer.ledger_id, first, bodies, writer._master_key, 0, self)

    def on_add_replies(self, status: int, ledger_id: int, first_entry_id: int, count: int) -> None:
        """See AddSink."""
        if not self.is_replaced:
            self.writer.on_replies(self, status, first_entry_id, count)

    def on_replies_end(self) -> None:
        """See AddSink."""
        if not self.is_replaced:
            self.writer.settle()
