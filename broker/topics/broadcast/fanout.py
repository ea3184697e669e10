"""Sends entries to the consumers of a broadcast subscription, in slices.

It works in steps while there is something to send (`Turns.run_steps`). Each step serves a few
connections (`Lane`s), round robin, with at most `SLICE_BYTES` each, and then lets others work:
acks, pings and publishes are read between two steps and not only after the whole fan-out. A
connection with a full outbox is skipped until it has room. A group whose entry must come from
storage waits for one reading task, which serves the longest-waiting group first. Neither delays
other consumers.

There is no task or call per consumer and message: a slice is an array of slots, the heads are made
in one loop (`native.broadcast`), and the entry is shared.
"""

from __future__ import annotations

from array import array
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple, final

import structlog
import trio

from broker.topics.broadcast.lane import Lane
from broker.topics.subscription.consumer import Delivery
from broker.topics.subscription.dispatch_gate import Allowance, DispatchGate
from broker.topics.subscription.withheld import WithheldEntries
from protocol.ack_set import to_words
from protocol.errors import BrokerError
from protocol.left_out import EPOCH_UNSET

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.topics.broadcast.entry_window import EntryWindow, ReadyEntry
    from broker.topics.broadcast.fanout_groups import FanoutGroups
    from broker.topics.broadcast.lane import GroupKey
    from broker.topics.broadcast.ordinals import Ordinals
    from broker.topics.broadcast.stages import Stages
    from broker.topics.broadcast.virtual_cursors import VirtualCursors
    from broker.topics.subscription.consumer import AckRunTarget, Consumer, ConsumerSession
    from broker.topics.subscription.factory import TopicContext

STEP_BYTES: Final = 2 * 1024 * 1024
"""Bytes sent in one step, before other tasks run."""
SLICE_BYTES: Final = 1024 * 1024
"""Bytes sent to one connection in one step."""
SLICE_CONSUMERS: Final = 1_000
LANE_COST_BYTES: Final = 2_048
"""The cost of switching to a connection, in bytes that could have been sent."""
HEAD_BYTES: Final = 64
ROUNDS_MAX: Final = 64
PASS_OVER_MAX: Final = 1_000_000
SOLO_CONSUMERS: Final = 64
SOLO_ENTRIES: Final = 32


@final
class Slice(NamedTuple):
    """The bounds of one step."""

    step_bytes: int
    """Before other tasks run."""
    size_bytes: int
    """To one connection."""
    rounds: int
    """Of a connection, each at most this many consumers of two groups, and so many entries to so
    many consumers served alone."""
    consumers: int
    solo_consumers: int
    solo_entries: int


FULL_SLICE: Final = Slice(
    STEP_BYTES, SLICE_BYTES, ROUNDS_MAX, SLICE_CONSUMERS, SOLO_CONSUMERS, SOLO_ENTRIES
)
RETRY_FIRST_SECONDS: Final = 0.1
RETRY_LAST_SECONDS: Final = 5.0

_log = structlog.get_logger()


def _no_step() -> bool:
    return False


