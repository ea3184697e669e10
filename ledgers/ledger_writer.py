"""Writes one ledger to the bookie of this process: assigns entry ids, confirms them in order.

Adding is synchronous and needs no tasks. The listener is notified once per group of replies how far
the ledger is confirmed. The writer itself is the reply sink and counts nothing. For several
bookies, or one in another process, see `quorum_writer`.

Invariants: `last_add_confirmed` only grows, by entries all of which are durable. After the first
failure, a fence or `close` it never moves again, so the last entry that `close` writes is the one
reported to the application. Late replies are ignored.

A bookie that has no room for an entry (TOO_MANY_REQUESTS) has not failed. The entry is sent again
later, as `HeldAdds` decides, and those after it wait; the listener arranges the delay. When the
bookie fails, the writer fails: its owner closes the ledger and continues in a new one.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, final

from bookie.api import Status
from ledgers.entry_writer import NOBODY, EntryWriter, WriterListener
from ledgers.errors import LedgerFenced, LedgerNotFound
from ledgers.held_adds import HeldAdds
from ledgers.stored_metadata import stored_metadata
from metadata.store import VersionConflict
from protocol.bookkeeper.digests import Digest, DigestType, master_key
from protocol.bookkeeper.ledger_metadata import (
    LedgerMetadata,
    encode_ledger_metadata,
)
from protocol.bookkeeper.paths import ledger_path

if TYPE_CHECKING:
    from bookie.api import BookieApi, EntryBody
    from metadata.store import MetadataStore

_OK = int(Status.OK)
_NO_ROOM = int(Status.TOO_MANY_REQUESTS)


@lru_cache(maxsize=16)
def keys_of(kind: DigestType, password: bytes) -> tuple[Digest, bytes]:
    """The digest that makes the heads of entries, and the master key. The ledgers of a broker have
    one password, so they share both."""
    return Digest(kind, password), master_key(password)


@final
class LedgerWriter(EntryWriter):
    """See the module docstring."""

    __slots__ = (
        "_acked",
        "_bookie",
        "_digest",
        "_early",
        "_failure",
        "_held",
        "_is_closed",
        "_is_stopped",
        "_listener",
        "_master_key",
        "_runs",
        "_store",
        "_version",
    )

    def __init__(
        self,
        store: MetadataStore,
        bookie: BookieApi,
        ledger_id: int,
        metadata: LedgerMetadata,
        version: int,
        listener: WriterListener,
    ) -> None:
        super().__init__(ledger_id)
        self._store = store
        self._version = version
        self._listener = listener
        self._digest, self._master_key = keys_of(metadata.digest_type, metadata.password)
        self._bookie = bookie
        self._acked = -1
        self._early: set[int] | None = None
        """Entries that are durable before others; None: there have been none yet."""
        self._held: HeldAdds | None = None
        """Made when the bookie first has no room."""
        self._runs: list[tuple[int, int, list[bytes]]] = []
        """(first entry id, payload bytes of the ledger before it, payloads) of unconfirmed entries,
        for sending again. The caller keeps these payloads too, until they are confirmed."""
        self._failure: int | None = None
        self._is_stopped = False
        self._is_closed = False

    @property
    def is_stopped(self) -> bool:
        """Nothing can be added any more."""
        return self._is_stopped

    def add_run(self, payloads: list[bytes], are_intact: bool = False) -> int:
        """See EntryWriter."""
        assert not self._is_stopped
        ledger_id, first = self.ledger_id, self.next_entry_id
        length = self.length_sent
        bodies = self._digest.bodies(
            ledger_id, first, self.last_add_confirmed, length, payloads, are_intact
        )
        self._runs.append((first, length, payloads))
        for payload in payloads:
            length += len(payload)
        self.length_sent = length
        self.next_entry_id = first + len(payloads)
        if self._held:
            self._held.hold(first, len(payloads))
        else:
            self._bookie.add_entries(ledger_id, first, bodies, self._master_key, 0, self)
        return first

    def retry(self) -> None:
        """Send again entries for which the bookie had no room, or part of them."""
        if self._is_stopped or self._held is None:
            return
        for first, count in self._held.take_window():
            bodies = self._bodies_again(first, count)
            self._bookie.add_entries(self.ledger_id, first, bodies, self._master_key, 0, self)

    def _bodies_again(self, first: int, count: int) -> list[EntryBody]:
        """Send these entries once more. None of them is confirmed."""
        confirmed = self.last_add_confirmed
        bodies: list[EntryBody] = []
        end = first + count
        for run_first, length, payloads in self._runs:
            if run_first >= end:
                break
            for entry_id, payload in enumerate(payloads[: end - run_first], run_first):
                length += len(payload)
                if entry_id >= first:
                    head = self._digest.head(self.ledger_id, entry_id, confirmed, length, payload)
                    bodies.append((head, payload))
        assert len(bodies) == count
        return bodies

    def on_add_replies(self, status: int, ledger_id: int, first_entry_id: int, count: int) -> None:
        """Replies of the only bookie (AddSink)."""
        if status == _OK:
            if first_entry_id == self._acked + 1:
                self._acked += count
                if self._early:
                    self._absorb_early()
            else:
                if self._early is None:
                    self._early = set()
                self._early.update(range(first_entry_id, first_entry_id + count))
        elif status == _NO_ROOM:
            if self._held is None:
                self._held = HeldAdds()
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
            self.last_add_confirmed = acked
            length = self.length = self._forget_confirmed()
            self._listener.on_entries_confirmed(self, acked, length)
        if self._failure is not None and not self._is_stopped:
            self._is_stopped = True
            self._listener.on_writer_failed(self, self._failure)
        if self._held and not self._is_stopped:
            self._go_on_with_held(self._held)

    def _forget_confirmed(self) -> int:
        """Drop what need not be sent again. Returns the payload bytes of the confirmed entries."""
        next_id = self.last_add_confirmed + 1
        for done, (first, length, payloads) in enumerate(self._runs):
            if next_id < first + len(payloads):
                del self._runs[:done]
                for payload in payloads[: next_id - first]:
                    length += len(payload)
                return length
        self._runs = []
        return self.length_sent

    def _go_on_with_held(self, held: HeldAdds) -> None:
        """Once all entries sent have been answered, the next window may be sent."""
        early_count = len(self._early) if self._early else 0
        if self.next_entry_id - self._acked - 1 - early_count - len(held):
            return
        delay_s = held.delay_s()
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
        self._listener = NOBODY
        if self._is_closed:
            return
        metadata, version = await self._stored()
        if version == self._version:
            closed = metadata.closed(self.last_add_confirmed, self.length)
            path, data = ledger_path(self.ledger_id), encode_ledger_metadata(closed)
            try:
                self._version = await self._store.put(path, data, version)
            except VersionConflict:
                self._check_end((await self._stored())[0])
        else:
            self._check_end(metadata)
        self._is_closed = True

    async def _stored(self) -> tuple[LedgerMetadata, int]:
        """The record of the ledger and its version. Only the end of the ledger needs it, so it is
        not kept: it would be a tenth of the memory of a topic at rest."""
        stored = await self._store.get(ledger_path(self.ledger_id))
        if stored is None:
            raise LedgerNotFound(f"ledger {self.ledger_id} was deleted") from None
        return stored_metadata(self.ledger_id, stored[0]), stored[1]

    def _check_end(self, other: LedgerMetadata) -> None:
        """Another client has changed the record. Raises: LedgerFenced: it set another end, or is
        about to."""
        same_end = (other.last_entry_id, other.length) == (self.last_add_confirmed, self.length)
        if not (other.is_closed and same_end):
            raise LedgerFenced(
                f"ledger {self.ledger_id} is {other.state.name} with last entry"
                f" {other.last_entry_id}, this writer confirmed {self.last_add_confirmed}"
            )

    def _absorb_early(self) -> None:
        early = self._early
        while early and self._acked + 1 in early:
            self._acked += 1
            early.discard(self._acked)
