"""Looks at all ledgers of the metadata store, some at once, each once.

A sweep that fails goes on where it was: the ledgers that were being looked at then are looked at
again, and no others. A ledger whose metadata is damaged is reported and left out, without effect on
other ledgers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import structlog
import trio

from metadata.ledger_list import live_ledgers
from metadata.store import MetadataUnavailable
from protocol.bookkeeper.ledger_metadata import InvalidMetadata, decode_ledger_metadata
from protocol.bookkeeper.paths import ledger_path

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable

    from metadata.store import MetadataStore
    from protocol.bookkeeper.ledger_metadata import LedgerMetadata

log = structlog.get_logger()

READS_AT_ONCE: Final = 16


@final
class LedgerSweep:
    """The ledgers that are still to be looked at."""

    def __init__(self, store: MetadataStore, pending: list[int]) -> None:
        """`pending`: the last one comes first."""
        self._store = store
        self._pending = pending
        self.damaged = 0
        """Ledgers whose metadata is damaged."""

    @classmethod
    async def begin(cls, store: MetadataStore, order: random.Random | None = None) -> LedgerSweep:
        """All ledgers that there are now, by ids or in an order by chance. Raises:
        MetadataUnavailable."""
        pending = sorted(await live_ledgers(store), reverse=True)
        if order is not None:
            order.shuffle(pending)
        return cls(store, pending)

    async def run(self, look: Callable[[int, LedgerMetadata], Awaitable[None]]) -> None:
        """Call `look` for every ledger that is left and still exists. Raises:
        MetadataUnavailable."""
        failure: MetadataUnavailable | None = None

        async def work_unless_failed(scope: trio.CancelScope) -> None:
            nonlocal failure
            try:
                await self._work(look)
            except MetadataUnavailable as error:
                failure = error
                scope.cancel()

        async with trio.open_nursery() as nursery:
            for _ in range(READS_AT_ONCE):
                nursery.start_soon(work_unless_failed, nursery.cancel_scope)
        if failure is not None:
            raise failure

    async def _work(self, look: Callable[[int, LedgerMetadata], Awaitable[None]]) -> None:
        while self._pending:
            ledger_id = self._pending.pop()
            try:
                metadata = await self._metadata(ledger_id)
                if metadata is not None:
                    await look(ledger_id, metadata)
            except BaseException:
                self._pending.append(ledger_id)
                raise

    async def _metadata(self, ledger_id: int) -> LedgerMetadata | None:
        path = ledger_path(ledger_id)
        stored = await self._store.get(path)
        if stored is None:
            return None
        try:
            return decode_ledger_metadata(stored[0])
        except InvalidMetadata as error:
            self.damaged += 1
            log.error("ledger metadata is damaged", path=path, reason=str(error))
            return None


async def for_each_ledger(
    store: MetadataStore, look: Callable[[int, LedgerMetadata], Awaitable[None]]
) -> int:
    """Call `look` for every ledger that exists all the time. Returns the number of ledgers whose
    metadata is damaged. Raises: MetadataUnavailable."""
    sweep = await LedgerSweep.begin(store)
    await sweep.run(look)
    return sweep.damaged
