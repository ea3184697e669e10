"""State and metrics of autorecovery over HTTP: paths and bodies of BookKeeper's server, read only.

Pages about the cluster read the metadata store when they are asked for. Lists are bounded. Source:
the endpoint services of BookKeeper 4.17.
"""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import trio

from autorecovery.election import current_auditor
from autorecovery.metrics import add_auditor_series, add_marks_series, add_worker_series
from metadata.store import MetadataUnavailable
from web.state import HEARTBEAT_PATH, METRICS_PATH, heartbeat, json_text, metrics, text

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from autorecovery.auditor import Auditor
    from autorecovery.election import Election
    from autorecovery.marks import Marks
    from autorecovery.worker import ReplicationWorker
    from ledgers.remote.bookie_pool import BookiePool
    from metadata.store import MetadataStore
    from web.asgi import Application
    from web.prometheus import Page
    from web.state import Answer, Query

_ROOT: Final = "/api/v1/autorecovery"
LISTED_MAX: Final = 10_000
"""Marked ledgers in one answer, and as counted for metrics."""
_COUNT_SECONDS: Final = 15.0
"""Marks are counted at most once in this time, however often metrics are requested."""


@final
@dataclass(frozen=True, slots=True)
class RunningAutorecovery:
    """The parts of an autorecovery process that runs: worker and candidate."""

    store: MetadataStore
    marks: Marks
    pool: BookiePool
    auditor: Auditor
    election: Election
    worker: ReplicationWorker
    http_port: int
    """0: there is no HTTP."""


@final
class AutorecoveryState:
    """The shown state of an autorecovery process. `running` is None until it runs."""

    def __init__(self) -> None:
        self.running: RunningAutorecovery | None = None
        self._counted_at = -_COUNT_SECONDS
        self._marks = 0

    def answers(self) -> dict[str, Answer]:
        """By path."""
        return {
            METRICS_PATH: self._metrics,
            HEARTBEAT_PATH: heartbeat,
            f"{_ROOT}/status": self._when_running(self._status),
            f"{_ROOT}/who_is_auditor": self._when_running(self._who_is_auditor),
            f"{_ROOT}/list_under_replicated_ledger": self._when_running(self._marked),
            f"{_ROOT}/lost_bookie_recovery_delay": self._when_running(self._delay),
        }

    def _when_running(
        self, answer: Callable[[RunningAutorecovery, Query], Awaitable[Application]]
    ) -> Answer:
        async def answered(query: Query) -> Application:
            if self.running is None:
                return text(503, "Autorecovery is not fully started yet")
            try:
                return await answer(self.running, query)
            except MetadataUnavailable as error:
                return text(503, str(error))

        return answered

    async def _status(self, running: RunningAutorecovery, _query: Query) -> Application:
        return json_text({"enabled": not await running.marks.is_disabled()})

    async def _who_is_auditor(self, running: RunningAutorecovery, _query: Query) -> Application:
        auditor = await current_auditor(running.store)
        return text(200, f"Auditor: {auditor}") if auditor else text(404, "No auditor elected")

    async def _delay(self, running: RunningAutorecovery, _query: Query) -> Application:
        seconds = await running.marks.delay_s()
        if seconds is None:
            return text(404, "lostBookieRecoveryDelay is not set")
        return text(200, f"lostBookieRecoveryDelay value: {seconds}")

    async def _marked(self, running: RunningAutorecovery, query: Query) -> Application:
        """As JSON: the ids of marked ledgers; with `printmissingreplica` the bookies, too. Only
        ledgers whose marks name the bookie `missingreplica`, and not `excludingmissingreplica`."""
        named = query.get("missingreplica", "").strip()
        unnamed = query.get("excludingmissingreplica", "").strip()
        found: dict[int, list[str]] = {}
        async with aclosing(running.marks.ledger_ids()) as ids:
            async for ledger_id in ids:
                mark = await running.marks.get(ledger_id)
                if mark is None or (named and named not in mark.replicas):
                    continue
                if unnamed not in mark.replicas:
                    found[ledger_id] = list(mark.replicas)
                if len(found) > LISTED_MAX:
                    break
        if len(found) > LISTED_MAX:
            return text(
                503,
                f"There are more than {LISTED_MAX} of them: use `bookkeeper shell "
                "listunderreplicated`",
            )
        if not found:
            return text(404, "No under replicated ledgers found")
        return json_text(found if "printmissingreplica" in query else list(found))

    async def _metrics(self, _query: Query) -> Application:
        running = self.running
        marks = 0 if running is None else await self._count_marks(running)

        def add_series(page: Page) -> None:
            if running is not None:
                add_auditor_series(page, running.auditor, running.election)
                add_worker_series(page, running.worker)
                add_marks_series(page, marks)

        return metrics(add_series)

    async def _count_marks(self, running: RunningAutorecovery) -> int:
        """As counted last, while the store cannot be reached."""
        now = trio.current_time()
        if now - self._counted_at < _COUNT_SECONDS:
            return self._marks
        self._counted_at = now
        count = 0
        try:
            async with aclosing(running.marks.ledger_ids()) as ids:
                async for _ledger_id in ids:
                    count += 1
                    if count >= LISTED_MAX:
                        break
        except MetadataUnavailable:
            return self._marks
        self._marks = count
        return count
