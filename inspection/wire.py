"""Entries of a ledger from the bookies that have them, over their ports.

Reads neither fence nor recover: of an open ledger those entries are read that a bookie gives.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import trio

from bookie.adds import NoTurn
from bookie.api import LAST_ENTRY, BookieError, Status
from inspection.files import NotReadable
from ledgers.errors import EntryAbsent, LedgerError
from ledgers.ledger_reader import LedgerReader
from ledgers.remote.bookie_pool import BookiePool
from ledgers.remote.config import RemoteConfig
from protocol.bookkeeper.digests import Digest, DigestMismatch, entry_metadata

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from bookie.api import BookieApi
    from ledgers.remote.network import Connect
    from metadata.store import MetadataStore
    from protocol.bookkeeper.ledger_metadata import LedgerMetadata

RUN_ENTRIES_MAX: Final = 100
_CONFIG: Final = RemoteConfig(channels=2, read_timeout_s=10.0)
_ABSENT: Final = frozenset({Status.NO_ENTRY, Status.NO_LEDGER})


@asynccontextmanager
async def a_pool(
    store: MetadataStore, secured: Callable[[Connect], Connect] | None = None
) -> AsyncIterator[BookiePool]:
    """The bookies of the cluster. Raises: MetadataUnavailable."""
    pool = BookiePool(store, NoTurn(), _CONFIG, secured=secured)
    async with trio.open_nursery() as nursery:
        await nursery.start(pool.run)
        yield pool
        nursery.cancel_scope.cancel()


async def payloads(
    pool: BookiePool, ledger_id: int, metadata: LedgerMetadata, first: int, last: int | None
) -> AsyncIterator[tuple[int, bytes]]:
    """(entry id, payload) from any bookie that has it, digests checked. Without `last`: up to the
    end of a closed ledger, or the first entry of an open one that no bookie has.

    Raises: NotReadable.
    """

    async def as_given() -> LedgerMetadata:
        return metadata

    reader = LedgerReader(pool.bookies, ledger_id, metadata, as_given)
    end = metadata.last_entry_id if metadata.is_closed else None
    if end is not None:
        last = end if last is None else min(last, end)
    entry_id = first
    while last is None or entry_id <= last:
        run_last = entry_id + RUN_ENTRIES_MAX - 1
        try:
            found = await reader.read(entry_id, run_last if last is None else min(last, run_last))
        except EntryAbsent as error:
            if end is None:
                return
            raise NotReadable(str(error)) from error
        except LedgerError as error:
            raise NotReadable(str(error)) from error
        for payload in found:
            yield entry_id, payload
            entry_id += 1


async def copies_on(
    pool: BookiePool,
    bookie_id: str,
    ledger_id: int,
    metadata: LedgerMetadata,
    first: int,
    last: int | None,
) -> AsyncIterator[tuple[int, bytes]]:
    """(entry id, payload) that one bookie has; those that it lacks are left out. It says itself
    what its last entry is: what the metadata of a damaged ledger say may be without end, and an
    open ledger has no end there.

    Raises: NotReadable.
    """
    bookie = pool.bookies.get(bookie_id)
    if bookie is None:
        raise NotReadable(f"bookie {bookie_id} is not registered, and its address is not known")
    digest = Digest(metadata.digest_type, metadata.password)
    newest = await _copy_on(bookie, bookie_id, ledger_id, LAST_ENTRY)
    if newest is None:
        return
    try:
        end = entry_metadata(newest)[1]
        digest.verify(newest, ledger_id, end)
        if metadata.is_closed:
            end = min(end, metadata.last_entry_id)
        for entry_id in range(first, min(end, end if last is None else last) + 1):
            body = await _copy_on(bookie, bookie_id, ledger_id, entry_id)
            if body is not None:
                yield entry_id, digest.verified_payload(body, ledger_id, entry_id)
    except DigestMismatch as error:
        raise NotReadable(f"bookie {bookie_id}: {error}") from error


async def _copy_on(
    bookie: BookieApi, bookie_id: str, ledger_id: int, entry_id: int
) -> bytes | None:
    """The body, unverified; None: the bookie lacks it. Raises: NotReadable."""
    try:
        return await bookie.read_entry(ledger_id, entry_id)
    except BookieError as error:
        if error.status in _ABSENT:
            return None
        raise NotReadable(f"bookie {bookie_id}: {error}") from error
