"""Reports to bookies how far open ledgers are confirmed (explicit last-add-confirmed).

Every entry states how far its ledger was confirmed when it was sent. So a reader that has only the
bookies does not know the last entries of a ledger whose writer is idle. With an interval, a ledger
that was confirmed further since the last time is reported to the bookies of its last confirmed
entry, by WRITE_LAC. A reader that asks them by READ_LAC learns it at most one interval later.

Invariants: a ledger has at most one such write under way, and no two within an interval; at most
`WRITES_AT_ONCE` ledgers are written at once. A write that did not reach an ack quorum is repeated
after the next interval, with what is confirmed then.

Source: ExplicitLacUpdateFlow and PendingWriteLacOp of BookKeeper.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import structlog
import trio

from bookie.api import BookieError
from ledgers.open_ledgers import OpenLedgers
from protocol.bookkeeper.digests import Digest, master_key
from protocol.bookkeeper.ledger_layout import write_set

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ledgers.cluster import Cluster
    from ledgers.entry_writer import RecordedWriter

_log = structlog.get_logger()

WRITES_AT_ONCE: Final = 64


@final
class ExplicitLacs:
    """See the module docstring."""

    def __init__(self, cluster: Cluster, interval_s: float) -> None:
        """0: nothing is reported."""
        self._cluster = cluster
        self._interval_s = interval_s
        self._ledgers: OpenLedgers[RecordedWriter] = OpenLedgers()
        self._is_running = False

    def opened(self, writer: RecordedWriter) -> None:
        """The ledger of this writer is reported until the writer stops."""
        if self._interval_s <= 0:
            return
        self._ledgers.opened(writer)
        if not self._is_running:
            self._is_running = True
            self._cluster.spawn(self._run)

    async def _run(self) -> None:
        while True:
            await trio.sleep(self._interval_s)
            problems: list[str] = []
            due = iter(self._ledgers.due())
            async with trio.open_nursery() as nursery:
                for _ in range(WRITES_AT_ONCE):
                    nursery.start_soon(self._tell, due, problems)
            if problems:
                _log.warning("explicit_lac_not_written", ledgers=len(problems), first=problems[0])

    async def _tell(self, due: Iterator[tuple[RecordedWriter, int]], problems: list[str]) -> None:
        for writer, confirmed in due:
            refusals = await self._write(writer, confirmed)
            if refusals is None:
                self._ledgers.told(writer, confirmed)
            else:
                problems.append(f"ledger {writer.ledger_id}: {'; '.join(refusals)}")

    async def _write(self, writer: RecordedWriter, confirmed: int) -> list[str] | None:
        """None: an ack quorum has it. Otherwise the reasons."""
        metadata = writer.metadata
        ensemble = metadata.last_ensemble[1]
        digest = Digest(metadata.digest_type, metadata.password)
        body = digest.explicit_lac(writer.ledger_id, confirmed)
        key = master_key(metadata.password)
        missing = metadata.ack_quorum_size
        refusals: list[str] = []

        async def write(bookie_id: str) -> None:
            nonlocal missing
            bookie = self._cluster.bookies.get(bookie_id)
            if bookie is None:
                refusals.append(f"{bookie_id}: not available")
                return
            try:
                await bookie.write_explicit_lac(writer.ledger_id, body, key)
            except BookieError as error:
                refusals.append(f"{bookie_id}: {error}")
                return
            missing -= 1
            if missing <= 0:
                nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            for index in write_set(confirmed, len(ensemble), metadata.write_quorum_size):
                nursery.start_soon(write, ensemble[index])
        return refusals if missing > 0 else None
