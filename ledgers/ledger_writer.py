"""Writes one ledger: assigns entry ids, sends entries to their bookies, confirms them in order.

Adding is synchronous and needs no tasks. The listener is told once per group of replies how far the
ledger is confirmed. With one bookie (the embedded case) the writer itself is the reply sink and
counts nothing. With more, `AckTracker` holds the quorum rules and every place in the ensemble has
its own sink, because a reply does not name its sender.

Invariants: `last_add_confirmed` only grows, by entries all of which are durable. After the first
failure, a fence or `close` it never moves again, so the last entry that `close` writes is the one
reported to the application. Late replies are ignored.

A bookie that has no room for an entry (TOO_MANY_REQUESTS) has not failed. The entry is sent again
later, as `HeldAdds` decides, and those after it wait; the listener arranges the delay. This applies
to one bookie; of several, the others may still reach the ack quorum.

A bookie that fails while its write set can still reach the ack quorum is tolerated. Beyond that the
writer fails as a whole: its owner closes the ledger and continues in a new one. Replacing a bookie
within the ledger (BookKeeper's ensemble change) would be done where `_fail` is called: a new
segment from `last_add_confirmed + 1` on by compare-and-set, then sending all unconfirmed entries
again.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Protocol, final

from bookie.api import Status
from ledgers.errors import LedgerFenced, LedgerNotFound
from ledgers.held_adds import HeldAdds
from ledgers.quorum import AckTracker
from metadata.store import VersionConflict
from protocol.bookkeeper.digests import Digest, master_key
from protocol.bookkeeper.ledger_layout import write_set
from protocol.bookkeeper.ledger_metadata import (
    LedgerMetadata,
    decode_ledger_metadata,
    encode_ledger_metadata,
)
from protocol.bookkeeper.paths import ledger_path

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bookie.api import BookieApi, EntryBody
    from metadata.store import MetadataStore

_OK = int(Status.OK)
_NO_ROOM = int(Status.TOO_MANY_REQUESTS)
_FATAL = frozenset({int(Status.FENCED), int(Status.UNAUTHORIZED)})


class WriterListener(Protocol):
    """Is told how far a ledger is written. Called from the event loop, never within add."""

    def on_entries_confirmed(self, writer: LedgerWriter, entry_id: int, length: int) -> None:
        """All entries up to `entry_id` are durable; they hold `length` payload bytes."""

    def on_adds_refused(self, writer: LedgerWriter, delay_s: float) -> None:
        """The bookie has no room now: call `writer.retry` after this many seconds."""

    def on_writer_failed(self, writer: LedgerWriter, status: int) -> None:
        """Once: nothing beyond the last confirmed entry will ever be confirmed."""


@final
class LedgerWriter:
    """See the module docstring."""

    __slots__ = (
        "_acked",
        "_bookies",
        "_digest",
        "_early",
        "_failure",
        "_held",
        "_is_single",
        "_is_stopped",
        "_lengths",
        "_listener",
        "_master_key",
        "_runs",
        "_sinks",
        "_store",
        "_tracker",
        "_version",
        "last_add_confirmed",
        "ledger_id",
        "length",
        "length_sent",
        "metadata",
        "next_entry_id",
    )

    def __init__(
        self,
        store: MetadataStore,
        bookies: Mapping[str, BookieApi],
        ledger_id: int,
        metadata: LedgerMetadata,
        version: int,
        listener: WriterListener,
    ) -> None:
        self.ledger_id = ledger_id
        self.metadata = metadata
        self.last_add_confirmed = -1
        self.length = 0
        self._store = store
        self._version = version
        self._listener = listener
        self._digest = Digest(metadata.digest_type, metadata.password)
        self._master_key = master_key(metadata.password)
        self._bookies = [bookies[bookie_id] for bookie_id in metadata.last_ensemble[1]]
        self.next_entry_id = 0
        self.length_sent = 0
        self._lengths: list[int] = []
        self._acked = -1
        self._early: set[int] = set()
        self._held = HeldAdds()
        self._runs: deque[tuple[int, list[bytes]]] = deque()
        """(first entry id, payloads) of unconfirmed entries, for sending again. The caller keeps
        these payloads too, until they are confirmed."""
        self._failure: int | None = None
        self._is_stopped = False
        self._tracker = AckTracker(metadata.write_quorum_size, metadata.ack_quorum_size)
        self._sinks = [_EnsembleSink(self, index) for index in range(len(self._bookies))]
        self._is_single = len(self._bookies) == 1

    @property
    def is_stopped(self) -> bool:
        """Nothing can be added any more."""
        return self._is_stopped

    def add(self, payload: bytes) -> int:
        """Send one entry. Returns its id. The listener gets the outcome."""
        return self.add_run([payload])

    def add_run(self, payloads: list[bytes]) -> int:
        """Send consecutive entries. Returns the id of the first. The listener gets the outcome."""
        assert not self._is_stopped
        digest, ledger_id, confirmed = self._digest, self.ledger_id, self.last_add_confirmed
        lengths = self._lengths
        length = self.length_sent
        first = entry_id = self.next_entry_id
        bodies: list[EntryBody] = []
        for payload in payloads:
            length += len(payload)
            lengths.append(length)
            head = digest.head(ledger_id, entry_id, confirmed, length, payload)
            bodies.append((head, payload))
            entry_id += 1
        self.length_sent = length
        self.next_entry_id = entry_id
        if self._is_single:
            self._runs.append((first, payloads))
            if self._held:
                self._held.hold(first, len(payloads))
            else:
                self._bookies[0].add_entries(ledger_id, first, bodies, self._master_key, 0, self)
        else:
            for index, body in enumerate(bodies, first):
                self._send(index, body)
        return first

    def retry(self) -> None:
        """Send again entries for which the bookie had no room, or part of them."""
        if self._is_stopped:
            return
        for first, count in self._held.take_window():
            bodies = self._bodies_again(first, count)
            self._bookies[0].add_entries(self.ledger_id, first, bodies, self._master_key, 0, self)
        self.kick()

    def _bodies_again(self, first: int, count: int) -> list[EntryBody]:
        """Send these entries once more. None of them is confirmed."""
        confirmed = self.last_add_confirmed
        bodies: list[EntryBody] = []
        end = first + count
        for run_first, payloads in self._runs:
            for entry_id in range(max(first, run_first), min(end, run_first + len(payloads))):
                payload = payloads[entry_id - run_first]
                length = self._lengths[entry_id - confirmed - 1]
                head = self._digest.head(self.ledger_id, entry_id, confirmed, length, payload)
                bodies.append((head, payload))
        assert len(bodies) == count
        return bodies

    def kick(self) -> None:
        """The entries added so far may be written now."""
        for bookie in self._bookies:
            bookie.kick()

    def on_add_replies(self, status: int, ledger_id: int, first_entry_id: int, count: int) -> None:
        """Replies of the only bookie (AddSink)."""
        if status == _OK:
            if first_entry_id == self._acked + 1:
                self._acked += count
                if self._early:
                    self._absorb_early()
            else:
                self._early.update(range(first_entry_id, first_entry_id + count))
        elif status == _NO_ROOM:
            self._held.refused(first_entry_id, count)
        elif self._failure is None:
            self._failure = status

    def on_replies_end(self) -> None:
        """Tell the listener what this group of replies changed (AddSink)."""
        if self._is_stopped:
            return
        acked = self._acked
        confirmed = acked - self.last_add_confirmed
        if confirmed > 0:
            lengths = self._lengths
            length = self.length = lengths[confirmed - 1]
            del lengths[:confirmed]
            self.last_add_confirmed = acked
            runs = self._runs
            while runs and runs[0][0] + len(runs[0][1]) - 1 <= acked:
                runs.popleft()
            self._listener.on_entries_confirmed(self, acked, length)
        if self._failure is not None and not self._is_stopped:
            self._is_stopped = True
            self._listener.on_writer_failed(self, self._failure)
        if self._held and not self._is_stopped:
            self._go_on_with_held()

    def _go_on_with_held(self) -> None:
        """Once all entries sent have been answered, the next window may be sent."""
        unanswered = self.next_entry_id - self._acked - 1 - len(self._early) - len(self._held)
        if unanswered:
            return
        delay_s = self._held.delay_s()
        if delay_s:
            self._listener.on_adds_refused(self, delay_s)
        else:
            self.retry()

    async def close(self) -> None:
        """Fix the end of the ledger at the last confirmed entry. May be called again.

        Raises: LedgerFenced: another client closed it at another entry, or is about to.
            LedgerNotFound: the ledger was deleted meanwhile.
        """
        self._is_stopped = True
        if self.metadata.is_closed:
            return
        path = ledger_path(self.ledger_id)
        metadata = self.metadata.closed(self.last_add_confirmed, self.length)
        try:
            self._version = await self._store.put(
                path, encode_ledger_metadata(metadata), self._version
            )
        except VersionConflict:
            stored = await self._store.get(path)
            if stored is None:
                raise LedgerNotFound(f"ledger {self.ledger_id} was deleted") from None
            other = decode_ledger_metadata(stored[0])
            same_end = (other.last_entry_id, other.length) == (self.last_add_confirmed, self.length)
            if not (other.is_closed and same_end):
                raise LedgerFenced(
                    f"ledger {self.ledger_id} is {other.state.name} with last entry"
                    f" {other.last_entry_id}, this writer confirmed {self.last_add_confirmed}"
                ) from None
        self.metadata = metadata

    def _send(self, entry_id: int, body: EntryBody) -> None:
        self._tracker.sent()
        metadata = self.metadata
        for index in write_set(entry_id, metadata.ensemble_size, metadata.write_quorum_size):
            self._bookies[index].add_entry(
                self.ledger_id, entry_id, body, self._master_key, 0, self._sinks[index]
            )

    def _on_quorum_reply(self, index: int, status: int, entry_id: int) -> None:
        if status == _OK:
            self._tracker.on_ok(entry_id, index)
            if self._failure is None:
                self._acked = self._tracker.last_add_confirmed
        elif self._failure is None and (
            self._tracker.on_failure(entry_id, index) or status in _FATAL
        ):
            self._failure = status

    def _absorb_early(self) -> None:
        while self._acked + 1 in self._early:
            self._acked += 1
            self._early.discard(self._acked)


@final
class _EnsembleSink:
    """Replies of the bookie at one place of the ensemble."""

    __slots__ = ("_index", "_writer")

    def __init__(self, writer: LedgerWriter, index: int) -> None:
        self._writer = writer
        self._index = index

    def on_add_replies(self, status: int, ledger_id: int, first_entry_id: int, count: int) -> None:
        for entry_id in range(first_entry_id, first_entry_id + count):
            self._writer._on_quorum_reply(self._index, status, entry_id)

    def on_replies_end(self) -> None:
        self._writer.on_replies_end()
