"""A broker by itself: metadata in its own data directory, one bookie in the same process, and every
topic its own.
"""

from __future__ import annotations

import os
from dataclasses import fields
from typing import TYPE_CHECKING, Final, final

import structlog
import trio

from bookie.bookie import Bookie
from bookie.config import BookieConfig
from bookie.cookie import FILE_NAME as COOKIE
from bookie.cookie import refuse_other_cluster
from bookie.disk import RealDisk
from bookie.net.read_only import ReadOnlyBookie
from bookie.net.server import BookieServer, BookieServerConfig
from broker.assembly.ledger_client import ledger_client_config
from broker.assembly.listening import cannot_listen
from broker.assembly.outliving import outliving
from broker.assembly.parts import BookiePorts, StartError, Storage, shielded
from broker.ground.data_directory import JOURNAL, LEDGERS, METADATA
from broker.managed_ledger.config import ManagedLedgerConfig
from broker.managed_ledger.factory import ManagedLedgerFactory
from broker.managed_ledger.orphans import OrphanCollector
from broker.peers.ownership import SoleBroker
from broker.tenancy.schemas.orphan_schemas import SchemaLedgerOwner
from broker.topics.follow.following_factory import FollowingFactory
from broker.topics.follow.records_read import RecordsRead
from ledgers.client import LedgerClient
from protocol.bookkeeper.paths import INSTANCE_ID_PATH
from runtime.open_files import bookie_connections_max
from settings.kinds import or_no_limit
from settings.reading import typed_values

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from contextlib import AsyncExitStack
    from pathlib import Path

    from broker.assembly.parts import Served
    from broker.ground.config import BrokerConfig
    from broker.ground.turn import Turns
    from broker.managed_ledger.ledger import ManagedLedger
    from metadata.store import MetadataStore
    from runtime.clock import Clock
    from runtime.readers import Readers

NO_SHADOWS: Final = (
    "only brokers of a cluster serve shadows. Subscribe to the source, start `vela standalone` "
    "with --brokers 2 or more, remove the property PULSAR.SHADOW_SOURCE, or delete the topic with "
    "force"
)

log = structlog.get_logger()


@final
class Embedded:
    """The Deployment of `vela standalone`. `data_directory` is locked by the caller; None keeps all
    data in memory."""

    def __init__(self, config: BrokerConfig, data_directory: Path | None) -> None:
        self._config = config
        self._data_directory = data_directory
        self._open_ledgers: Mapping[str, ManagedLedger] = {}

    async def open_storage(
        self,
        stack: AsyncExitStack,
        nursery: trio.Nursery,
        turns: Turns,
        readers: Readers,
        clock: Clock,
    ) -> Storage:
        """See Deployment. Metadata store -> bookie (journal replay) -> ledger client -> managed
        ledgers. The bookie hands adds to the journal in its turns, and its journals wake the task
        that reads connections."""
        config, data_directory = self._config, self._data_directory
        store = await _open_store(nursery, config, data_directory)
        stack.push_async_callback(shielded, store.aclose)
        no_bookies = LedgerClient(store, {}, ledger_client_config(config), clock)
        if data_directory is not None:
            await _refuse_lost_bookie(config, data_directory, no_bookies)
            await _refuse_moved(config, data_directory, store)
        bookie = await _open_bookie(config, data_directory, no_bookies.live_ledgers)
        stack.push_async_callback(shielded, bookie.aclose)
        if data_directory is not None:
            await _refuse_older_metadata(data_directory, no_bookies, bookie)
        await nursery.start(bookie.run)
        bookies = {bookie.config.bookieId: bookie}
        ledgers = LedgerClient(store, bookies, ledger_client_config(config), clock)
        bookie.set_live_ledgers(ledgers.live_ledgers)
        bookie.set_turn(turns)
        bookie.use_readers(readers)
        managed = ManagedLedgerConfig.from_broker_config(config)
        records = RecordsRead(store)
        factory = ManagedLedgerFactory(records, ledgers, managed, clock, session=store)
        following = FollowingFactory(
            store, ledgers, managed, clock, factory, records, no_shadows=NO_SHADOWS
        )
        background = await stack.enter_async_context(outliving(nursery))
        await background.start(factory.run)
        await background.start(following.run)
        self._open_ledgers = factory.ledgers
        return Storage(
            store=store,
            ledgers=ledgers,
            factory=following,
            health=_BookieHealth(bookie),
            bookie=bookie,
            kick=bookie.kick,
            shadows=following,
        )

    def owners(self, broker: Served) -> SoleOwner:
        """See Deployment."""
        return SoleOwner(broker, self._open_ledgers)

    async def open_bookie_ports(
        self, front: trio.Nursery, storage: Storage, host: str
    ) -> BookiePorts:
        """See Deployment. Off unless bookiePort is given."""
        config, bookie = self._config, storage.bookie
        if config.bookiePort < 0 or bookie is None:
            return BookiePorts()
        server = await _serve_bookie(front, bookie, config)
        address = f"{host}:{server.port}"
        return BookiePorts({bookie.config.bookieId: address}, address, server)


