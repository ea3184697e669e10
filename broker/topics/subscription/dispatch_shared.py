"""Shared: consumers of the best priority level take turns.

A turn is up to `dispatcherMaxRoundRobinBatchSize` entries, as in Pulsar.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from broker.topics.subscription.dispatch_many import ManyDispatcher
from broker.topics.subscription.ports import has_acked
from broker.topics.subscription.pump import Step
from broker.topics.subscription.redelivery import ReplayQueue
from broker.topics.subscription.round_robin import can_take
from broker.topics.subscription.sub_types import SHARED

if TYPE_CHECKING:
    from broker.ground.entry import Entry
    from broker.topics.subscription.consumer import Consumer
    from broker.topics.subscription.factory import TopicContext
    from broker.topics.subscription.ports import CursorPort, LedgerPort
    from broker.topics.subscription.pump import Pump
    from protocol.position import Position


@final
class SharedDispatcher(ManyDispatcher):
    """Any consumer may get any entry."""

    def __init__(
        self, context: TopicContext, ledger: LedgerPort, cursor: CursorPort, pump: Pump
    ) -> None:
        super().__init__(context, ledger, cursor, pump)
        self.sub_type = SHARED
        self._waiting = ReplayQueue()
        self._current: Consumer | None = None
        self._turn_left = 0

    def _wait_again(self, position: Position, slot: int) -> None:
        self._waiting.add(position)

    def _drop_waiting(self, position: Position) -> None:
        self._waiting.discard(position)

    def _forget_waiting(self) -> None:
        self._waiting.clear()

    @property
    def replay_messages(self) -> int:
        """Entries waiting for redelivery."""
        return len(self._waiting)

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

    def _send_waiting(self) -> Step:
        cursor, waiting = self._cursor, self._waiting
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
                consumer = self._turn() if self._bytes_left > 0 else None
                if consumer is None:
                    done = index
                    break
                self._send(consumer, entry, -1)
            for position in positions[done:]:
                waiting.add(position)
            if done < len(entries):
                return Step.IDLE if self._bytes_left > 0 else Step.MORE
        return Step.IDLE

    def _send_new(self) -> Step:
        cursor, source = self._cursor, self._source
        while self._count_left > 0 and self._bytes_left > 0:
            capacity = self._rotation.capacity(self._count_left)
            if not capacity or len(self._delayed) >= self._config.delayed_delivery_entries_max:
                return Step.IDLE
            entries = source.take(capacity, self._bytes_left)
            if not entries:
                return Step.READ if entries is None else Step.IDLE
            self._count_left -= len(entries)
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
            if entry.is_withheld:
                self._skip_withheld(entry)
                continue
            if self._delay(entry, -1):
                continue
            consumer = self._turn()
            if consumer is None:
                return index
            self._send(consumer, entry, -1)
        return len(entries)

    def _send_by_turns(self, entries: list[Entry]) -> int:
        """Send entries that were not delivered before and are not acked, a run for each turn.
        Returns how many are done."""
        at = 0
        count = len(entries)
        while at < count:
            consumer = self._turn()
            if consumer is None:
                return at
            left = self._turn_left + 1
            room = self._in_flight.room(consumer)
            run: list[Entry] = []
            messages = 0
            while at < count and left > 0 and messages < room:
                entry = entries[at]
                at += 1
                held = entry.messages()
                if held == 0:
                    self._skip_withheld(entry)
                elif not self._delay(entry, -1):
                    run.append(entry)
                    messages += held
                    left -= 1
            self._turn_left = left
            if run:
                self._bytes_left -= self._outgoing.add_entries(consumer, run, messages)
                self._in_flight.sent_entries(consumer, run, messages)
        return at
