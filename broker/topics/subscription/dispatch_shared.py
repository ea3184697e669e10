"""Shared: consumers of the best priority level take turns.

A turn is up to `dispatcherMaxRoundRobinBatchSize` entries, as in Pulsar. The chunks of a message go
to the consumer that got the first of them (`chunks`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from broker.topics.subscription.chunks import WHOLE, ChunksWaiting, chunk_slot
from broker.topics.subscription.dispatch_many import ManyDispatcher
from broker.topics.subscription.ports import has_acked
from broker.topics.subscription.pump import Step
from broker.topics.subscription.redelivery import ReplayQueue
from broker.topics.subscription.round_robin import can_take
from broker.topics.subscription.sub_types import SHARED
from broker.topics.subscription.unusual_fields import may_be_unusual

if TYPE_CHECKING:
    from broker.ground.entry import Entry
    from broker.topics.subscription.consumer import Consumer
    from broker.topics.subscription.factory import TopicContext
    from broker.topics.subscription.ports import CursorPort, LedgerPort
    from broker.topics.subscription.pump import Pump
    from protocol.position import Position


@final
class SharedDispatcher(ManyDispatcher):
    """Any consumer may get any entry, unless another one holds a chunk of its message."""

    def __init__(
        self, context: TopicContext, ledger: LedgerPort, cursor: CursorPort, pump: Pump
    ) -> None:
        super().__init__(context, ledger, cursor, pump)
        self.sub_type = SHARED
        self._waiting = ReplayQueue()
        self._chunks = ChunksWaiting()
        self._passed: dict[int, Position] = {}
        """The first chunk that was passed over, by slot. Later ones of the slot are as well."""
        self._read_before = self._source.position
        """Entries before it may have been read before."""
        self._sent_chunks = False
        self._current: Consumer | None = None
        self._turn_left = 0

    def remove(self, consumer: Consumer) -> None:
        """Detach."""
        super().remove(consumer)
        self._chunks.leave(consumer)

    def _wait_again(self, position: Position, slot: int) -> None:
        self._waiting.add(position)

    def _drop_waiting(self, position: Position) -> None:
        self._waiting.discard(position)
        if len(self._chunks):
            self._chunks.discard(position)

    def _forget_waiting(self) -> None:
        self._waiting.clear()
        self._chunks.clear()
        self._passed.clear()

    def skip_to(self, position: Position) -> None:
        """See ManyDispatcher. Chunks that are skipped do not wait any more."""
        super().skip_to(position)
        self._chunks.drop_before(position)
        if self._passed and position >= self._source.position:
            self._passed.clear()

    @property
    def replay_messages(self) -> int:
        """Entries waiting for redelivery, or for the consumer of their message."""
        return len(self._waiting) + len(self._chunks)

    def settle(self) -> bool:
        """Chunks of a message of which no consumer holds any more may go to any."""
        if not self._sent_chunks:
            return super().settle()
        released = False
        for slot in self._in_flight.drained():
            for position in self._chunks.release(slot):
                self._waiting.add(position)
                released = True
        return super().settle() or released

    def step(self, entries_max: int, bytes_max: int) -> Step:
        """A new step is a new turn."""
        self._current = None
        return super().step(entries_max, bytes_max)

    def _turn(self) -> Consumer | None:
        """The consumer that gets the next entry."""
        if self._in_flight.blocked:
            return None
        current = self._current
        if current is not None and self._turn_left > 0 and can_take(current):
            self._turn_left -= 1
            return current
        self._current = self._rotation.next()
        self._turn_left = self._config.dispatcher_max_round_robin_batch_size - 1
        return self._current

    def _send_chunk(self, entry: Entry, slot: int) -> bool:
        """Send it to the consumer of its message, or let it wait for that one. False: it may go to
        any consumer, and none takes it."""
        consumer = self._in_flight.holder(slot)
        if self._passed and self._is_behind_passed(entry.position, slot):
            return True
        if consumer is None:
            consumer = self._turn()
            if consumer is None:
                return False
        elif self._in_flight.blocked or not can_take(consumer):
            if self._has_too_many_chunks():
                self._passed[slot] = entry.position
            else:
                self._chunks.add(consumer, entry.position, slot)
            return True
        self._sent_chunks = self._context.chunks.any = True
        self._send(consumer, entry, slot)
        return True

    def _send_waiting_chunks(self) -> Step:
        """Send the chunks whose consumers can take them now."""
        cursor, chunks = self._cursor, self._chunks
        for consumer in chunks.consumers():
            while can_take(consumer) and not self._in_flight.blocked:
                if self._count_left <= 0 or self._bytes_left <= 0:
                    return Step.MORE
                room = min(consumer.permits.available, self._count_left)
                taken = chunks.take(consumer, room)
                if not taken:
                    break
                taken = [each for each in taken if not cursor.is_acked(each[0])]
                entries = self._replays.get([position for position, _ in taken]) if taken else []
                if entries is None:
                    for position, slot in taken:
                        chunks.add(consumer, position, slot)
                    self._fill_replays = True
                    return Step.READ
                self._count_left -= len(entries)
                for (position, slot), entry in zip(taken, entries, strict=False):
                    if entry is not None and not self._send_chunk(entry, slot):
                        self._waiting.add(position)
                for position, slot in taken[len(entries) :]:
                    chunks.add(consumer, position, slot)
        return Step.IDLE

    def _send_waiting(self) -> Step:
        cursor, waiting = self._cursor, self._waiting
        if len(self._chunks):
            left = self._send_waiting_chunks()
            if left is not Step.IDLE:
                return left
        while len(waiting):
            if self._count_left <= 0 or self._bytes_left <= 0:
                return Step.MORE
            capacity = self._rotation.capacity(self._count_left)
            if not capacity:
                return Step.IDLE
            popped = waiting.pop_batch(capacity)
            positions = [each for each in popped if not cursor.is_acked(each)]
            if not positions:
                continue
            entries = self._replays.get(positions)
            if entries is None:
                for position in positions:
                    waiting.add(position)
                self._fill_replays = True
                return Step.READ
            self._count_left -= len(entries)
            done = len(entries)
            for index, entry in enumerate(entries):
                if entry is None:
                    continue
                if self._bytes_left <= 0 or not self._send_one(entry):
                    done = index
                    break
            for position in positions[done:]:
                waiting.add(position)
            if done < len(entries):
                return Step.IDLE if self._bytes_left > 0 else Step.MORE
        return Step.IDLE

    def _send_one(self, entry: Entry) -> bool:
        """False: no consumer takes it."""
        slot = chunk_slot(entry) if may_be_unusual(entry.data) else WHOLE
        if slot != WHOLE:
            return self._send_chunk(entry, slot)
        consumer = self._turn()
        if consumer is None:
            return False
        self._send(consumer, entry, WHOLE)
        return True

    def _send_new(self) -> Step:
        cursor, source = self._cursor, self._source
        while self._count_left > 0 and self._bytes_left > 0:
            if self._passed:
                self._read_passed_again()
            capacity = self._rotation.capacity(self._count_left)
            if not capacity or (len(self._delayed) and self._has_too_many_delayed()):
                return Step.IDLE
            entries = source.take(capacity, self._bytes_left)
            if not entries:
                return Step.READ if entries is None else Step.IDLE
            self._count_left -= len(entries)
            if entries[0].position < self._read_before:
                entries = [each for each in entries if not self._is_known(each.position)]
                if not entries:
                    continue
            if self._by_index or len(self._in_flight.counts):
                done = self._send_each(entries)
            else:
                if has_acked(cursor, entries[0].position):
                    entries = [each for each in entries if not cursor.is_acked(each.position)]
                done = self._send_by_turns(entries)
            if done < len(entries):
                source.give_back(entries[done:])
                return Step.IDLE
        return Step.MORE

    def _send_each(self, entries: list[Entry]) -> int:
        """Send entries that may have been delivered before, or be acked in part. Returns how many
        are done."""
        cursor = self._cursor
        for index, entry in enumerate(entries):
            if cursor.is_acked(entry.position):
                continue
            if not self._send_unusual(entry):
                return index
        return len(entries)

    def _is_delayed(self, entry: Entry) -> bool:
        return may_be_unusual(entry.data) and self._delay(entry, chunk_slot(entry))

    def _chunks_max(self) -> int:
        """How many chunks may wait for their consumers: each of them was read before its turn. 0:
        there is no bound."""
        return self._config.key_shared_look_ahead_msg_in_replay_threshold_per_subscription

    def _has_too_many_chunks(self) -> bool:
        return 0 < self._chunks_max() <= len(self._chunks)

    def _is_behind_passed(self, position: Position, slot: int) -> bool:
        """Whether an earlier chunk of the message was passed over, or this one."""
        first = self._passed.get(slot)
        return first is not None and first <= position

    def _read_passed_again(self) -> None:
        """Read from the first chunk that was passed over, once there is room for half as many as
        may wait."""
        if len(self._chunks) * 2 > self._chunks_max() > 0:
            return
        first = min(self._passed.values())
        self._passed.clear()
        if first < self._source.position:
            self._read_before = max(self._read_before, self._source.position)
            self._source.rewind(first)

    def _is_known(self, position: Position) -> bool:
        """Whether an entry that is read again waits, or is in flight, or acked."""
        return (
            self._in_flight.holds(position)
            or position in self._waiting
            or position in self._chunks
            or position in self._delayed
            or self._cursor.is_acked(position)
        )

    def _send_by_turns(self, entries: list[Entry]) -> int:
        """Send entries that were not delivered before and are not acked, a run for each turn.
        Returns how many are done."""
        at = 0
        count = len(entries)
        is_unusual = may_be_unusual(entries[0].data) if count else False
        while at < count:
            if is_unusual:
                if not self._send_unusual(entries[at]):
                    return at
                at += 1
                is_unusual = at < count and may_be_unusual(entries[at].data)
                continue
            consumer = self._turn()
            if consumer is None:
                return at
            left = self._turn_left + 1
            room = self._in_flight.room(consumer)
            run: list[Entry] = []
            messages = 0
            while at < count and left > 0 and messages < room and not is_unusual:
                entry = entries[at]
                at += 1
                held = entry.messages()
                if held == 0:
                    self._skip_withheld(entry)
                else:
                    run.append(entry)
                    messages += held
                    left -= 1
                is_unusual = at < count and may_be_unusual(entries[at].data)
            self._turn_left = left
            if run:
                self._bytes_left -= self._outgoing.add_entries(consumer, run, messages)
                self._in_flight.sent_entries(consumer, run, messages)
        return at

    def _send_unusual(self, entry: Entry) -> bool:
        """Send an entry that may have to wait, or belong to others. False: no consumer takes it."""
        if entry.is_withheld:
            self._skip_withheld(entry)
            return True
        return self._is_delayed(entry) or self._send_one(entry)

    def why(self) -> str:
        """Also reports chunks that wait for their consumer."""
        reason = super().why()
        if reason or not len(self._chunks):
            return reason
        return (
            f"{len(self._chunks)} chunks wait for the consumers that have others of their messages"
        )
