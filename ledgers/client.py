"""Creates, opens, recovers and deletes ledgers: the entry point of the package.

A ledger id is taken from a durable sequence of the metadata store before the ledger exists, so ids
only grow and are never used twice. The ledger's record is written before its first entry and
removed before its entries. A bookie may drop entries of ledgers without a record, and compares its
ledgers with `live_ledgers`.

Format: ledger metadata version 3 at BookKeeper's hierarchical paths; the custom metadata names the
managed ledger (and cursor) as Pulsar's own ledgers do.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, final

import trio

from ledgers.cluster import FixedCluster
from ledgers.deletions import Deletions
from ledgers.errors import LedgerNotFound
from ledgers.explicit_lac import ExplicitLacs
from ledgers.ledger_reader import LedgerReader
from ledgers.ledger_writer import LedgerWriter
from ledgers.placement import GROUPS_KEY, PlacementRules, encode_groups
from ledgers.quorum_writer import QuorumWriter
from ledgers.recovery import recover_ledger
from ledgers.replication import Replication
from ledgers.speculation import Speculation, SpeculationRules
from ledgers.stored_metadata import stored_metadata
from metadata.ledger_list import live_ledgers
from metadata.store import MUST_NOT_EXIST
from protocol.bookkeeper.digests import DigestType
from protocol.bookkeeper.ledger_metadata import (
    LedgerMetadata,
    encode_ledger_metadata,
)
from protocol.bookkeeper.paths import ID_SEQUENCE_PATH, ledger_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from bookie.api import BookieApi
    from ledgers.cluster import Cluster
    from ledgers.entry_reader import EntryReader
    from ledgers.entry_writer import EntryWriter, WriterListener
    from metadata.store import MetadataStore
    from runtime.clock import Clock

_NEVER: Final = SpeculationRules()


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerClientConfig:
    """How ledgers are replicated and protected, if their owner does not say otherwise
    (managedLedgerDefaultEnsembleSize and friends)."""

    ensemble_size: int = 1
    write_quorum_size: int = 1
    ack_quorum_size: int = 1
    digest_type: DigestType = DigestType.CRC32C
    password: bytes = b""
    request_timeout_s: float = 30.0
    delay_ensemble_change: bool = False
    """Replace a failed bookie only when the ack quorum cannot be had without it."""
    speculation: SpeculationRules = _NEVER
    """When a read is sent to one more bookie."""
    explicit_lac_interval_s: float = 0.0
    """How often the confirmed end of an open ledger is reported to bookies; 0: never
    (bookkeeperExplicitLacIntervalInMills)."""

    @property
    def replication(self) -> Replication:
        """The three numbers."""
        return Replication(self.ensemble_size, self.write_quorum_size, self.ack_quorum_size)


@final
class LedgerClient:
    """See the module docstring."""

    def __init__(
        self,
        store: MetadataStore,
        bookies: Mapping[str, BookieApi],
        config: LedgerClientConfig,
        clock: Clock,
        cluster: Cluster | None = None,
        on_damage: Callable[[int, str, int], None] | None = None,
    ) -> None:
        """`cluster`: chooses bookies and replaces failed ones. Without it `bookies` are all there
        are, and a single one is of this process. `on_damage`: see LedgerReader."""
        self._store = store
        self._bookies = bookies
        self.has_one_bookie = cluster is None and config.ensemble_size == 1
        """There is one copy of every entry, in the bookie of this process."""
        self._cluster: Cluster = cluster or FixedCluster(bookies, trio.lowlevel.spawn_system_task)
        self._config = config
        self._clock = clock
        self._on_damage = on_damage
        self._speculation = Speculation(config.speculation)
        self._deletions = Deletions(store, self._cluster.spawn)
        self._explicit_lacs = ExplicitLacs(self._cluster, config.explicit_lac_interval_s)
        self.first_own_id: int | None = None
        """Ledgers from this id on were made by this client; those before it existed before. None:
        all existing ledgers did. Known before the first of its own has a record."""

    @property
    def placement(self) -> PlacementRules:
        """How bookies are chosen."""
        return self._cluster.rules

    @property
    def bookie_ids(self) -> list[str]:
        """The bookies that are known, sorted."""
        return sorted(self._bookies)

    async def create_ledger(
        self,
        custom_metadata: Mapping[str, bytes],
        listener: WriterListener,
        replication: Replication | None = None,
        *,
        password: bytes | None = None,
    ) -> EntryWriter:
        """A new, empty, open ledger. Without `replication`, or with one bookie, that of the
        configuration, and so for `password`.

        Raises: NotEnoughBookies.
        """
        config = self._config
        copies = config.replication
        if replication is not None and not self.has_one_bookie:
            copies = replication
        groups = copies.groups
        if groups is not None:
            custom_metadata = {**custom_metadata, GROUPS_KEY: encode_groups(groups)}
        ensemble = self._cluster.choose(copies.ensemble_size, copies.write_quorum_size, groups)
        ledger_id = await self._store.next_sequence(ID_SEQUENCE_PATH)
        if self.first_own_id is None or ledger_id < self.first_own_id:
            self.first_own_id = ledger_id  # another task may have taken a later number first
        metadata = LedgerMetadata(
            ensemble_size=len(ensemble),
            write_quorum_size=copies.write_quorum_size,
            ack_quorum_size=copies.ack_quorum_size,
            ensembles={0: ensemble},
            digest_type=config.digest_type,
            password=config.password if password is None else password,
            ctime_ms=self._clock.wall_ms(),
            custom_metadata=custom_metadata,
        )
        version = await self._store.put(
            ledger_path(ledger_id), encode_ledger_metadata(metadata), MUST_NOT_EXIST
        )
        if self.has_one_bookie:
            bookie = self._bookies[ensemble[0]]
            return LedgerWriter(self._store, bookie, ledger_id, metadata, version, listener)
        writer = QuorumWriter(
            self._store,
            self._cluster,
            ledger_id,
            metadata,
            version,
            listener,
            config.delay_ensemble_change,
        )
        self._explicit_lacs.opened(writer)
        return writer

    async def recover(self, ledger_id: int) -> LedgerMetadata:
        """Fence the ledger and close it at its last entry, unless that has been done.

        Raises: LedgerNotFound, LedgerDamaged, RecoveryFailed.
        """
        return await recover_ledger(
            self._store, self._cluster, ledger_id, self._config.request_timeout_s
        )

    async def metadata_of(self, ledger_id: int) -> LedgerMetadata:
        """The ledger's record. Raises: LedgerNotFound, LedgerDamaged."""
        stored = await self._store.get(ledger_path(ledger_id))
        if stored is None:
            raise LedgerNotFound(f"ledger {ledger_id} does not exist")
        return stored_metadata(ledger_id, stored[0])

    async def reader(self, ledger_id: int) -> EntryReader:
        """Read without recovery: a closed ledger, or an open one whose end the caller knows.

        Raises: LedgerNotFound, LedgerDamaged.
        """
        return self.reader_of(ledger_id, await self.metadata_of(ledger_id))

    def reader_of(self, ledger_id: int, metadata: LedgerMetadata) -> EntryReader:
        """The same with metadata already read."""
        now = partial(self.metadata_of, ledger_id)
        return LedgerReader(
            self._bookies, ledger_id, metadata, now, self._speculation, self._on_damage
        )

    async def delete(self, ledger_id: int) -> None:
        """Remove the ledger's record; bookies drop its entries during garbage collection. Deleting
        twice is not an error. While the store does not answer it is tried again in the background.

        Raises: MetadataUnavailable: too many deletions wait, or the store has failed for good.
        """
        await self._deletions.delete(ledger_id)

    async def live_ledgers(self) -> set[int]:
        """All ledgers with a record, which a bookie must keep."""
        return await live_ledgers(self._store)

    async def unknown_ledgers(self, ledger_ids: Iterable[int]) -> list[int]:
        """The ids among `ledger_ids` that were never made according to this metadata store,
        ascending: the store is older than they are."""
        next_id = await self._store.peek_sequence(ID_SEQUENCE_PATH)
        newer = {ledger_id for ledger_id in ledger_ids if ledger_id >= next_id}
        return sorted(newer - await self.live_ledgers()) if newer else []
