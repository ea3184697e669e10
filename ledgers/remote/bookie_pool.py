"""BookiePool: the bookies of a cluster, as their registrations in the metadata store say.

A bookie that accepts entries is registered at /ledgers/available, one that is only read at
/ledgers/available/readonly. New ledgers, and places of failed bookies, go to the former. Others can
be spoken to as long as their id is an address: a bookie may have lost its session and be there all
the same.

Watches report changes. The rack map and the registrations are then read again, one reading at a
time. What was read last stays in force while the store is out of reach.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, final

import structlog
import trio

from ledgers.placement import (
    RACKS_PATH,
    PlacementRules,
    RackMap,
    choose_ensemble,
    choose_replacements,
    parse_rack_map,
)
from ledgers.quarantine import Quarantine, QuarantineRules
from ledgers.remote.config import RemoteConfig
from ledgers.remote.network import SocketConnector
from ledgers.remote.remote_bookie import AddEncoder, RemoteBookie
from metadata.store import MetadataUnavailable
from protocol.bookkeeper.addresses import address_of_id, address_of_registration
from protocol.bookkeeper.paths import AVAILABLE_ROOT, READ_ONLY_ROOT, available_path, read_only_path

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from collections.abc import Set as AbstractSet

    from bookie.api import BookieApi, Turn
    from ledgers.placement import BookieGroups
    from ledgers.remote.network import Connect
    from metadata.store import MetadataStore

_log = structlog.get_logger()

_READ_ONLY_NAME: Final = READ_ONLY_ROOT.rpartition("/")[2]
READ_AGAIN_S: Final = 1.0
"""Pause after the store could not be read."""
UNREGISTERED_MAX: Final = 1_000
"""Bookies that are spoken to and are not registered."""


@final
class BookiePool:
    """See the module docstring. `run` in a nursery; when it has started, the registrations have
    been read once."""

    def __init__(
        self,
        store: MetadataStore,
        turn: Turn,
        config: RemoteConfig | None = None,
        rules: PlacementRules | None = None,
        quarantine: QuarantineRules | None = None,
        connect: Connect | None = None,
        order: random.Random | None = None,
        secured: Callable[[Connect], Connect] | None = None,
    ) -> None:
        """To be made in the event loop. `connect`: by sockets if it is None. `order`: shuffles
        bookies that are equally fit. `secured`: makes connections secure, as `StartTls` does; None:
        they stay as they are."""
        self.bookies: Mapping[str, BookieApi] = _Bookies(self)
        """See Cluster."""
        self.racks = RackMap()
        self.writable: tuple[str, ...] = ()
        """Ids of the bookies that accept entries, sorted."""
        self.read_only: tuple[str, ...] = ()
        self.members_moved = trio.Event()
        """Set when `writable` or `read_only` have changed, and another one then takes its place."""
        self._store = store
        self._turn = turn
        self._config = config if config is not None else RemoteConfig()
        self.rules = rules if rules is not None else PlacementRules()
        self._quarantine = Quarantine(quarantine if quarantine is not None else QuarantineRules())
        self._sockets = SocketConnector()
        self._has_sockets = connect is None
        below: Connect = self._sockets if connect is None else connect
        self._connect: Connect = below if secured is None else secured(below)
        self._order = order if order is not None else random.Random()
        self._encoder = AddEncoder()
        self.addresses: Mapping[str, tuple[str, int]] = {}
        """Host and port of every registered bookie by its id, or the path of its socket and 0."""
        self._remotes: dict[str, RemoteBookie] = {}
        self._scopes: dict[str, trio.CancelScope] = {}
        self._nursery: trio.Nursery | None = None
        self._changed = trio.Event()

    @property
    def avoided(self) -> frozenset[str]:
        """Bookies that failed too often a while ago."""
        return self._quarantine.avoided(trio.current_time())

    @property
    def bytes_in_flight(self) -> int:
        """Bytes of adds that no bookie has answered yet."""
        return sum(remote.bytes_in_flight for remote in self._remotes.values())

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Follow the registrations until cancelled.

        Raises: MetadataUnavailable: they could not be read at the start.
        """
        stop_bookies = self._store.watch(AVAILABLE_ROOT, self._on_change)
        stop_racks = self._store.watch(RACKS_PATH, self._on_change)
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                if self._has_sockets:
                    nursery.start_soon(self._sockets.run)
                await self._read()
                task_status.started()
                while True:
                    await self._changed.wait()
                    self._changed = trio.Event()
                    try:
                        await self._read()
                    except MetadataUnavailable as error:
                        _log.warning("bookies_not_read", reason=str(error))
                        self._changed.set()
                        await trio.sleep(READ_AGAIN_S)
        finally:
            self._nursery = None
            stop_bookies()
            stop_racks()

    def _on_change(self, path: str) -> None:
        self._changed.set()

    async def _read(self) -> None:
        store = self._store
        names = await store.children(AVAILABLE_ROOT)
        writable = [name for name in names if name != _READ_ONLY_NAME]
        read_only = [name for name in await store.children(READ_ONLY_ROOT) if name not in writable]
        addresses: dict[str, tuple[str, int]] = {}
        paths = {each: read_only_path(each) for each in read_only}
        paths |= {each: available_path(each) for each in writable}
        for bookie_id, path in paths.items():
            stored = await store.get(path)
            address = address_of_registration(bookie_id, stored[0] if stored else b"")
            if address is not None:
                addresses[bookie_id] = address
        stored = await store.get(RACKS_PATH)
        try:
            self.racks = parse_rack_map(stored[0]) if stored and stored[0] else RackMap()
        except ValueError as error:
            _log.error("rack_map_ignored", reason=str(error))
        now_writable = tuple(each for each in writable if each in addresses)
        if now_writable != self.writable:
            _log.info("bookies", writable=len(now_writable), read_only=len(read_only))
        before = self.writable, self.read_only
        self.writable = now_writable
        self.read_only = tuple(each for each in read_only if each in addresses)
        self.addresses = addresses
        self._drop_unknown()
        if before != (self.writable, self.read_only):
            self.members_moved.set()
            self.members_moved = trio.Event()

    def _drop_unknown(self) -> None:
        """Bound what is kept of bookies that are no members any more."""
        unknown = [each for each in self._remotes if each not in self.addresses]
        for bookie_id in unknown[: max(0, len(unknown) - UNREGISTERED_MAX)]:
            self._scopes.pop(bookie_id).cancel()
            del self._remotes[bookie_id]
            self._quarantine.forget(bookie_id)

    # --- speaking to bookies ------------------------------------------------------------

    def remote(self, bookie_id: str) -> RemoteBookie | None:
        """The client of one bookie; None: its address is not known."""
        found = self._remotes.get(bookie_id)
        if found is not None:
            return found
        if self._nursery is None or not (
            bookie_id in self.addresses or address_of_id(bookie_id) is not None
        ):
            return None

        def address() -> tuple[str, int]:
            known = self.addresses.get(bookie_id) or address_of_id(bookie_id)
            if known is None:
                raise OSError(f"bookie {bookie_id} is not registered, its address is not known")
            return known

        def on_failure(reason: str) -> None:
            self.on_bookie_failed(bookie_id, reason)

        remote = RemoteBookie(
            bookie_id,
            address,
            self._config,
            self._turn,
            self._encoder,
            on_failure,
            self._connect,
        )
        scope = trio.CancelScope()
        self._remotes[bookie_id] = remote
        self._scopes[bookie_id] = scope
        self._nursery.start_soon(_run_in, scope, remote)
        return remote

    def kick(self) -> None:
        """Send all adds that were collected: the end of a turn."""
        for remote in self._remotes.values():
            remote.kick()

    # --- Cluster ------------------------------------------------------------------------

    def choose(
        self, ensemble_size: int, write_quorum_size: int, groups: BookieGroups | None = None
    ) -> tuple[str, ...]:
        """See Cluster."""
        return choose_ensemble(
            ensemble_size,
            write_quorum_size,
            self._shuffled(),
            self.racks,
            self.rules.within(groups),
            avoid=self.avoided,
        )

    def replace(
        self,
        ensemble: Sequence[str],
        failed: AbstractSet[int],
        write_quorum_size: int,
        exclude: AbstractSet[str],
        groups: BookieGroups | None = None,
    ) -> tuple[str, ...]:
        """See Cluster."""
        return choose_replacements(
            ensemble,
            failed,
            write_quorum_size,
            self._shuffled(),
            self.racks,
            self.rules.within(groups),
            exclude=exclude,
            avoid=self.avoided,
        )

    def _shuffled(self) -> list[str]:
        return self._order.sample(self.writable, len(self.writable))

    def on_bookie_failed(self, bookie_id: str, reason: str) -> None:
        """See Cluster."""
        if self._quarantine.on_failure(bookie_id, trio.current_time(), self._order.random()):
            _log.warning("bookie_avoided", bookie=bookie_id, reason=reason)

    def spawn(self, work: Callable[..., Awaitable[object]], *arguments: object) -> None:
        """See Cluster."""
        if self._nursery is not None:
            self._nursery.start_soon(work, *arguments)


async def _run_in(scope: trio.CancelScope, remote: RemoteBookie) -> None:
    with scope:
        await remote.run()


@final
class _Bookies(Mapping[str, "BookieApi"]):
    """The pool as a mapping. Bookies that are not registered are found, too, if their id is an
    address; only those that are registered are listed."""

    def __init__(self, pool: BookiePool) -> None:
        self._pool = pool

    def __getitem__(self, bookie_id: str) -> BookieApi:
        remote = self._pool.remote(bookie_id)
        if remote is None:
            raise KeyError(bookie_id)
        return remote

    def __iter__(self) -> Iterator[str]:
        return iter((*self._pool.writable, *self._pool.read_only))

    def __len__(self) -> int:
        return len(self._pool.writable) + len(self._pool.read_only)
