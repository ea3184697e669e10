"""The record of a ledger that is being written, changed by compare-and-set.

Only the writer of a ledger changes the record while it is open, except that older segments may be
repaired. So a record that is not as the writer left it, and not merely repaired, says that the
writer has lost the ledger.

Invariant: `writer.metadata` is what was last stored or read.

Source: LedgerHandle and EnsembleUtils of BookKeeper.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import trio

from ledgers.errors import LedgerFenced, LedgerNotFound
from ledgers.stored_metadata import stored_metadata
from metadata.store import MetadataUnavailable, VersionConflict
from protocol.bookkeeper.ledger_metadata import (
    LedgerMetadata,
    LedgerState,
    encode_ledger_metadata,
)
from protocol.bookkeeper.paths import ledger_path

if TYPE_CHECKING:
    from ledgers.entry_writer import RecordedWriter
    from metadata.store import MetadataStore

METADATA_ATTEMPTS_MAX: Final = 30
METADATA_RETRY_S: Final = 1.0


@final
class OpenRecord:
    """See the module docstring."""

    def __init__(self, store: MetadataStore, writer: RecordedWriter, version: int) -> None:
        """`version`: of the record that holds the writer's metadata."""
        self._store = store
        self._writer = writer
        self._version = version

    async def store_ensemble(self, first: int, ensemble: tuple[str, ...]) -> None:
        """Write a new segment, unless the writer stops meanwhile.

        Raises: LedgerFenced, LedgerNotFound, LedgerDamaged, MetadataUnavailable.
        """
        writer = self._writer
        path = ledger_path(writer.ledger_id)
        attempts = 0
        while not writer.is_stopped:
            target = writer.metadata.with_ensemble(first, ensemble)
            try:
                version = await self._store.put(path, encode_ledger_metadata(target), self._version)
            except VersionConflict:
                if await self._read_again(target):
                    return
            except MetadataUnavailable:
                attempts += 1
                if attempts >= METADATA_ATTEMPTS_MAX:
                    raise
                await trio.sleep(METADATA_RETRY_S)
            else:
                self._adopt(target, version)
                return

    async def _read_again(self, target: LedgerMetadata) -> bool:
        """The record is not what this writer wrote last. True: it is the target, because a write
        that failed had effect.

        Raises: LedgerFenced, LedgerNotFound, LedgerDamaged, MetadataUnavailable.
        """
        ledger_id = self._writer.ledger_id
        stored = await self._store.get(ledger_path(ledger_id))
        if stored is None:
            raise LedgerNotFound(f"ledger {ledger_id} was deleted")
        found, version = stored_metadata(ledger_id, stored[0]), stored[1]
        if found.state is not LedgerState.OPEN:
            raise LedgerFenced(f"ledger {ledger_id} is {found.state.name}")
        is_target = found.last_ensemble == target.last_ensemble
        if not is_target and found.last_ensemble != self._writer.metadata.last_ensemble:
            raise LedgerFenced(f"another client changed the bookies of ledger {ledger_id}")
        # An older segment may have been repaired meanwhile.
        self._adopt(found, version)
        return is_target

    def _adopt(self, metadata: LedgerMetadata, version: int) -> None:
        self._writer.metadata = metadata
        self._version = version

    async def close(self) -> None:
        """Fix the end of the ledger at the last confirmed entry of the writer, which has stopped.

        Raises: LedgerFenced: another client closed it at another entry, or is about to.
            LedgerNotFound: the ledger was deleted meanwhile.
        """
        writer = self._writer
        path = ledger_path(writer.ledger_id)
        while not writer.metadata.is_closed:
            metadata = writer.metadata.closed(writer.last_add_confirmed, writer.length)
            try:
                version = await self._store.put(
                    path, encode_ledger_metadata(metadata), self._version
                )
            except VersionConflict:
                await self._read_before_close(path)
            else:
                self._adopt(metadata, version)

    async def _read_before_close(self, path: str) -> None:
        """Take over a record that the writer may still close, or that is closed as it would."""
        writer = self._writer
        stored = await self._store.get(path)
        if stored is None:
            raise LedgerNotFound(f"ledger {writer.ledger_id} was deleted")
        found = stored_metadata(writer.ledger_id, stored[0])
        same_end = (found.last_entry_id, found.length) == (writer.last_add_confirmed, writer.length)
        if found.state is not LedgerState.OPEN and not (found.is_closed and same_end):
            raise LedgerFenced(
                f"ledger {writer.ledger_id} is {found.state.name} with last entry"
                f" {found.last_entry_id}, this writer confirmed {writer.last_add_confirmed}"
            )
        self._adopt(found, stored[1])
