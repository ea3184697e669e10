"""The composition root of an autorecovery process: builds its parts in order, and takes them down.

Up: HTTP answers -> metadata store -> the cluster is there -> the layout of the marks -> the bookies
are known -> worker and election. Down: no candidate any more, locks given back, the session ends.
"""

from __future__ import annotations

import random
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import trio

from autorecovery.auditor import Auditor
from autorecovery.election import Ballot, Election, LeaderNode, Votes
from autorecovery.http import AutorecoveryState, RunningAutorecovery
from autorecovery.marks import Marks, WrongLayout
from autorecovery.worker import ReplicationWorker
from bookie.adds import NoTurn
from bookie.errors import BookieRefusesToStart
from bookie.process.cluster import is_pulsar_driver, require_cluster
from bookie.process.http_port import serve_state
from ledgers.placement import PlacementRules
from ledgers.remote.bookie_pool import BookiePool
from ledgers.remote.config import RemoteConfig
from ledgers.remote.tls_keys import secured
from security.tls_suites import UnusableTls

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from autorecovery.config import AutorecoveryConfig
    from bookie.process.identity import Identity
    from ledgers.remote.network import Connect
    from metadata.store import MetadataStore

_CHANNELS = 2
"""Connections per bookie: one for adds, one for reads."""


def ballot_of(config: AutorecoveryConfig, store: MetadataStore, candidate: str) -> Ballot:
    """The way in which the processes with this configuration elect."""
    return LeaderNode(store, candidate) if is_pulsar_driver(config) else Votes(store, candidate)


@asynccontextmanager
async def a_pool(config: AutorecoveryConfig, store: MetadataStore) -> AsyncIterator[BookiePool]:
    """The bookies of the cluster for the duration of the block.

    Raises: MetadataUnavailable, BookieRefusesToStart: the files for TLS cannot be used.
    """
    remote = RemoteConfig(
        channels=_CHANNELS,
        add_timeout_s=config.addEntryTimeout,
        read_timeout_s=config.readEntryTimeout,
        frame_size_max=config.nettyMaxFrameSizeBytes,
    )
    rules = PlacementRules(
        racks_min=config.minNumRacksPerWriteQuorum,
        are_racks_enforced=config.enforceMinNumRacksPerWriteQuorum,
    )
    pool = BookiePool(store, NoTurn(), remote, rules, secured=_secured(config))
    async with trio.open_nursery() as nursery:
        await nursery.start(pool.run)
        yield pool
        nursery.cancel_scope.cancel()


def _secured(config: AutorecoveryConfig) -> Callable[[Connect], Connect] | None:
    """None: without TLS. Raises: BookieRefusesToStart."""
    try:
        return secured(config)
    except UnusableTls as error:
        raise BookieRefusesToStart(str(error)) from None


@asynccontextmanager
async def running_autorecovery(
    config: AutorecoveryConfig,
    identity: Identity,
    open_store: Callable[[], Awaitable[MetadataStore]],
) -> AsyncIterator[RunningAutorecovery]:
    """Replicates, and audits while elected, for the duration of the block.

    Raises: bookie.errors.StorageError, MetadataUnavailable: it cannot start.
    """
    candidate = identity.bookie_id
    async with AsyncExitStack() as stack:
        front = await stack.enter_async_context(trio.open_nursery())
        stack.callback(front.cancel_scope.cancel)
        state = AutorecoveryState()
        http_port = 0
        if config.httpServerEnabled:  # statsProviderClass is for the bookie with the same file
            http_port = await serve_state(stack, front, config, identity, lambda _: state.answers())
        store = await open_store()
        stack.push_async_callback(_shielded, store.aclose)
        await require_cluster(store)
        marks = Marks(store, candidate)
        try:
            await marks.prepare()
        except WrongLayout as error:
            raise BookieRefusesToStart(str(error)) from error
        pool = await stack.enter_async_context(a_pool(config, store))
        chance = random.Random()
        auditor = Auditor(store, marks, pool, config, chance)
        election = Election(store, ballot_of(config, store, candidate), auditor.run)
        worker = ReplicationWorker(store, marks, pool, config, chance)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker.run)
            nursery.start_soon(election.run)
            running = RunningAutorecovery(store, marks, pool, auditor, election, worker, http_port)
            state.running = running
            yield running
            state.running = None
            nursery.cancel_scope.cancel()


async def _shielded(close: Callable[[], Awaitable[None]]) -> None:
    with trio.CancelScope(shield=True):
        await close()
