"""Deletes orphaned ledgers: ledgers left by a crash that exist but are in no list.

A ledger is created before it is listed and taken off the list before it is deleted, so a crash (or
a metadata store that refuses) between the two leaves a ledger too many, never one too few. Its
bytes would stay for ever: the garbage collection of a bookie keeps it, because it has a record.

A ledger is deleted only if all of the following are proved. In doubt it is kept.

- Its record says that it belongs to a managed ledger of this form, and to which one.
- This broker serves the topic of that managed ledger before and after the list is read, so no other
  broker is about to list it: the version check refuses writes of a former owner.
- It existed before this process made its first ledger, so this process is not about to list it.
- Neither that managed ledger nor one of its cursors names it, read after all of the above, and, if
  the managed ledger is open, it does not hold it in memory. A ledger once unlisted is never listed
  again, except by an owner that did not learn that its write took effect, and that owner still has
  it in memory.
- All those records could be read. A damaged or unknown record protects every ledger of its topic.

One broker at a time searches: it holds a node that is deleted with its session.

Ledgers of schemas have an owner of their own (`LedgerOwner`), which proves the same in another way.
Other ledgers (compacted topics and delayed indexes of real Pulsar, plain BookKeeper) say so in
their record and are left alone.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final, Protocol, final

import structlog
import trio

from broker.managed_ledger.cursor_record import INLINE, attached_ledger, decode_cursor_record
from broker.managed_ledger.ledger_record import decode_ledger_record
from broker.managed_ledger.owner_of_ledger import managed_ledger_of
from broker.managed_ledger.paths import MANAGED_LEDGERS_ROOT, ledger_info_path
from ledgers.errors import LedgerNotFound
from metadata.lease import lease
from metadata.store import MetadataUnavailable, VersionConflict

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from broker.managed_ledger.ledger import ManagedLedger
    from ledgers.client import LedgerClient
    from metadata.store import MetadataStore
    from protocol.bookkeeper.ledger_metadata import LedgerMetadata

_log = structlog.get_logger()

_READS_PER_SLICE: Final = 100
_PAUSE_SECONDS: Final = 0.05
"""Pause after each slice, so that the other work of a broker after its start comes first."""
_LOGGED_MAX: Final = 10
LEASE_PATH: Final = "/vela/orphan-collector"
"""The node of the broker that currently searches for orphans."""


class LedgerOwner(Protocol):
    """A part of the broker that keeps ledgers besides the managed ledgers, and lists of them."""

    async def listed(self, get: Callable[[str], Awaitable[bytes | None]]) -> set[int]:
        """Every ledger in its lists, as far as these can be read. This only avoids examining each
        ledger by itself. `get` reads a node at the pace of the search.

        Raises: MetadataUnavailable.
        """

    async def has_lost(self, ledger_id: int, metadata: LedgerMetadata) -> bool:
        """Whether it is proved that the ledger is its own and that no list names it or will name
        it. The ledger existed before this process made its first one.

        Raises: MetadataUnavailable; any other error: what may name the ledger cannot be read.
        """


@final
class OrphanCollector:
    """See the module docstring."""

    def __init__(
        self,
        store: MetadataStore,
        client: LedgerClient,
        opened: Mapping[str, ManagedLedger],
        serves: Callable[[str], bool],
        others: Sequence[LedgerOwner] = (),
    ) -> None:
        """`serves`: whether this broker serves the topic of the managed ledger of that name.
        `others`: who owns ledgers beside the managed ledgers."""
        self._store = store
        self._serves = serves
        self._client = client
        self._opened = opened
        self._others = others
        self._reads = 0

    async def run(self) -> None:
        """One pass. A failure is logged, and the next start tries again."""
        try:
            deleted = await self.collect()
        except Exception as error:
            _log.warning("orphan ledgers not looked for", error=str(error))
            return
        if deleted:
            _log.info(
                "orphan ledgers deleted", count=len(deleted), ledger_ids=deleted[:_LOGGED_MAX]
            )

    async def collect(self) -> list[int]:
        """Delete the orphans and return their ids; none if another broker is searching.

        Raises: MetadataUnavailable.
        """
        async with AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(lease(self._store, LEASE_PATH))
            except VersionConflict:
                return []
            return await self._collect()

    async def _collect(self) -> list[int]:
        found = await self._client.live_ledgers()
        first_own_id = self._client.first_own_id  # read after the listing: see the module docstring
        candidates = found - await self._all_listed()
        for other in self._others:
            candidates -= await other.listed(self._get)
        deleted = []
        for ledger_id in sorted(candidates):
            if first_own_id is not None and ledger_id >= first_own_id:
                break
            if await self._is_orphan(ledger_id):
                await self._client.delete(ledger_id)
                deleted.append(ledger_id)
        return deleted

    async def _is_orphan(self, ledger_id: int) -> bool:
        """Raises: MetadataUnavailable."""
        try:
            metadata = await self._client.metadata_of(ledger_id)
            name = managed_ledger_of(metadata.custom_metadata)
            if name is None:
                return any([await other.has_lost(ledger_id, metadata) for other in self._others])
            if not self._serves(name):
                return False
            return ledger_id not in await self._listed(name) and self._serves(name)
        except LedgerNotFound:
            return False
        except MetadataUnavailable:
            raise
        except Exception as error:
            _log.warning(
                "ledger kept: what may refer to it cannot be read",
                ledger_id=ledger_id,
                error=str(error),
            )
            return False

    async def _all_listed(self) -> set[int]:
        """Every ledger that some managed ledger names, as far as the records can be read. This only
        avoids examining each ledger by itself."""
        listed: set[int] = set()
        for tenant in await self._store.children(MANAGED_LEDGERS_ROOT):
            for namespace in await self._store.children(f"{MANAGED_LEDGERS_ROOT}/{tenant}"):
                domain = f"{tenant}/{namespace}/persistent"
                for topic in await self._store.children(f"{MANAGED_LEDGERS_ROOT}/{domain}"):
                    try:
                        listed |= await self._listed(f"{domain}/{topic}")
                    except MetadataUnavailable:
                        raise
                    except Exception as error:
                        _log.warning(
                            "record of a topic or cursor cannot be read",
                            topic=f"{domain}/{topic}",
                            error=str(error),
                        )
        return listed

    async def _listed(self, name: str) -> set[int]:
        """The ledgers that a managed ledger and its cursors name.

        Raises: MetadataUnavailable; the error of a codec for a record it does not understand.
        """
        path = ledger_info_path(name)
        stored = await self._get(path)
        listed = set()
        if stored is not None:
            listed = {row.ledger_id for row in decode_ledger_record(stored, path).rows}
        for cursor in await self._store.children(path):
            stored = await self._get(f"{path}/{cursor}")
            if stored is None:
                continue
            record = decode_cursor_record(stored, f"{path}/{cursor}")
            listed.add(record.cursor_ledger_id)
            attached = attached_ledger(record.properties)
            if attached is not None:
                listed.add(attached)
        listed.discard(INLINE)
        ledger = self._opened.get(name)
        return listed if ledger is None else listed | ledger.ledger_ids

    async def _get(self, path: str) -> bytes | None:
        self._reads += 1
        if self._reads % _READS_PER_SLICE == 0:
            await trio.sleep(_PAUSE_SECONDS)
        stored = await self._store.get(path)
        return None if stored is None else stored[0]
