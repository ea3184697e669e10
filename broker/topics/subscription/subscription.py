"""A stock subscription of a persistent topic: `DeliveringSubscription`, with what moves its cursor.

That is seek, skip and expiry, in the order of the requests (`TopicContext.operations`). Here are
also its statistics and its end.

Seek order: consumers are disconnected first, then the cursor is reset, then the caller is answered.
A consumer that arrives meanwhile is attached after the reset, because both are operations of this
subscription. A seek that cannot be stored is refused, and the position does not change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import trio

from broker.topics.subscription.consumer_handle import StockConsumerHandle
from broker.topics.subscription.delivering import DeliveringSubscription
from broker.topics.subscription.outgoing import ack_bits
from broker.topics.subscription.snapshot import (
    consumer_statistics,
    subscription_statistics,
    why_not_dispatching,
)
from broker.topics.subscription.start import position_after_unacked, seek_mark_delete
from broker.topics.subscription.statistics import at_once
from protocol.position import EARLIEST

if TYPE_CHECKING:
    from collections.abc import Awaitable, Coroutine, Generator, Sequence

    from broker.topics.subscription.consumer import Consumer
    from broker.topics.subscription.request import SubscriptionRequest
    from broker.topics.subscription.series import Series
    from broker.topics.subscription.statistics import ConsumerStatistics, SubscriptionStatistics
    from protocol.position import Position


@final
class PersistentSubscription(DeliveringSubscription):
    """Exclusive, Failover, Shared or Key_Shared over one cursor."""

    def attach_consumer(
        self, consumer: Consumer, request: SubscriptionRequest
    ) -> StockConsumerHandle:
        """Attach, or refuse with the reason."""
        self.attach(consumer)
        if request.replicated and self.durable:
            self.cursor.set_replicated(is_wanted=True)
        return StockConsumerHandle(consumer, self)

    def _abandon(self) -> None:
        self._closed = True
        self._close_equipment()
        self._forget_unacked()
        self.context.owner.on_subscription_abandoned(self)

    async def _await_return(self) -> None:
        """A reader that sought returns for its position. If it does not, no client needs it."""
        if self.consumers:
            return
        with trio.CancelScope() as scope:
            self._linger = scope
            await trio.sleep(self._config.non_durable_linger_seconds)
        self._linger = None
        if not scope.cancelled_caught and not self.consumers and not self._closed:
            self._abandon()

    # Cursor

    def seek(self, position: Position, ack_set: tuple[int, ...] = ()) -> Awaitable[None]:
        """Continue with `position`."""

        def reset() -> Coroutine[Any, Any, None]:
            return self._reset(seek_mark_delete(self._ledger, position), position, ack_set)

        return self.context.operations.start(self.name, reset)

    def seek_to_time(self, publish_time_ms: int) -> Awaitable[None]:
        """Continue with the first entry published at or after the time. Delivery continues until
        that entry is found."""

        async def find_and_reset() -> None:
            await self._reset(await self._ledger.find_by_publish_time(publish_time_ms))

        return self.context.operations.start(self.name, find_and_reset)

    def _reset(
        self, mark_delete: Position, partial: Position = EARLIEST, ack_set: tuple[int, ...] = ()
    ) -> Coroutine[Any, Any, None]:
        """Disconnect the consumers. Await it until the cursor is reset."""
        self._check_open()
        self._seeking = True
        self.disconnect_consumers()
        return self._finish_reset(mark_delete, partial, ack_set)

    async def _finish_reset(
        self, mark_delete: Position, partial: Position, ack_set: tuple[int, ...]
    ) -> None:
        try:
            await self.cursor.reset(mark_delete)
        finally:
            if self.dispatcher is not None:
                self.dispatcher.rewind()
            self._seeking = False
            if not self.durable and not self._closed:
                self.context.nursery.start_soon(self._await_return)
        self._acks.mark_delete_last_ms = self._clock.wall_ms()
        if ack_set and self._config.acknowledgment_at_batch_index_level_enabled:
            self.cursor.ack_batch_index(partial, ack_bits(ack_set))

    @property
    def is_replicated(self) -> bool:
        """Whether other clusters are to know its position."""
        return self.cursor.is_replicated

    def set_replicated(self, is_wanted: bool) -> Awaitable[None]:
        """Store whether other clusters are to know its position."""

        async def store() -> None:
            self._check_open()
            self.cursor.set_replicated(is_wanted)
            await self.cursor.flush()

        return self.context.operations.start(self.name, store)

    def skip(self, count: int) -> Awaitable[None]:
        """Acknowledge the next entries of the backlog; entries already acked do not count."""
        return self.context.operations.start(self.name, lambda: self._skip(count))

    async def _skip(self, count: int) -> None:
        self._check_open()
        after = await position_after_unacked(self.cursor, self._ledger, count, self._check_open)
        self._skip_to(after)

    def clear_backlog(self) -> Awaitable[None]:
        """Acknowledge the whole backlog."""

        async def clear() -> None:
            self._check_open()
            self._skip_to(self._ledger.last_confirmed)

        return self.context.operations.start(self.name, clear)

    def expire(self, before_ms: int) -> Awaitable[int]:
        """Acknowledge what is older than the time."""

        async def find_and_skip() -> int:
            self._check_open()
            found = await self._ledger.find_expired(before_ms)
            self._check_open()
            expired = self.skip_past(found)
            self.expirations.add(expired, self._clock.wall_ms())
            return expired

        return self.context.operations.start(self.name, find_and_skip)

    def skip_past(self, position: Position) -> int:
        """Acknowledge everything up to the position now."""
        if self._closed or self._seeking or position <= self.cursor.mark_delete:
            return 0
        before = self.cursor.backlog_entries
        self._skip_to(min(position, self._ledger.last_confirmed))
        return before - self.cursor.backlog_entries

    def _skip_to(self, position: Position) -> None:
        if position > self.cursor.mark_delete:
            self.cursor.ack_cumulative(position)
            self._acks.mark_delete_last_ms = self._clock.wall_ms()
        self._ack_everywhere(position)
        if self._ledger.terminated:
            self._tell_end()

    def _ack_everywhere(self, position: Position) -> None:
        """Skipped entries are neither in flight nor to be read."""
        dispatcher = self.dispatcher
        if dispatcher is None:
            return
        for consumer in self.consumers:
            for pending in [each for each in consumer.pending if each <= position]:
                dispatcher.acked(consumer, pending)
        dispatcher.skip_to(self._ledger.next_position(position))
        dispatcher.settle()
        self.pump.run()

    @property
    def backlog_entries(self) -> int:
        """From the cursor."""
        return self.cursor.backlog_entries

    def mark_delete_position(self) -> Position | None:
        """From the cursor."""
        return self.cursor.mark_delete

    def read_position(self) -> Position | None:
        """From the dispatcher. Without consumers nothing is read ahead."""
        return self.dispatcher.read_position if self.dispatcher is not None else None

    @property
    def is_reading_replays(self) -> bool:
        """From the dispatcher."""
        return self.dispatcher is not None and self.dispatcher.is_reading_replays

    # Statistics, end

    def why_not_dispatching(self) -> str:
        """Empty when there is nothing to deliver or nothing blocks it."""
        return "a seek is under way" if self._seeking else why_not_dispatching(self)

    def update_rates(self, now: float) -> None:
        """Close a rate window."""
        self.expirations.end_window(now)
        for consumer, rates in self.rates.items():
            rates.sample(consumer.counters, now)

    def delivered(self) -> tuple[int, int]:
        """Messages and bytes since the topic was loaded."""
        sent = self.dispatcher
        if sent is None:
            return self.messages_out_before, self.bytes_out_before
        return (
            self.messages_out_before + sent.messages_out,
            self.bytes_out_before + sent.bytes_out,
        )

    def statistics(self) -> SubscriptionStatistics:
        """A snapshot of one instant."""
        return at_once(self.statistics_in_steps())

    def statistics_in_steps(self) -> Generator[None, None, SubscriptionStatistics]:
        """A snapshot."""
        return subscription_statistics(self)

    def statistics_of(self, consumer: Consumer) -> ConsumerStatistics:
        """A snapshot of one consumer."""
        return consumer_statistics(consumer, self.rates[consumer], self.dispatcher)

    def series(self, _statistics: SubscriptionStatistics) -> Sequence[Series]:
        """This kind has no metrics of its own."""
        return ()

    async def close(self) -> None:
        """Stop for good."""
        self._closed = True
        if self._linger is not None:
            self._linger.cancel()
        self._close_equipment()
        self.disconnect_consumers()
        self._forget_unacked()