@final
class Fanout:
    """See the module docstring."""

    def __init__(
        self,
        name: str,
        context: TopicContext,
        cursors: VirtualCursors,
        groups: FanoutGroups,
        ordinals: Ordinals,
        window: EntryWindow,
        stages: Stages,
        target: AckRunTarget,
    ) -> None:
        self.lanes: dict[ConsumerSession, Lane] = {}
        self.consumers: list[Consumer | None] = []
        """Consumers by slot."""
        self.messages_out = 0
        self.bytes_out = 0
        self.sent_last_ms = 0
        self.failure = ""
        """Why storage cannot be read now."""
        self._name = name
        self._context = context
        self._expose = context.config.expose_broker_entry_metadata
        self._cursors = cursors
        self._groups = groups
        self._ordinals = ordinals
        self._window = window
        self._stages = stages
        self._target = target
        self._withheld = WithheldEntries(context.topic_name, name)
        self._queue: deque[Lane] = deque()
        self._active = False
        self._reading = False
        self._closed = False
        self._turned_to = ordinals.tail
        self._slice = FULL_SLICE
        self.entries_out = 0
        """Copies, as each of them counts for the rates of dispatch."""
        self.gate = DispatchGate(name, context, self._resume)
        """Its rates of dispatch."""
        self._next_step = self._step_of_rates()

    # --- consumers ----------------------------------------------------------------------

    def attach(self, slot: int, consumer: Consumer) -> None:
        """The consumer of the slot is connected."""
        consumers = self.consumers
        while len(consumers) <= slot:
            consumers.append(None)
        consumers[slot] = consumer
        session = consumer.session
        lane = self.lanes.get(session)
        if lane is None:
            lane = self.lanes[session] = Lane(session)
        runs = session.ack_runs_for(self._target)  # by now another broadcast may have the place
        if runs is not None:
            lane.ack_runs = runs
            runs.add(consumer.consumer_id, slot)
        bounded = consumer.sub_type == 1
        epoch = max(consumer.epoch, EPOCH_UNSET)
        self._groups.attach(slot, lane, consumer.consumer_id, epoch, bounded=bounded)

    def detach(self, slot: int, consumer: Consumer) -> None:
        """The consumer has left."""
        self.consumers[slot] = None
        lane = self._groups.detach(slot)
        if lane is None:
            return
        if lane.ack_runs is not None:
            lane.ack_runs.remove(consumer.consumer_id)
        if not lane.members:
            self.lanes.pop(consumer.session, None)

    def consumer_at(self, slot: int) -> Consumer | None:
        """The consumer connected as this slot."""
        return self.consumers[slot] if slot < len(self.consumers) else None

    # --- wake-ups -----------------------------------------------------------------------

    def wake(self, lane: Lane | None) -> None:
        """The connection may have something to send."""
        if lane is None or lane.queued or lane.full:
            return
        lane.queued = True
        self._queue.append(lane)
        self._start()

    def tail_moved(self) -> None:
        """There are new entries."""
        queue = self._queue
        for lane in self.lanes.values():
            if not lane.queued and not lane.full and lane.groups:
                lane.queued = True
                queue.append(lane)
        if queue:
            self._start()

    def on_writable(self, lane: Lane) -> None:
        """The connection has room again."""
        if lane.full:
            lane.full = False
            self.wake(lane)

    def _start(self) -> None:
        if not self._active and not self._closed:
            self._active = True
            self._context.turns.run_steps(self._go_on, self._context.nursery)

    def _go_on(self) -> bool:
        """One step, unless nothing is left. Returns whether to go on."""
        if self._queue and not self._closed and self._next_step() and self._queue:
            return True
        self._active = False
        return False

    # --- rates of dispatch --------------------------------------------------------------

    def limits_changed(self) -> None:
        """Take up the rates in force. Without any, a step costs nothing for them."""
        self.gate.renew()
        self._next_step = self._step_of_rates()
        if self._queue:
            self._start()

    def _step_of_rates(self) -> Callable[[], bool]:
        return self._step_within_rates if self.gate.limits else self.step

    def _resume(self) -> None:
        """It has waited for its turn."""
        if self._queue and not self._closed and self._step_within_rates() and self._queue:
            self._start()

    def _step_within_rates(self) -> bool:
        """Serve a connection with what the rates allow. Returns whether to go on."""
        allowed = self.gate.allowed(self._backlog(), Allowance(SLICE_CONSUMERS, SLICE_BYTES))
        if allowed is None:
            return False
        copies = max(1, allowed.entries // 2)  # for each of the two groups
        self._slice = Slice(1, allowed.size_bytes, 1, copies, 1, min(allowed.entries, SOLO_ENTRIES))
        entries, messages, size_bytes = self.entries_out, self.messages_out, self.bytes_out
        try:
            return self.step()
        finally:
            self._slice = FULL_SLICE
            self.gate.sent(
                self.entries_out - entries,
                self.messages_out - messages,
                self.bytes_out - size_bytes,
            )

    def _backlog(self) -> int:
        return self._ordinals.tail - (self._cursors.minimum or 0)

    @property
    def full_lanes(self) -> int:
        """Connections that wait for room in their outbox."""
        return sum(lane.full for lane in self.lanes.values())

    # --- one step -----------------------------------------------------------------------

    def step(self) -> bool:
        """Serve a few connections. Returns True: there may be more."""
        tail = self._ordinals.tail
        if tail > self._turned_to:
            now = self._context.clock.now()
            for ordinal in range(max(self._turned_to, tail - 100) + 1, tail + 1):
                self._stages.turned_to(ordinal, now)
            self._turned_to = tail
        self.sent_last_ms = self._context.clock.wall_ms()
        queue = self._queue
        budget = self._slice.step_bytes
        while queue and budget > 0:
            lane = queue.popleft()
            lane.queued = False
            if lane.members:
                budget -= self._serve(lane, tail) + LANE_COST_BYTES
        if self._window.wanted and not self._reading:
            self._reading = True
            self._context.nursery.start_soon(self._read)
        return True

    def _serve(self, lane: Lane, tail: int) -> int:
        session = lane.session
        sent_bytes = 0
        progress = False
        rounds = 0
        most = self._slice
        while session.writable and sent_bytes < most.size_bytes and rounds < most.rounds:
            rounds += 1
            spent = self._serve_solos(lane, session, tail) if lane.solos else 0
            front = lane.front(tail)
            if front is not None:
                spent += self._serve_group(lane, session, front)
                rear = lane.rear(tail) if len(lane.groups) > 1 else None
                if rear is not None and rear[0] < front[0]:
                    spent += self._serve_group(lane, session, rear)
            if not spent:
                break
            progress = True
            sent_bytes += spent
        if not session.writable:
            lane.full = True
        elif progress and (lane.solos or lane.front(tail) is not None):
            lane.queued = True
            self._queue.append(lane)
        if progress and lane.served < tail and lane.front(tail) is None:
            lane.served = tail
            self._stages.served(tail, self._context.clock.now())
        return sent_bytes

    def _serve_group(self, lane: Lane, session: ConsumerSession, key: GroupKey) -> int:
        """Send the next entry of a group to some of its members. Returns the bytes; 0 if the
        entry is not in memory."""
        position, epoch = key
        ordinal = position + 1
        ready = self._window.get(ordinal)
        groups = self._groups
        if ready is None:
            if ordinal in self._window.missing:
                groups.advance(lane, groups.take(lane, key, PASS_OVER_MAX), epoch, ordinal, 0, 0)
                return 1
            lane.starved = True
            return 0
        if not ready.messages:
            self._skip_withheld(lane, key, ready)
            return 1
        data = self._data_for(ready, session)
        size = len(data)
        most = self._slice
        count = min(most.consumers, most.size_bytes // (size + HEAD_BYTES) + 1)
        slots = groups.take(lane, key, count)
        copies = len(slots)
        session.deliver_to_many(slots, self.consumers, groups.consumer_ids, ready, data, epoch)
        groups.advance(lane, slots, epoch, ordinal, ready.messages, size)
        stages = self._stages
        if stages.is_unprepared(ordinal):
            stages.queued_first(ordinal, self._context.clock.now())
        self.entries_out += copies
        self.messages_out += ready.messages * copies
        sent_bytes = size * copies
        self.bytes_out += sent_bytes
        return sent_bytes + HEAD_BYTES * copies

    def _skip_withheld(self, lane: Lane, key: GroupKey, ready: ReadyEntry) -> None:
        """Acknowledge it for some members of a group."""
        slots = self._groups.take(lane, key, PASS_OVER_MAX)
        skipped = slots[:]
        self._groups.advance(lane, slots, key[1], key[0] + 1, 0, 0)
        self._withheld.skipped(ready.entry)
        self._target.ack_run(skipped, ready.position)

    def _data_for(self, ready: ReadyEntry, session: ConsumerSession) -> bytes:
        if self._expose and session.supports_broker_entry_metadata:
            return ready.full_data
        return ready.data

    def _serve_solos(self, lane: Lane, session: ConsumerSession, tail: int) -> int:
        """Serve consumers with individual state."""
        spent = 0
        for slot in list(islice(lane.solos, self._slice.solo_consumers)):
            outgoing: list[Delivery] = []
            spent += self._serve_alone(slot, session, tail, outgoing)
            consumer = self.consumers[slot]
            if consumer is not None:
                for delivery in outgoing:
                    session.deliver(consumer, delivery)
            if slot in lane.solos:
                del lane.solos[slot]
                lane.solos[slot] = None
            if spent >= self._slice.size_bytes:
                break
        return spent

    def _serve_alone(
        self, slot: int, session: ConsumerSession, tail: int, outgoing: list[Delivery]
    ) -> int:
        groups, cursors = self._groups, self._cursors
        delivery: Delivery | None = None
        spent = 0
        for _ in range(self._slice.solo_entries):
            ordinal = groups.wanted_alone(slot, tail)
            if ordinal is None:
                return spent
            ready = self._window.get(ordinal)
            if ready is None:
                if ordinal not in self._window.missing:
                    lane = groups.lanes[slot]
                    assert lane is not None
                    lane.starved = True
                    return spent
                spent += 1
                groups.sent_alone(slot, ordinal, 0, 0)
                continue
            if not ready.messages:
                spent += 1
                is_alone = groups.sent_alone(slot, ordinal, 0, 0)
                self._withheld.skipped(ready.entry)
                self._target.ack_run(array("i", [slot]), ready.position)
                if not is_alone:
                    return spent
                continue
            data = self._data_for(ready, session)
            size = len(data)
            remaining = cursors.remaining(slot, ordinal)
            messages = ready.messages if remaining is None else remaining.bit_count()
            ledger_id, entry_id = ready.position
            if delivery is None or delivery.ledger_id != ledger_id:
                delivery = Delivery(ready.partition, ledger_id, is_plain=False)
                outgoing.append(delivery)
            words = () if remaining is None else to_words(remaining)
            delivery.add(entry_id, data, groups.redeliveries(slot, ordinal), words)
            self.entries_out += 1
            self.messages_out += messages
            self.bytes_out += size
            spent += size + HEAD_BYTES
            if not groups.sent_alone(slot, ordinal, messages, size):
                return spent
        return spent

    # --- storage ------------------------------------------------------------------------

    async def _read(self) -> None:
        """Read wanted entries until none is left."""
        window = self._window
        retry_seconds = RETRY_FIRST_SECONDS
        while window.wanted and not self._closed:
            try:
                await window.read_next()
            except BrokerError as error:
                self.failure = error.message
                _log.warning(
                    "broadcast cannot read, retrying",
                    topic=self._context.topic_name,
                    subscription=self._name,
                    reason=error.message,
                    retry_seconds=retry_seconds,
                )
                await trio.sleep(retry_seconds)
                retry_seconds = min(2 * retry_seconds, RETRY_LAST_SECONDS)
                continue
            self.failure = ""
            retry_seconds = RETRY_FIRST_SECONDS
            starved = [lane for lane in self.lanes.values() if lane.starved]
            for lane in starved:
                lane.starved = False
                self.wake(lane)
            # Use the entries before the next read can push them out.
            while not self._closed and any(lane.queued for lane in starved):
                if self.gate.is_waiting:
                    self._reading = False  # the step that it waits for reads again
                    return
                await trio.lowlevel.checkpoint()
        self._reading = False

    def close(self) -> None:
        """Stop for good. Tasks end at their next step."""
        self._closed = True
        self.gate.close()
        self._next_step = _no_step  # it refers to this object
        self._queue.clear()
        self._window.close()
