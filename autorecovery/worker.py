"""The replication worker: takes marked ledgers one by one, and makes their copies complete again.

For each ledger: look at all copies, copy what is lost to other bookies, name those in the ledger's
metadata by compare-and-set, look again. The mark goes when nothing remains. A ledger whose last
segment is being written, and names a lost bookie, is left to its writer for a time
(openLedgerRereplicationGracePeriod); then it is fenced and closed, and copied like others.

No step removes anything: a worker that ends anywhere leaves copies that are not named, or a
mark that is worked on again.
"""

from __future__ import annotations

import math
from enum import Enum
from typing import TYPE_CHECKING, Final, final

import structlog
import trio

from autorecovery.copies import Copier, CopyReader, NoSource, NotStored
from autorecovery.fragments import Copies, Repair, Rest, findings
from autorecovery.schedule import REMEMBERED_MAX, BackOff
from autorecovery.statistics import Distribution
from ledgers.errors import LedgerDamaged, LedgerNotFound, NotEnoughBookies, RecoveryFailed
from ledgers.recovery import recover_ledger
from metadata.store import MetadataUnavailable, SessionState, VersionConflict
from protocol.bookkeeper.ledger_metadata import (
    InvalidMetadata,
    decode_ledger_metadata,
    encode_ledger_metadata,
)
from protocol.bookkeeper.paths import AVAILABLE_ROOT, UNDERREPLICATION_ROOT, ledger_path

if TYPE_CHECKING:
    import random
    from collections.abc import Set as AbstractSet

    from autorecovery.config import AutorecoveryConfig
    from autorecovery.marks import Mark, Marks
    from ledgers.remote.bookie_pool import BookiePool
    from metadata.store import MetadataStore
    from protocol.bookkeeper.ledger_metadata import LedgerMetadata

log = structlog.get_logger()

RETRY_S: Final = 1.0
LOOK_AGAIN_S: Final = 60.0
"""For marks, besides when something changes."""
_ROUNDS_MAX: Final = 10
"""Looks at one ledger before its lock is given back."""


class Outcome(Enum):
    """The outcome of the work on one ledger."""

    COMPLETE = "complete"
    DELETED = "deleted"
    LEFT_TO_WRITER = "left to its writer"


class Incomplete(Exception):
    """Copies are missing, and could not be made. The text says why."""


@final
class _Tried:
    """The repairs that were tried for one ledger, and are not tried again."""

    __slots__ = ("filled", "refused")

    def __init__(self) -> None:
        self.refused: set[str] = set()
        """Bookies that did not store what they were given."""
        self.filled: set[tuple[int, int]] = set()
        """Copies, as in Copies, that were filled, or should have been."""


