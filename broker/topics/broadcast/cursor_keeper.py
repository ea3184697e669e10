"""Keeps the main cursor at the lowest virtual cursor, and stores all virtual cursors.

There is one task per subscription. At the snapshot interval it drops virtual cursors whose
retention is over and stores the chunks that have changed. It also wakes at once when a new name
must be durable before its consumer is answered. All callers of `commit` that arrive meanwhile share
one write, so that a storm of subscribers costs a bounded number of writes.

A crash never puts a named consumer after its last ack, for these reasons. The stored state was true
at some time, so each stored position is at or before the present one. A name is stored before its
consumer is answered. If the main cursor is ahead of a stored position, it is at the lowest of all
positions at a later time, so continuing from there skips no unacknowledged entry. Moving backwards
(seek, an earlier start) is answered only after the main cursor and the snapshot are stored.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, final

import structlog
import trio

from broker.topics.broadcast.snapshot_codec import (
    NAMES,
    POSITIONS,
    SnapshotDamaged,
    decode_names,
    decode_positions,
    encode_names,
    encode_positions,
    ragged_from,
)
from broker.topics.broadcast.virtual_cursors import CHUNK_SHIFT
from ledgers.errors import LedgerError
from protocol.errors import BrokerError, ServerError, ServiceNotReady

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.topics.broadcast.ordinals import Ordinals
    from broker.topics.broadcast.snapshot_codec import ChunkKey
    from broker.topics.broadcast.snapshot_store import SnapshotStore
    from broker.topics.broadcast.virtual_cursors import VirtualCursors
    from broker.topics.subscription.consumer import Consumer
    from broker.topics.subscription.ports import CursorPort
    from runtime.clock import Clock

COMMIT_LINGER_SECONDS: Final = 0.001
"""How long new names wait for others to be stored with them."""
CLOSE_SECONDS_MAX: Final = 5.0
GRACE_SECONDS: Final = 300.0
"""After a restart every virtual cursor is kept at least this long, or for the retention time."""
CHUNKS_PER_TURN: Final = 16
CALLS_PER_TURN: Final = 200
"""Consumers answered before other tasks run."""
STORM_CONSUMERS: Final = 50
"""When this many wait for a write of new names, writes are at least this far apart:"""
COMMIT_SECONDS_MIN: Final = 0.025

_log = structlog.get_logger()


def _no_one(_dropped: object) -> None:
    pass


@final
class CursorKeeper:
    """See the module docstring."""

    def __init__(
        self,
        cursor: CursorPort,
        cursors: VirtualCursors,
        ordinals: Ordinals,
        store: SnapshotStore | None,
        clock: Clock,
        retention_seconds: float,
        interval_seconds: float,
        on_dropped: Callable[[list[int]], None],
        on_advanced: Callable[[int], None],
        attached: dict[Consumer, int],
    ) -> None:
        self._cursor = cursor
        self._cursors = cursors
        self._ordinals = ordinals
        self._store = store
        self._clock = clock
        self._retention_seconds = retention_seconds
        self._interval_seconds = interval_seconds
        self._on_dropped = on_dropped
        self._on_advanced = on_advanced
        self._attached = attached
        """The connected consumers. One that has left must not be answered SUCCESS."""
        self.marked = ordinals.of(cursor.mark_delete)
        """The ordinal of the main cursor."""
        ordinals.move_anchor(cursor.mark_delete, self.marked)
        self.follows_tail = False
        """Without virtual cursors nothing is held, except before the first one has been created."""
        self.unknown_until = 0.0
        """Until then unknown names start at the main cursor, because their stored state is lost."""
        self.failure = ""
        """Why the last attempt to store the snapshot failed."""
        self.snapshots = 0
        self.moved_last_ms = 0
        """When the main cursor last advanced."""
        self._lowering = False
        self._wanted = 0
        self._waiters: deque[Callable[[BrokerError | None], None]] = deque()
        self._waiters_wanted: deque[int] = deque()
        """The state that each of the waiters waits for. One deque of triples would need one more
        object for each of them, all of which the garbage collector would visit."""
        self._waiters_consumers: deque[Consumer] = deque()
        self._stored = 0
        self._attempts = 0
        self._wake = trio.Event()
        self._done = trio.Event()
        self._closed = False
        self._running = False
        self._finished = trio.Event()

    # --- main cursor --------------------------------------------------------------------

    def advance(self) -> None:
        """Positions have moved: set the main cursor to the lowest."""
        target = self._cursors.minimum
        if target is None:
            if not self.follows_tail or self._clock.now() < self.unknown_until:
                return
            target = self._ordinals.tail
        if target != self.marked:
            self._move_to(target)

    def _move_to(self, target: int) -> None:
        if target < self.marked or self._lowering:
            self.marked = target
            self._lowering = True
            self._wake.set()
            return
        position = self._ordinals.position(target)
        self._cursor.ack_cumulative(position)
        self._ordinals.move_anchor(position, target)
        self.marked = target
        self.moved_last_ms = self._clock.wall_ms()
        self._on_advanced(target)

    def move_to(self, ordinal: int) -> None:
        """An administrator moves all consumers or, without virtual cursors, the main cursor."""
        self.changed()
        if self._cursors.minimum is not None:
            self.advance()
        elif ordinal != self.marked:
            self._move_to(ordinal)

    # --- durability ---------------------------------------------------------------------

    def changed(self) -> None:
        """There is a change that `commit` must wait for."""
        self._wanted += 1

    def call_when_stored(
        self, consumer: Consumer, call: Callable[[BrokerError | None], None]
    ) -> None:
        """As `commit`, for an attached consumer. Calls at once if there is nothing to store;
        otherwise a consumer that has left meanwhile gets an error."""
        if self._closed:
            call(ServiceNotReady("the subscription is being closed"))
        elif self._stored >= self._wanted or (self._store is None and not self._lowering):
            call(None)
        else:
            self._waiters.append(call)
            self._waiters_wanted.append(self._wanted)
            self._waiters_consumers.append(consumer)
            self._wake.set()

    async def _tell_waiters(self) -> None:
        """Tell those whose changes are stored; after a failure, all."""
        waiters, wanted, consumers = self._waiters, self._waiters_wanted, self._waiters_consumers
        while waiters and (self.failure or self._closed or wanted[0] <= self._stored):
            for _ in range(min(CALLS_PER_TURN, len(waiters))):
                error: BrokerError | None = None
                if wanted[0] <= self._stored:
                    if consumers[0] not in self._attached:
                        error = ServiceNotReady("The subscription was closed; try again")
                elif self.failure or self._closed:
                    reason = self.failure or "the subscription is being closed"
                    error = BrokerError(
                        ServerError.PersistenceError,
                        f"the position of the consumer could not be stored: {reason}",
                    )
                else:
                    break
                wanted.popleft()
                consumers.popleft()
                waiters.popleft()(error)
            await trio.lowlevel.checkpoint()

    async def commit(self) -> None:
        """Return when everything up to the last `changed` is durable.

        Raises: BrokerError PersistenceError: it could not be stored now.
        """
        wanted = self._wanted
        if self._store is None and not self._lowering:
            return
        while self._stored < wanted or self._lowering:
            attempts = self._attempts
            self._wake.set()
            await self._done.wait()
            if self.failure and self._attempts > attempts and self._stored < wanted:
                raise BrokerError(
                    ServerError.PersistenceError,
                    f"the position of the consumer could not be stored: {self.failure}",
                )
            if self._closed and self._stored < wanted:
                raise BrokerError(ServerError.ServiceNotReady, "the subscription is being closed")

    async def run(self) -> None:
        """Store and expire virtual cursors, until closed."""
        self._running = True
        written_at = stored_at = self._clock.now()
        try:
            while not self._closed:
                with trio.move_on_after(self._interval_seconds):
                    await self._wake.wait()
                if self._wake.is_set():
                    self._wake = trio.Event()
                    if not self._closed:
                        since = self._clock.now() - written_at
                        storm = len(self._waiters) >= STORM_CONSUMERS
                        wait = COMMIT_SECONDS_MIN - since if storm else 0.0
                        await trio.sleep(max(COMMIT_LINGER_SECONDS, wait))
                self.expire()
                written_at = now = self._clock.now()
                everything = now - stored_at >= self._interval_seconds
                if everything:
                    stored_at = now
                await self._try_store(everything=everything or self._closed)
            with trio.move_on_after(CLOSE_SECONDS_MAX):
                await self._try_store(everything=True)
                if self._store is not None:
                    await self._store.close()
        except (LedgerError, BrokerError) as error:  # the next load recovers the ledger
            _log.warning("virtual_cursors_ledger_not_closed", error=str(error))
        finally:
            self._running = False
            self._closed = True
            self._finished.set()
            self._done.set()

    def expire(self) -> None:
        """Drop the virtual cursors of consumers that did not return."""
        dropped = self._cursors.expire(self._clock.now())
        if dropped:
            self._on_dropped(dropped)
            self.advance()

    async def _try_store(self, *, everything: bool) -> None:
        wanted = self._wanted
        try:
            if self._lowering:
                await self._lower()
            await self._write(everything=everything)
        except Exception as error:
            if self.failure != str(error):
                self.failure = str(error) or repr(error)
                _log.warning(
                    "virtual_cursors_not_stored", subscription=self._cursor.name, error=self.failure
                )
        else:
            self.failure = ""
            self._stored = wanted
        self._attempts += 1
        await self._tell_waiters()
        done, self._done = self._done, trio.Event()
        done.set()

    async def _lower(self) -> None:
        """Move the main cursor back to `marked`, which may move meanwhile."""
        target = None
        while target is None or self.marked < target:
            target = self.marked
            await self._cursor.reset(self._ordinals.position(target))
        self._lowering = False
        reached, self.marked = self.marked, target
        if reached != target:
            self._move_to(reached)

    async def _write(self, *, everything: bool) -> None:
        store, cursors = self._store, self._cursors
        if store is None:
            return
        names = set(cursors.changed_names)
        positions = set(cursors.changed_positions) if everything else set(names)
        if not names and not positions:
            return
        if store.wants_all:
            chunks = (len(cursors.names) - 1 >> CHUNK_SHIFT) + 1
            names, positions = set(range(chunks)), set(range(chunks))
        blobs: dict[ChunkKey, bytes] = {}
        try:
            for chunk in sorted(names | positions):
                if chunk in names:
                    cursors.changed_names.discard(chunk)
                    now, wall_ms = self._clock.now(), self._clock.wall_ms()
                    blobs[NAMES, chunk] = encode_names(cursors, chunk, now, wall_ms)
                if chunk in positions:
                    cursors.changed_positions.discard(chunk)
                    blobs[POSITIONS, chunk] = encode_positions(
                        cursors, chunk, self._ordinals.position
                    )
                if chunk % CHUNKS_PER_TURN == CHUNKS_PER_TURN - 1:
                    # Each chunk is true at its own instant, which is sufficient for recovery.
                    await trio.lowlevel.checkpoint()
            await store.write(blobs)
        except BaseException:
            cursors.changed_names |= names
            cursors.changed_positions |= positions
            raise
        self.snapshots += 1

    # --- recovery -----------------------------------------------------------------------

    async def load(self) -> None:
        """Load the stored state. Called once, before any consumer joins.

        Raises: BrokerError ServiceNotReady: it cannot be read now. PersistenceError: it is damaged.
        """
        store = self._store
        if store is None or store.ledger_id is None:
            return
        self.follows_tail = True
        blobs = await store.load()
        if store.lost:
            self.unknown_until = self._clock.now() + self._retention_seconds
            return
        try:
            self._restore(blobs)
        except SnapshotDamaged as error:
            raise BrokerError(
                ServerError.PersistenceError,
                f"the stored virtual cursors of {self._cursor.name} are damaged: {error}",
            ) from error
        self._cursors.restored()

    def _restore(self, blobs: dict[ChunkKey, bytes]) -> None:
        now, wall = self._clock.now(), self._clock.wall_ms() / 1000
        cursors, ordinals = self._cursors, self._ordinals
        for kind, chunk in sorted(blobs):
            if kind != NAMES:
                continue
            names = decode_names(blobs[NAMES, chunk])
            stored = decode_positions(blobs[POSITIONS, chunk])
            for offset, row in enumerate(names.rows):
                position = stored.rows[offset] if offset < len(stored.rows) else None
                if row is None or position is None:
                    continue
                name, kept_until = row
                slot = (chunk << CHUNK_SHIFT) + offset
                left = kept_until - wall if kept_until else self._retention_seconds
                # The wall clock may have been set back since.
                left = min(left, self._retention_seconds)
                # No consumer could return while the broker was down, and one that had just returned
                # may be stored as gone.
                left = max(left, min(self._retention_seconds, GRACE_SECONDS))
                acked = max(ordinals.of(position), self.marked)
                cursors.restore(slot, name, acked, now + left)
                if offset in stored.ranges:
                    ragged = ragged_from(stored.ranges[offset], stored.batches[offset], ordinals.of)
                    cursors.restore_ragged(slot, ragged)

    # --- end ----------------------------------------------------------------------------

    def disconnect(self) -> None:
        """Forget those to notify. Call it after `close`."""
        self._on_dropped = self._on_advanced = _no_one

    async def close(self) -> None:
        """Store everything and stop."""
        self._closed = True
        self._wake.set()
        if self._running:
            await self._finished.wait()