@final
class SoleOwner:
    """The Owners of a broker that shares nothing."""

    cluster = None

    def __init__(self, broker: Served, open_ledgers: Mapping[str, ManagedLedger]) -> None:
        self._broker = broker
        self._open_ledgers = open_ledgers
        self.ownership = SoleBroker(broker.address)

    async def prepare(self) -> None:
        """See Owners."""
        await self._broker.service.namespaces.bootstrap(self._broker.address)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """See Owners. The owner of all topics looks for ledgers that a crash left behind."""
        storage = self._broker.storage
        task_status.started()
        schemas = SchemaLedgerOwner(storage.store, self._broker.clock, unlisted_seconds_min=0)
        await OrphanCollector(
            storage.store, storage.ledgers, self._open_ledgers, lambda _name: True, [schemas]
        ).run()

    def use(self, config: BrokerConfig) -> None:
        """See Owners: nothing depends on it."""

    async def wait_joined(self) -> None:
        """See Owners: no other broker assigns topics."""
        await trio.lowlevel.checkpoint()

    async def leave(self) -> None:
        """See Owners: there is no one to hand topics to."""
        await trio.lowlevel.checkpoint()


@final
class _BookieHealth:
    """The StorageHealth of a bookie in this process."""

    def __init__(self, bookie: Bookie) -> None:
        self._bookie = bookie

    @property
    def failure(self) -> str:
        if self._bookie.statistics().state == "failed":
            return "The bookie has failed: nothing can be stored, see the log"
        return ""

    @property
    def unwritable(self) -> str:
        if not self._bookie.is_writable():
            return "The bookie is read-only: nothing can be stored, the disk is full"
        return ""

    @property
    def damage(self) -> str:
        return self._bookie.damage


async def _open_store(
    nursery: trio.Nursery, config: BrokerConfig, data_directory: Path | None
) -> MetadataStore:
    if data_directory is None:
        from metadata.memory_store import MemoryStore

        return MemoryStore()
    from metadata.rocks_store import RocksStore
    from metadata.store import MetadataUnavailable

    # New metadata beside a bookie with data would make all of that data garbage.
    may_create = not _bookie_has_data(bookie_config(config, data_directory))
    try:
        store = await RocksStore.open(data_directory / METADATA, may_create=may_create)
    except MetadataUnavailable as error:
        raise StartError(str(error)) from error
    nursery.start_soon(store.run)
    return store


async def _open_bookie(
    config: BrokerConfig,
    data_directory: Path | None,
    live_ledgers: Callable[[], Awaitable[set[int]]],
) -> Bookie:
    if data_directory is None:
        from bookie.index_memory import MemoryIndex
        from bookie.memory_disk import MemoryDisk

        return await Bookie.open(
            BookieConfig.in_memory(), MemoryDisk(), open_index=lambda _path: MemoryIndex()
        )
    try:
        return await Bookie.open(bookie_config(config, data_directory), live_ledgers=live_ledgers)
    except OSError as error:
        raise StartError(f"cannot open the bookie's storage: {error}") from error


