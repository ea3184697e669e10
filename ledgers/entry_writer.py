"""EntryWriter: the interface of a writer, of either kind, to the owner of the ledger.

`LedgerWriter` writes to one bookie of this process, `QuorumWriter` to several bookies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from protocol.bookkeeper.ledger_metadata import LedgerMetadata


class WriterListener(Protocol):
    """Is notified how far a ledger is written. Called from the event loop, never within add."""

    def on_entries_confirmed(self, writer: EntryWriter, entry_id: int, length: int) -> None:
        """All entries up to `entry_id` are durable; they hold `length` payload bytes."""

    def on_adds_refused(self, writer: EntryWriter, delay_s: float) -> None:
        """A bookie has no room now: call `writer.retry` after this many seconds."""

    def on_writer_failed(self, writer: EntryWriter, status: int) -> None:
        """Once: nothing beyond the last confirmed entry will ever be confirmed."""


class _Nobody:
    """The listener of a closed writer: an owner and its writer do not keep each other alive."""

    __slots__ = ()

    def on_entries_confirmed(self, writer: EntryWriter, entry_id: int, length: int) -> None:
        pass

    def on_adds_refused(self, writer: EntryWriter, delay_s: float) -> None:
        pass

    def on_writer_failed(self, writer: EntryWriter, status: int) -> None:
        pass


NOBODY: WriterListener = _Nobody()


class RecordedWriter(Protocol):
    """A writer that keeps the metadata of its ledger, because it may have to change them."""

    metadata: LedgerMetadata
    ledger_id: int
    last_add_confirmed: int
    length: int

    @property
    def is_stopped(self) -> bool:
        """Nothing can be added any more."""


class EntryWriter:
    """See the module docstring. Abstract."""

    __slots__ = (
        "last_add_confirmed",
        "ledger_id",
        "length",
        "length_sent",
        "next_entry_id",
    )

    def __init__(self, ledger_id: int) -> None:
        self.ledger_id = ledger_id
        self.last_add_confirmed = -1
        self.length = 0
        """Payload bytes of the confirmed entries."""
        self.next_entry_id = 0
        self.length_sent = 0
        """Payload bytes of all entries added."""

    @property
    def is_stopped(self) -> bool:
        """Nothing can be added any more."""
        raise NotImplementedError

    def add(self, payload: bytes) -> int:
        """Send one entry. Returns its id. The listener gets the outcome."""
        return self.add_run([payload])

    def add_run(self, payloads: list[bytes], are_intact: bool = False) -> int:
        """Send consecutive entries. Returns the id of the first. The listener gets the outcome.

        `are_intact`: see `Digest.bodies`.
        """
        raise NotImplementedError

    def retry(self) -> None:
        """Send again entries for which a bookie had no room, or part of them."""
        raise NotImplementedError

    async def close(self) -> None:
        """Fix the end of the ledger at the last confirmed entry. May be called again.

        Raises: LedgerFenced: another client closed it at another entry, or is about to.
            LedgerNotFound: the ledger was deleted meanwhile.
        """
        raise NotImplementedError
