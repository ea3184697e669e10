"""The auditor: finds the ledgers that lack copies, and marks them.

After bookies were lost it reads the metadata of all ledgers and marks those that name a bookie that
is not registered. At long intervals it reads the copies of all closed ledgers, too, at a bounded
rate: that may take days, and no audit waits for it. It goes on where it was after the store could
not be reached, and rests while autorecovery is switched off. The order of the ledgers is random, so
that auditors that end early miss no ledger for good.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Final, final

import structlog
import trio

from autorecovery import records
from autorecovery.copies import CopyReader, ReadPace
from autorecovery.fragments import BAD, CopyState, bookies_of, fragments_of
from autorecovery.schedule import AuditSchedule
from autorecovery.statistics import Distribution
from autorecovery.sweep import LedgerSweep, for_each_ledger
from metadata.store import MetadataUnavailable, SessionState
from protocol.bookkeeper.paths import (
    AVAILABLE_ROOT,
    READ_ONLY_ROOT,
    UNDERREPLICATION_ROOT,
)

if TYPE_CHECKING:
    import random

    from autorecovery.config import AutorecoveryConfig
    from autorecovery.marks import Marks
    from ledgers.remote.bookie_pool import BookiePool
    from metadata.store import MetadataStore
    from protocol.bookkeeper.ledger_metadata import LedgerMetadata

log = structlog.get_logger()

RETRY_S: Final = 5.0
LOOK_AGAIN_S: Final = 60.0
"""Whether copies may be checked, while replication is switched off."""
_READ_ONLY_NAME: Final = READ_ONLY_ROOT.rpartition("/")[2]


async def registered_bookies(store: MetadataStore) -> frozenset[str]:
    """All bookies that are registered now, writable or not. Raises: MetadataUnavailable."""
    await store.sync()
    # A bookie that changes to read-only is at both places for a moment, and never at none.
    names = await store.children(AVAILABLE_ROOT)
    read_only = await store.children(READ_ONLY_ROOT)
    again = await store.children(AVAILABLE_ROOT)
    return frozenset((*names, *read_only, *again)) - {_READ_ONLY_NAME}


async def writable_bookies(store: MetadataStore) -> frozenset[str]:
    """The bookies that take entries. Raises: MetadataUnavailable."""
    return frozenset(await store.children(AVAILABLE_ROOT)) - {_READ_ONLY_NAME}


@final
class _CopyCheck:
    """A look at the copies of all ledgers, which may take days."""

    def __init__(self, sweep: LedgerSweep, pace: ReadPace) -> None:
        self.sweep = sweep
        self.pace = pace
        self.begun = trio.current_time()
        self.marked = 0


@final
class Auditor:
    """See the module docstring. `run` while this process is elected."""

    def __init__(
        self,
        store: MetadataStore,
        marks: Marks,
        pool: BookiePool,
        config: AutorecoveryConfig,
        chance: random.Random,
    ) -> None:
        self._store = store
        self._marks = marks
        self._pool = pool
        self._config = config
        self._chance = chance
        self._changed = trio.Event()
        self._delay_written = False
        self._may_differ = False
        """The connection was lost for a while: the delay may have been written unseen."""
        self.audits = 0
        self.ledgers_marked = 0
        self.ledgers_damaged = 0
        """At the last audit."""
        self.ledgers_checked = 0
        """Ledgers whose copies were looked at."""
        self.audit_times = Distribution()
        """Milliseconds of an audit."""
        self.check_times = Distribution()
        """Milliseconds of a look at the copies of all ledgers."""
        self.marked_per_audit = Distribution()
        self.is_checking = False
        """Whether copies are being looked at now."""
        self._check: _CopyCheck | None = None
        """The look at copies that is not at its end, also while it rests."""
        self._schedule = AuditSchedule(
            config.auditorPeriodicBookieCheckInterval, config.lostBookieRecoveryDelay, 0.0
        )
        self._former_delayed = 0
        self._former_cancelled = 0

    @property
    def audits_delayed(self) -> int:
        """See AuditSchedule."""
        return self._former_delayed + self._schedule.audits_delayed

    @property
    def delays_cancelled(self) -> int:
        """See AuditSchedule."""
        return self._former_cancelled + self._schedule.delays_cancelled

    async def run(self) -> None:
        """Until cancelled."""
        config, store = self._config, self._store
        stops = [
            store.watch(path, self._on_change) for path in (AVAILABLE_ROOT, UNDERREPLICATION_ROOT)
        ]
        self._former_delayed = self.audits_delayed
        self._former_cancelled = self.delays_cancelled
        self._check = None
        schedule = self._schedule = AuditSchedule(
            config.auditorPeriodicBookieCheckInterval,
            config.lostBookieRecoveryDelay,
            trio.current_time(),
        )
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._check_at_intervals)
                while True:
                    try:
                        await self._follow(schedule)
                    except MetadataUnavailable as error:
                        log.warning("no audit now", reason=str(error))
                        schedule.audit_now(trio.current_time())
                        await trio.sleep(RETRY_S)
        finally:
            for stop in stops:
                stop()

    async def _follow(self, schedule: AuditSchedule) -> None:
        """Raises: MetadataUnavailable."""
        await self._marks.prepare()
        stored = await self._marks.delay_s()
        if stored is None:
            # As BookKeeper's auditor: the configured one is known to all, and a command changes it.
            delay = str(self._config.lostBookieRecoveryDelay).encode()
            await self._store.put(records.DELAY_PATH, delay, None)
        else:
            schedule.on_delay(stored, trio.current_time())
        self._delay_written = False
        while True:
            registered = await registered_bookies(self._store)
            now = trio.current_time()
            schedule.on_registered(registered, now)
            if self._delay_written or self._may_differ:
                was_written = self._delay_written
                self._delay_written = self._may_differ = False
                delay_s = await self._marks.delay_s() or 0
                if was_written or delay_s != schedule.delay_s:
                    schedule.on_delay(delay_s, now)
            due = schedule.next_audit()
            if now < due or self._store.session_state is not SessionState.LIVE:
                await self._wait(due - now)
            elif await self._marks.is_disabled():
                await self._wait(math.inf)
            else:
                schedule.on_audit_begun(now)
                await self.mark_lost(registered)

    async def _check_at_intervals(self) -> None:
        """Until cancelled."""
        while True:
            try:
                await trio.sleep_until(await self._next_ledgers_check())
                is_live = self._store.session_state is SessionState.LIVE
                if is_live and not await self._marks.is_disabled():
                    await self._check_until_disabled()
                else:
                    await trio.sleep(LOOK_AGAIN_S)
            except MetadataUnavailable as error:
                log.warning("no check of copies now", reason=str(error))
                await trio.sleep(RETRY_S)

    async def _check_until_disabled(self) -> None:
        """`check_ledgers`, which is left where it is when autorecovery is switched off. Raises:
        MetadataUnavailable."""
        failure: MetadataUnavailable | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._cancel_when_disabled, nursery.cancel_scope)
            try:
                await self.check_ledgers()
            except MetadataUnavailable as error:
                failure = error
            nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure

    async def _cancel_when_disabled(self, scope: trio.CancelScope) -> None:
        while True:
            await trio.sleep(RETRY_S)
            try:
                if await self._marks.is_disabled():
                    log.info("check of copies rests: autorecovery is disabled")
                    scope.cancel()
            except MetadataUnavailable:
                continue  # the check itself notices

    async def mark_lost(self, registered: frozenset[str]) -> int:
        """Mark the ledgers that name bookies which are not registered. Returns how many.

        Raises: MetadataUnavailable.
        """
        marked = 0
        begun = trio.current_time()

        async def look(ledger_id: int, metadata: LedgerMetadata) -> None:
            nonlocal marked
            lost = bookies_of(metadata) - registered
            if lost:
                await self._marks.add(ledger_id, sorted(lost), _wall_ms())
                marked += 1

        await self._marks.mark_damaged_again(_wall_ms())
        self.ledgers_damaged = await for_each_ledger(self._store, look)
        self.audits += 1
        self.ledgers_marked += marked
        self.marked_per_audit.add(marked)
        self.audit_times.add((trio.current_time() - begun) * 1000)
        log.info(
            "bookies audited",
            bookies=len(registered),
            ledgers_marked=marked,
            ledgers_damaged=self.ledgers_damaged,
        )
        return marked

    async def check_ledgers(self) -> int:
        """Look at the copies of all closed ledgers, and mark those that lack one. Returns how many.
        After a failure, or a cancellation, the next call goes on where this one was.

        Raises: MetadataUnavailable.
        """
        check = self._check
        if check is None:
            sweep = await LedgerSweep.begin(self._store, self._chance)
            pace = ReadPace(self._config.auditorReadBytesPerSecond)
            check = self._check = _CopyCheck(sweep, pace)

        async def look(ledger_id: int, metadata: LedgerMetadata) -> None:
            is_marked = await self._check_copies(ledger_id, metadata, check.pace)
            check.marked += is_marked
            self.ledgers_checked += 1

        self.is_checking = True
        try:
            await check.sweep.run(look)
        finally:
            self.is_checking = False
        now_ms = records.encode_ledgers_checked(_wall_ms())
        await self._store.put(records.LEDGERS_CHECKED_PATH, now_ms, None)
        self._check = None
        self.ledgers_marked += check.marked
        self.check_times.add((trio.current_time() - check.begun) * 1000)
        log.info("copies of all ledgers checked", ledgers_marked=check.marked)
        return check.marked

    async def _check_copies(self, ledger_id: int, metadata: LedgerMetadata, pace: ReadPace) -> bool:
        """Whether the ledger was marked. Raises: MetadataUnavailable."""
        config = self._config
        reader = CopyReader(self._pool.bookies, ledger_id, metadata, config.readEntryTimeout, pace)
        registered = frozenset((*self._pool.writable, *self._pool.read_only))
        copies = await reader.states(
            registered, config.auditorLedgerVerificationPercentage, self._chance
        )
        lost: set[str] = set()
        damaged: set[str] = set()
        for fragment in fragments_of(metadata):
            for place, bookie_id in enumerate(fragment.ensemble):
                state = copies[fragment.first, place]
                if state in BAD:
                    (lost if state is CopyState.LOST else damaged).add(bookie_id)
        for bookie_id in sorted(damaged):
            met = reader.met.get(bookie_id)
            await self._marks.add_damaged(ledger_id, [bookie_id], _wall_ms(), met)
        if lost:
            await self._marks.add(ledger_id, sorted(lost), _wall_ms())
        return bool(lost or damaged)

    async def _next_ledgers_check(self) -> float:
        """On the scale of trio's clock."""
        interval_s = self._config.auditorPeriodicCheckInterval
        if interval_s <= 0:
            return math.inf
        stored = await self._store.get(records.LEDGERS_CHECKED_PATH)
        checked_ms = records.ledgers_checked_ms(stored[0]) if stored is not None else 0
        passed_s = max(0.0, (_wall_ms() - checked_ms) / 1000)
        return trio.current_time() + max(0.0, interval_s - passed_s)

    async def _wait(self, seconds: float) -> None:
        with trio.move_on_after(max(0.0, seconds)):
            await self._changed.wait()
            await trio.sleep(0.05)  # changes come in groups
        self._changed = trio.Event()

    def _on_change(self, path: str) -> None:
        if path.startswith((records.MARKS_ROOT, records.LOCKS_ROOT, records.DAMAGE_ROOT)):
            return
        self._delay_written = self._delay_written or path == records.DELAY_PATH
        self._may_differ = self._may_differ or path == UNDERREPLICATION_ROOT
        self._changed.set()


def _wall_ms() -> int:
    return int(time.time() * 1000)
