"""AwaitedLedger: a ledger being written by one owner that waits until its entries are durable.

For small ledgers that are replaced as a whole: the position of a cursor, the chunks of virtual
cursors. (Entries of topics are written without waiting; see `managed_ledger/appender`.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, Self, final

import trio

from bookie.api import Status
from ledgers.errors import LedgerError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ledgers.entry_writer import EntryWriter, WriterListener


RUN_BYTES_MAX: Final = 1024 * 1024
"""Entries up to this size together are written as one run, which costs about as much as one entry
does."""


class LedgerMaker(Protocol):
    """The part of the ledger client used here."""

    async def create_ledger(
        self, custom_metadata: Mapping[str, bytes], listener: WriterListener
    ) -> EntryWriter:
        """A new, open ledger."""


@final
class _Progress:
    """The outcome of the entries. It is separate from the ledger, which has the writer, because the
    writer refers to its listener: an ended ledger is freed without a garbage collection."""

    __slots__ = ("changed", "confirmed", "failure", "retry_after_s")

    def __init__(self) -> None:
        self.confirmed = -1
        self.failure: str | None = None
        self.retry_after_s = 0.0
        self.changed = trio.Event()

    def on_entries_confirmed(self, writer: EntryWriter, entry_id: int, length: int) -> None:
        """WriterListener."""
        self.confirmed = entry_id
        self.changed.set()

    def on_adds_refused(self, writer: EntryWriter, delay_s: float) -> None:
        """WriterListener. The waiting `append` sends again."""
        self.retry_after_s = delay_s
        self.changed.set()

    def on_writer_failed(self, writer: EntryWriter, status: int) -> None:
        """WriterListener."""
        self.failure = Status(status).name
        self.changed.set()


@final
class AwaitedLedger:
    """See the module docstring. The owner serialises the calls."""

    def __init__(self, writer: EntryWriter, progress: _Progress, what: str) -> None:
        self.writer = writer
        self._progress = progress
        self._what = what

    @classmethod
    async def create(
        cls, ledgers: LedgerMaker, custom_metadata: Mapping[str, bytes], what: str
    ) -> Self:
        """A new ledger. `what` names its content in error texts. Raises: LedgerError."""
        progress = _Progress()
        return cls(await ledgers.create_ledger(custom_metadata, progress), progress, what)

    @property
    def ledger_id(self) -> int:
        """The ledger's id."""
        return self.writer.ledger_id

    @property
    def confirmed(self) -> int:
        """The last entry that is durable together with all before it; -1: none."""
        return self._progress.confirmed

    @property
    def next_entry_id(self) -> int:
        """Id of the entry that is appended next."""
        return self.writer.next_entry_id

    @property
    def size_bytes(self) -> int:
        """Payload bytes appended."""
        return self.writer.length_sent

    @property
    def failed(self) -> bool:
        """Whether it takes no more entries."""
        return self._progress.failure is not None

    def give_up(self) -> None:
        """Take no more entries, because the owner does not know the state of those so far."""
        self._progress.failure = self._progress.failure or "given up"

    async def append(self, entries: list[bytes]) -> None:
        """Returns when all of them are durable. Raises: LedgerError: not all of them are."""
        progress = self._progress
        last = -1
        if progress.failure is None:
            for run in runs_of(entries):
                last = self.writer.add_run(run) + len(run) - 1
        while progress.confirmed < last and progress.failure is None:
            if progress.retry_after_s:
                await trio.sleep(progress.retry_after_s)
                progress.retry_after_s = 0.0
                self.writer.retry()
            else:
                progress.changed = trio.Event()
                await progress.changed.wait()
        if progress.failure is not None:
            raise LedgerError(f"{self._what} {self.ledger_id}: {progress.failure}")


def runs_of(entries: list[bytes]) -> Iterator[list[bytes]]:
    """The entries in order. A run is larger than `RUN_BYTES_MAX` only if its one entry is."""
    run: list[bytes] = []
    size_bytes = 0
    for data in entries:
        if run and size_bytes + len(data) > RUN_BYTES_MAX:
            yield run
            run, size_bytes = [], 0
        run.append(data)
        size_bytes += len(data)
    if run:
        yield run