@final
class ReplicationWorker:
    """See the module docstring."""

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
        self._back_off = BackOff()
        self._writers: dict[int, tuple[tuple[int, tuple[str, ...]], float]] = {}
        """Open ledgers left to their writers: the last segment, and until when."""
        self._changed = trio.Event()
        self._registered: frozenset[str] = frozenset()
        self.ledgers_completed = 0
        self.ledgers_failed = 0
        self.entries_copied = 0
        self.bytes_copied = 0
        self.entries_read = 0
        self.bytes_read = 0
        self.entries_without_source = 0
        """Entries that no bookie gave when they were to be copied."""
        self.replications = Distribution()
        """Milliseconds of work on one ledger."""

    @property
    def ledgers_waiting(self) -> int:
        """Ledgers that are tried again later."""
        return len(self._back_off)

    async def run(self) -> None:
        """Until cancelled."""
        stops = [
            self._store.watch(path, self._on_change)
            for path in (UNDERREPLICATION_ROOT, AVAILABLE_ROOT)
        ]
        try:
            while True:
                try:
                    worked = await self._work_on_one()
                except MetadataUnavailable as error:
                    log.warning("no ledgers replicated now", reason=str(error))
                    await trio.sleep(RETRY_S)
                    continue
                if not worked:
                    await self._wait()
        finally:
            for stop in stops:
                stop()
            await self._unlock()

    def _on_change(self, path: str) -> None:
        del path
        self._changed.set()

    async def _wait(self) -> None:
        pause = min(self._back_off.next_at() - trio.current_time(), LOOK_AGAIN_S)
        with trio.move_on_after(max(0.05, pause)):
            await self._changed.wait()
            await trio.sleep(0.05)  # changes come in groups
        self._changed = trio.Event()

    async def _work_on_one(self) -> bool:
        """False: there is nothing to do now. Raises: MetadataUnavailable."""
        if self._store.session_state is not SessionState.LIVE or await self._marks.is_disabled():
            return False
        now = trio.current_time()
        registered = frozenset((*self._pool.writable, *self._pool.read_only))
        if registered - self._registered:
            self._back_off.on_bookies_changed(now)
        self._registered = registered
        if not self._pool.writable:
            return False

        def is_waiting(ledger_id: int) -> bool:
            return self._back_off.is_waiting(ledger_id, now)

        mark = await self._marks.lock_one(is_waiting, self._chance)
        if mark is None:
            return False
        begun = trio.current_time()
        try:
            await self._work_on(mark)
        finally:
            self.replications.add((trio.current_time() - begun) * 1000)
            await self._unlock()
        return True

    async def _unlock(self) -> None:
        """A worker that is cancelled while it takes a lock gives it back, too: other workers of
        this session would wait for it as long as the session lasts."""
        with trio.move_on_after(RETRY_S) as scope:
            scope.shield = True
            try:
                await self._marks.unlock_all()
            except MetadataUnavailable as error:
                log.info("lock not given back yet", reason=str(error))

    async def _work_on(self, mark: Mark) -> None:
        """Raises: MetadataUnavailable."""
        ledger_id = mark.ledger_id
        try:
            outcome = await self.replicate(ledger_id, mark.damaged, mark.met)
        except Incomplete as error:
            self.ledgers_failed += 1
            if self._back_off.on_failure(ledger_id, trio.current_time()):
                log.error("ledger lacks copies", ledger_id=ledger_id, reason=str(error))
            return
        if outcome in (Outcome.COMPLETE, Outcome.DELETED):
            self._back_off.on_success(ledger_id)
            if await self._marks.remove(mark):
                self.ledgers_completed += 1
                log.info("ledger has all copies", ledger_id=ledger_id, outcome=outcome.value)

    async def replicate(
        self,
        ledger_id: int,
        suspected: AbstractSet[str] = frozenset(),
        met: AbstractSet[tuple[str, int]] = frozenset(),
    ) -> Outcome:
        """Make the copies of one ledger complete. `suspected`: bookies whose copies may be damaged
        anywhere, and are read whole. `met`: entries that such a bookie did not give.

        Raises: Incomplete, MetadataUnavailable.
        """
        tried = _Tried()
        for _round in range(_ROUNDS_MAX):
            stored = await self._store.get(ledger_path(ledger_id))
            if stored is None:
                self._writers.pop(ledger_id, None)
                return Outcome.DELETED
            try:
                metadata = decode_ledger_metadata(stored[0])
            except InvalidMetadata as error:
                raise Incomplete(f"{ledger_path(ledger_id)} is damaged: {error}") from error
            copies = await self._look(ledger_id, metadata, suspected, met)
            found = findings(metadata, copies, frozenset(self._pool.writable), tried.filled)
            for repair in found.repairs:
                metadata, version = await self._repair(
                    ledger_id, metadata, stored[1], repair, tried
                )
                if version is None:
                    break  # another process changed the ledger: look again
                stored = stored[0], version
            else:
                if found.repairs:
                    continue
                if found.rest is not Rest.WRITER:
                    self._writers.pop(ledger_id, None)
                if found.rest is Rest.NOTHING:
                    return Outcome.COMPLETE
                if found.rest is Rest.ASK_AGAIN:
                    raise Incomplete("a registered bookie does not answer")
                if not self._is_writer_late(ledger_id, metadata):
                    return Outcome.LEFT_TO_WRITER
                await self._close(ledger_id)
        raise Incomplete(f"its copies or its metadata changed {_ROUNDS_MAX} times meanwhile")

    async def _look(
        self,
        ledger_id: int,
        metadata: LedgerMetadata,
        suspected: AbstractSet[str],
        met: AbstractSet[tuple[str, int]],
    ) -> Copies:
        config = self._config
        reader = CopyReader(self._pool.bookies, ledger_id, metadata, config.readEntryTimeout)
        registered = frozenset((*self._pool.writable, *self._pool.read_only))
        return await reader.states(registered, 0, self._chance, suspected, met)

    async def _repair(
        self,
        ledger_id: int,
        metadata: LedgerMetadata,
        version: int,
        repair: Repair,
        tried: _Tried,
    ) -> tuple[LedgerMetadata, int | None]:
        """The metadata afterwards and its version; None: it is not what it was.

        Raises: Incomplete, MetadataUnavailable.
        """
        fragment, config = repair.fragment, self._config
        ensemble = list(fragment.ensemble)
        if repair.move:
            try:
                ensemble = list(
                    self._pool.replace(
                        fragment.ensemble,
                        set(repair.move),
                        fragment.write_quorum_size,
                        tried.refused,
                    )
                )
            except NotEnoughBookies as error:
                raise Incomplete(str(error)) from error
        copier = Copier(
            self._pool.bookies,
            ledger_id,
            metadata,
            config.addEntryTimeout,
            config.rereplicationEntryBatchSize,
        )
        try:
            for place in repair.fill:
                tried.filled.add((fragment.first, place))
                await copier.fill(fragment, place)
            for place in repair.move:
                await copier.copy(fragment, place, ensemble[place])
        except NotStored as error:
            tried.refused.add(error.bookie_id)
            return metadata, None  # a bookie that keeps nothing is not filled twice
        except NoSource as error:
            self.entries_without_source += 1
            raise Incomplete(str(error)) from error
        finally:
            self.entries_copied += copier.entries
            self.bytes_copied += copier.bytes
            self.entries_read += copier.entries_read
            self.bytes_read += copier.bytes_read
        if not repair.move:
            return metadata, version
        changed = metadata.with_ensemble(fragment.first, tuple(ensemble))
        try:
            path = ledger_path(ledger_id)
            version = await self._store.put(path, encode_ledger_metadata(changed), version)
        except VersionConflict:
            return metadata, None
        log.info(
            "fragment replicated",
            ledger_id=ledger_id,
            first_entry_id=fragment.first,
            entries=copier.entries,
            to=[ensemble[place] for place in repair.move],
        )
        return changed, version

    def _is_writer_late(self, ledger_id: int, metadata: LedgerMetadata) -> bool:
        """Whether the writer had its time to replace the lost bookie."""
        now = trio.current_time()
        segment, until = self._writers.get(ledger_id, (None, math.inf))
        if segment != metadata.last_ensemble:
            until = now + self._config.openLedgerRereplicationGracePeriod / 1000
            self._writers[ledger_id] = metadata.last_ensemble, until
            if len(self._writers) > REMEMBERED_MAX:
                del self._writers[next(iter(self._writers))]
        if now >= until:
            return True
        self._back_off.wait_until(ledger_id, until)
        return False

    async def _close(self, ledger_id: int) -> None:
        """Fence the ledger and decide its end. Raises: Incomplete, MetadataUnavailable."""
        self._writers.pop(ledger_id, None)
        try:
            await recover_ledger(self._store, self._pool, ledger_id, self._config.readEntryTimeout)
        except LedgerNotFound:
            return
        except (LedgerDamaged, RecoveryFailed) as error:
            raise Incomplete(str(error)) from error
