"""Keeps the virtual cursors of one subscription in a ledger of their own.

A property of the main cursor names the ledger. Changed chunks are appended to it, then a commit
(see `snapshot_codec`). When it has become long, or an append failed, the next write goes to a new
ledger and is complete. Then the property is changed to the new ledger, and the old one is deleted.
So at any instant the property names either no ledger or one whose last commit lists a whole
snapshot.

Recovery fences the ledger, takes the last commit, and reads the chunks it lists. A ledger that is
gone, or proved to lack the commit or a chunk, is reported as lost. If it cannot be read now, the
subscription fails to open and clients retry: in doubt no position is dropped. `force_recovery`
(managedLedgerForceRecovery) takes such a ledger for lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, final

import structlog

from broker.managed_ledger.cursor_record import ATTACHED_LEDGER_PROPERTY, attached_ledger
from broker.topics.broadcast.snapshot_codec import (
    ChunkKey,
    ChunkPlace,
    SnapshotDamaged,
    cut,
    decode_commit,
    encode_commit,
    join_parts,
)
from ledgers.awaited_ledger import AwaitedLedger, LedgerMaker
from ledgers.errors import EntryAbsent, LedgerError, LedgerNotFound
from protocol.errors import BrokerError, ServerError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ledgers.entry_reader import EntryReader
    from protocol.bookkeeper.ledger_metadata import LedgerMetadata

ENTRY_SIZE_BYTES_MAX: Final = 1024 * 1024
LEDGER_ENTRIES_MAX: Final = 20_000
LEDGER_BYTES_MAX: Final = 256 * 1024 * 1024
_READ_BYTES: Final = 8 * 1024 * 1024

_log = structlog.get_logger()


class SnapshotLedgers(LedgerMaker, Protocol):
    """The part of the ledger client used here."""

    async def metadata_of(self, ledger_id: int) -> LedgerMetadata:
        """As stored. Raises: LedgerNotFound."""

    async def recover(self, ledger_id: int) -> LedgerMetadata:
        """Fence and close it."""

    def reader_of(self, ledger_id: int, metadata: LedgerMetadata) -> EntryReader:
        """Read it."""

    async def delete(self, ledger_id: int) -> None:
        """Delete it."""


class SnapshotCursor(Protocol):
    """The part of the main cursor used here."""

    @property
    def properties(self) -> Mapping[str, str]:
        """The properties stored with it."""

    async def set_properties(self, properties: Mapping[str, str]) -> None:
        """Replace them, durably."""


@final
class SnapshotStore:
    """See the module docstring. Callers must serialise the calls."""

    def __init__(
        self,
        ledgers: SnapshotLedgers,
        cursor: SnapshotCursor,
        custom_metadata: Mapping[str, bytes],
        entry_size_bytes_max: int = ENTRY_SIZE_BYTES_MAX,
        *,
        force_recovery: bool = False,
    ) -> None:
        self._ledgers = ledgers
        self._cursor = cursor
        self._custom_metadata = custom_metadata
        self._entry_size_bytes_max = entry_size_bytes_max
        self._force_recovery = force_recovery
        self._places: dict[ChunkKey, ChunkPlace] = {}
        self._ledger: AwaitedLedger | None = None
        self._foreign_id: int | None = None
        """A ledger of another owner that the cursor named. It is neither fenced nor deleted."""
        self.lost = False
        """Set when `load` found that the stored state is gone."""

    @property
    def wants_all(self) -> bool:
        """Whether the next write must have every chunk."""
        ledger = self._ledger
        return (
            ledger is None
            or ledger.failed
            or ledger.confirmed >= LEDGER_ENTRIES_MAX
            or ledger.size_bytes >= LEDGER_BYTES_MAX
        )

    @property
    def ledger_id(self) -> int | None:
        """The ledger that the cursor names."""
        return attached_ledger(self._cursor.properties)

    async def load(self) -> dict[ChunkKey, bytes]:
        """The newest blob of every chunk; nothing if nothing was ever stored.

        Raises: BrokerError ServiceNotReady: it cannot be read now.
        """
        ledger_id = self.ledger_id
        if ledger_id is None:
            return {}
        try:
            return await self._load(ledger_id)
        except (LedgerNotFound, EntryAbsent, SnapshotDamaged) as error:
            return self._lost(ledger_id, error)
        except LedgerError as error:
            if self._force_recovery:
                return self._lost(ledger_id, error)
            raise BrokerError(
                ServerError.ServiceNotReady,
                f"the virtual cursors in ledger {ledger_id} cannot be read now, try again: {error}",
            ) from error

    def _lost(self, ledger_id: int, error: Exception) -> dict[ChunkKey, bytes]:
        _log.error("virtual_cursors_lost", ledger_id=ledger_id, error=str(error))
        self.lost = True
        return {}

    async def _load(self, ledger_id: int) -> dict[ChunkKey, bytes]:
        metadata = await self._ledgers.metadata_of(ledger_id)
        if dict(metadata.custom_metadata) != dict(self._custom_metadata):
            self._foreign_id = ledger_id
            raise SnapshotDamaged(f"ledger {ledger_id} is not one of this subscription")
        metadata = await self._ledgers.recover(ledger_id)
        reader = self._ledgers.reader_of(ledger_id, metadata)
        entry_id = metadata.last_entry_id
        places = None
        while entry_id >= 0 and places is None:
            places = decode_commit((await reader.read(entry_id, entry_id))[0])
            entry_id -= 1
        if places is None:
            raise SnapshotDamaged(f"ledger {ledger_id} holds no commit")
        blobs = {}
        for key, (first, parts) in places.items():
            entries: list[bytes] = []
            while len(entries) < parts:
                start = first + len(entries)
                entries += await reader.read(start, first + parts - 1, _READ_BYTES)
            blobs[key] = join_parts(entries)
        return blobs

    async def write(self, blobs: Mapping[ChunkKey, bytes]) -> None:
        """Make the chunks durable; all chunks when `wants_all`.

        Raises: LedgerError: they are not durable, and the next write wants all.
        """
        if not self.wants_all:
            assert self._ledger is not None
            await self._append(self._ledger, self._places, blobs)
            return
        former_id = self.ledger_id
        ledger = await AwaitedLedger.create(
            self._ledgers, self._custom_metadata, "ledger of virtual cursors"
        )
        places: dict[ChunkKey, ChunkPlace] = {}
        await self._append(ledger, places, blobs)
        await self._cursor.set_properties(
            {**self._cursor.properties, ATTACHED_LEDGER_PROPERTY: str(ledger.ledger_id)}
        )
        self._ledger, self._places = ledger, places
        if former_id is not None and former_id != self._foreign_id:
            await self._ledgers.delete(former_id)

    async def _append(
        self,
        ledger: AwaitedLedger,
        places: dict[ChunkKey, ChunkPlace],
        blobs: Mapping[ChunkKey, bytes],
    ) -> None:
        entries: list[bytes] = []
        for key, blob in blobs.items():
            parts = cut(blob, self._entry_size_bytes_max)
            places[key] = (ledger.next_entry_id + len(entries), len(parts))
            entries += parts
        entries.append(encode_commit(places))
        try:
            await ledger.append(entries)
        except BaseException as error:
            # `places` may name chunks that do not exist: the next write begins a new ledger.
            ledger.give_up()
            if isinstance(error, LedgerError):
                _log.warning("virtual_cursors_ledger_failed", error=str(error))
            raise

    async def close(self) -> None:
        """End the ledger being written, so that the next open need not recover it."""
        ledger, self._ledger = self._ledger, None
        if ledger is not None and not ledger.failed:
            await ledger.writer.close()
