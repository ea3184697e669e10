"""Finds orphaned ledgers of schemas: a crash came between the ledger and the list of versions.

`OrphanCollector` describes the proofs that come first. Any broker may add a version, because the
partitions of a topic have one schema and several owners. It therefore also has to be proved that no
other broker is about to list the ledger:

- It is older than a broker waits before it gives an unlisted ledger up (`LISTED_SECONDS_MAX`), with
  a margin for clocks that differ. A ledger without a time is of real Pulsar and is left alone. If
  this process is the only user of the store there is no other broker, and age does not matter.
- If the topic has a list, the list is written once more as it is, and the ledger was not in it. A
  broker that read the list before then is refused when it adds to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from broker.tenancy.namespaces.names import SCHEMAS_PATH
from broker.tenancy.schemas.schema_format import (
    DamagedSchema,
    decode_locator,
    schema_id_of_ledger,
)
from broker.tenancy.schemas.schema_ledgers import LISTED_SECONDS_MAX, locator_path
from metadata.store import VersionConflict

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from metadata.store import MetadataStore
    from protocol.bookkeeper.ledger_metadata import LedgerMetadata
    from runtime.clock import Clock

UNLISTED_SECONDS_MIN: Final = 6 * LISTED_SECONDS_MAX


@final
class SchemaLedgerOwner:
    """LedgerOwner of `OrphanCollector`."""

    def __init__(
        self, store: MetadataStore, clock: Clock, unlisted_seconds_min: float = UNLISTED_SECONDS_MIN
    ) -> None:
        """`unlisted_seconds_min` 0: no other process uses the store."""
        self._store = store
        self._clock = clock
        self._unlisted_ms_min = unlisted_seconds_min * 1000

    async def listed(self, get: Callable[[str], Awaitable[bytes | None]]) -> set[int]:
        """Every ledger that some topic lists, as far as the lists can be read."""
        listed: set[int] = set()
        for tenant in await self._store.children(SCHEMAS_PATH):
            for namespace in await self._store.children(f"{SCHEMAS_PATH}/{tenant}"):
                parent = f"{SCHEMAS_PATH}/{tenant}/{namespace}"
                for topic in await self._store.children(parent):
                    try:
                        listed |= _ledgers_of(await get(f"{parent}/{topic}"))
                    except DamagedSchema:
                        continue  # `has_lost` reports it, if it protects a ledger
        return listed

    async def has_lost(self, ledger_id: int, metadata: LedgerMetadata) -> bool:
        """Whether it is a ledger of a schema that no list names or will name.

        Raises: MetadataUnavailable; DamagedSchema: the list protects every ledger of its topic.
        """
        schema_id = schema_id_of_ledger(metadata.custom_metadata)
        if schema_id is None:
            return False
        if self._unlisted_ms_min and not (
            metadata.ctime_ms > 0
            and self._clock.wall_ms() - metadata.ctime_ms >= self._unlisted_ms_min
        ):
            return False
        await self._store.sync()
        path = locator_path(schema_id)
        stored = await self._store.get(path)
        if stored is None:
            return True
        if ledger_id in _ledgers_of(stored[0]):
            return False
        try:
            await self._store.put(path, stored[0], stored[1])
        except VersionConflict:
            return False  # in use: the next start looks again
        return True


def _ledgers_of(locator: bytes | None) -> set[int]:
    """Raises: DamagedSchema."""
    if locator is None:
        return set()
    return {each.ledger_id for each in decode_locator(locator)}