async def _refuse_lost_bookie(
    config: BrokerConfig, data_directory: Path, ledgers: LedgerClient
) -> None:
    """A new bookie would say of every ledger that it was never written.

    Raises: StartError.
    """
    bookie = bookie_config(config, data_directory)
    if _bookie_has_data(bookie):
        return
    known = await ledgers.live_ledgers()
    if known:
        raise StartError(
            f"{', '.join(bookie.ledgerDirectories)}: no data of a bookie, but "
            f"{data_directory / METADATA} names {len(known)} ledgers. Mount the lost directories "
            "again, or restore them and the metadata directory from one backup. To begin without "
            "any data, move the metadata and the journal directories away, too"
        )


async def _refuse_moved(config: BrokerConfig, data_directory: Path, store: MetadataStore) -> None:
    """Directories that joined a cluster with other metadata are served by its brokers.

    Raises: StartError, BookieRefusesToStart.
    """
    instance = await store.get(INSTANCE_ID_PATH)
    await trio.to_thread.run_sync(
        refuse_other_cluster,
        bookie_config(config, data_directory),
        RealDisk(),
        None if instance is None else instance[0].decode(errors="replace"),
    )


async def _refuse_older_metadata(
    data_directory: Path, ledgers: LedgerClient, bookie: Bookie
) -> None:
    """Garbage collection would delete all ledgers that are newer than the metadata.

    Raises: StartError.
    """
    newer = await ledgers.unknown_ledgers(bookie.ledger_ids())
    if newer:
        raise StartError(
            f"{data_directory / METADATA} is older than the bookie's directories, or the end of "
            f"its write-ahead log is lost: it does not know ledger {newer[0]} and "
            f"{len(newer) - 1} later ones. Restore the metadata directory and the bookie's "
            "directories from one backup"
        )


def _bookie_has_data(config: BookieConfig) -> bool:
    return any(os.path.exists(f"{name}/current/{COOKIE}") for name in config.ledgerDirectories)


def bookie_config(config: BrokerConfig, data_directory: Path) -> BookieConfig:
    """The embedded bookie's configuration. Raises: StartError."""
    values = typed_values(config)
    shared = {field.name for field in fields(BookieConfig)} & values.keys()
    try:
        return BookieConfig(
            **{name: values[name] for name in shared}
            | {
                "journalDirectories": config.journalDirectories or (str(data_directory / JOURNAL),),
                "ledgerDirectories": config.ledgerDirectories or (str(data_directory / LEDGERS),),
            }
        )
    except ValueError as error:
        raise StartError(str(error)) from error


async def _serve_bookie(front: trio.Nursery, bookie: Bookie, config: BrokerConfig) -> BookieServer:
    """The running server of the bookie's reads. Raises: StartError."""
    server = BookieServer(
        ReadOnlyBookie(bookie),
        BookieServerConfig(
            frame_size_max=config.nettyMaxFrameSizeBytes,
            batch_read_bytes_max=config.maxBatchReadSize,
            connections_max=bookie_connections_max(config.bookieMaxConnections),
            reads_pending_max=or_no_limit(
                config.maxPendingReadRequestsPerThread * max(1, config.numReadWorkerThreads)
            ),
            # The other half is left for the broker's own reads of old entries.
            reads_at_once=max(1, config.numReadWorkerThreads // 2),
        ),
    )
    host, port = config.bindAddress, config.bookiePort
    try:
        await server.bind(host, port)
    except OSError as error:
        raise cannot_listen("bookiePort", host, port, error) from error
    await front.start(server.run)
    log.info("the bookie serves reads to other processes", address=host, port=server.port)
    return server
