"""A broadcast subscription: every message goes to every consumer, each at its own position.

This class is the interface for topics and administrators; `BroadcastMembers` does the work. Seek
and unsubscribe of a consumer concern that consumer alone (`consumer_handle`). The subscription ends
when the last consumer unsubscribes or an administrator deletes it. Administrative operations move
every consumer, connected or not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import trio

from broker.topics.broadcast.consumer_handle import BroadcastConsumerHandle
from broker.topics.broadcast.members import BroadcastMembers
from broker.topics.broadcast.moves import reset_all, skip_all_to
from broker.topics.broadcast.statistics import (
    broadcast_series,
    broadcast_statistics,
    why_not_dispatching,
)
from broker.topics.subscription.start import seek_mark_delete
from broker.topics.subscription.statistics import at_once
from protocol.errors import NotAllowed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Coroutine, Generator, Sequence
    from typing import Any

    from broker.topics.subscription.consumer import Consumer
    from broker.topics.subscription.request import SubscriptionRequest
    from broker.topics.subscription.series import Series
    from broker.topics.subscription.statistics import SubscriptionStatistics
    from protocol.position import Position


SENT_AWAY_PER_TURN: Final = 500
"""Consumers that a close disconnects before other tasks run: a few milliseconds."""


@final
class BroadcastSubscription(BroadcastMembers):
    """See the module docstring."""

    async def start(self) -> None:
        """Load the stored state and start the task that stores changes. Raises: BrokerError."""
        await self.keeper.load()
        self.keeper.advance()
        self.context.nursery.start_soon(self.keeper.run)
        self.context.owner.watch_publishes(self.stages, begin=True)

    # --- consumers ----------------------------------------------------------------------

    async def locate(self, request: SubscriptionRequest) -> SubscriptionRequest:
        """Each consumer has its own start. Raises: BrokerError: storage cannot be read now."""
        since_ms = self.clock.wall_ms() - 1000 * request.start_rollback_seconds
        found = await self.ledger.find_by_publish_time(since_ms)
        return request.located(found)

    def admits(self, durable: bool) -> bool:
        """A reader may join a durable broadcast. A durable consumer needs a durable broadcast."""
        return self.durable or not durable

    def attach_consumer(
        self, consumer: Consumer, request: SubscriptionRequest
    ) -> BroadcastConsumerHandle:
        """Admit and attach, or refuse with the reason."""
        self.check_open()
        self.admission.attach(consumer, request)
        self.active_at = self.clock.now()
        self.sub_type = consumer.sub_type
        return BroadcastConsumerHandle(consumer, self, self)

    def in_the_way_of(self, consumer: Consumer) -> Consumer | None:
        """The consumer with its name."""
        slot = self.cursors.slot_of(consumer.name) if consumer.name else None
        return None if slot is None else self.fanout.consumer_at(slot)

    # --- administration -----------------------------------------------------------------

    def seek(self, position: Position, ack_set: tuple[int, ...] = ()) -> Awaitable[None]:
        """Administrator: move every consumer. Batch indexes are not kept. Consumers that arrive
        meanwhile are attached afterwards."""
        del ack_set

        def reset() -> Coroutine[Any, Any, None]:
            self.check_open()
            return reset_all(self, self.ordinals.of(seek_mark_delete(self.ledger, position)))

        return self.context.operations.start(self.name, reset)

    def seek_to_time(self, publish_time_ms: int) -> Awaitable[None]:
        """Administrator: move every consumer to the first entry published at or after the time."""

        async def find_and_reset() -> None:
            self.check_open()
            found = await self.ledger.find_by_publish_time(publish_time_ms)
            await reset_all(self, self.ordinals.of(found))

        return self.context.operations.start(self.name, find_and_reset)

    @property
    def is_replicated(self) -> bool:
        """No: each consumer has a position of its own."""
        return False

    async def set_replicated(self, is_wanted: bool) -> None:
        """Administrator: refused."""
        if is_wanted:
            raise NotAllowed("The positions of a broadcast subscription cannot be replicated")

    def skip(self, count: int) -> Awaitable[None]:
        """Administrator: acknowledge the next entries of the slowest consumer for all."""

        async def skip() -> None:
            self.check_open()
            skip_all_to(self, self.keeper.marked + count)

        return self.context.operations.start(self.name, skip)

    def clear_backlog(self) -> Awaitable[None]:
        """Administrator: acknowledge everything for every consumer."""

        async def clear() -> None:
            self.check_open()
            skip_all_to(self, self.ordinals.tail)

        return self.context.operations.start(self.name, clear)

    def expire(self, before_ms: int) -> Awaitable[int]:
        """Administrator: acknowledge what is older than the time for every consumer."""

        async def find_and_skip() -> int:
            self.check_open()
            found = await self.ledger.find_expired(before_ms)
            self.check_open()
            expired = self.skip_past(found)
            self.expirations.add(expired, self.clock.wall_ms())
            return expired

        return self.context.operations.start(self.name, find_and_skip)

    def skip_past(self, position: Position) -> int:
        """Acknowledge everything up to the position for every consumer now."""
        if not self.is_open:
            return 0
        before = self.backlog_entries
        skip_all_to(self, self.ordinals.of(position))
        return before - self.backlog_entries

    # --- questions ----------------------------------------------------------------------

    def mark_delete_position(self) -> Position | None:
        """The mark-delete position of the main cursor."""
        return self.cursor.mark_delete

    def read_position(self) -> Position | None:
        """None: each consumer has its own."""
        return None

    @property
    def is_reading_replays(self) -> bool:
        """It redelivers nothing by itself."""
        return False

    def why_not_dispatching(self) -> str:
        """The reason that blocks delivery to the slowest consumer; empty if none does."""
        return why_not_dispatching(self)

    # --- topic events -------------------------------------------------------------------

    def rest(self) -> None:
        """It has little that the next consumer makes again."""

    def tail_moved(self) -> None:
        """New entries."""
        tail = self.ordinals.tail
        self.stages.durable(tail, tail - self._tail, self.clock.now())
        self._tail = tail
        if not len(self.cursors):
            self.keeper.advance()
        elif self.attached:
            self.fanout.tail_moved()

    def limits_changed(self) -> None:
        """Consumers that the former bound of unacknowledged messages blocked may go on."""
        self.fanout.limits_changed()
        groups = self.groups
        if groups.bound_unacked(self.context.limits.max_unacked_messages_per_consumer):
            for slot in self.attached.values() if groups.blocked else ():
                self.fanout.wake(groups.acked(slot))

    def topic_terminated(self) -> None:
        """No more entries will be added."""
        for consumer, slot in self.attached.items():
            self._tell_end(consumer, slot)

    # --- statistics, end ----------------------------------------------------------------

    def update_rates(self, now: float) -> None:
        """Close a rate window."""
        self.expirations.end_window(now)
        since, messages, size, acks = self._window_start
        seconds = now - since
        if seconds <= 0:
            return
        fanout = self.fanout
        self._window_start = (now, fanout.messages_out, fanout.bytes_out, self.acks.count)
        self.rates = (
            (fanout.messages_out - messages) / seconds,
            (fanout.bytes_out - size) / seconds,
            (self.acks.count - acks) / seconds,
        )

    def delivered(self) -> tuple[int, int]:
        """Messages and bytes since the topic was loaded."""
        return self.fanout.messages_out, self.fanout.bytes_out

    def statistics(self) -> SubscriptionStatistics:
        """A snapshot of one instant."""
        return at_once(self.statistics_in_steps())

    def statistics_in_steps(self) -> Generator[None, None, SubscriptionStatistics]:
        """A snapshot, with a bounded list of consumers."""
        return broadcast_statistics(self)

    def series(self, statistics: SubscriptionStatistics) -> Sequence[Series]:
        """Gauges of the whole subscription, and the six stages as histograms."""
        return broadcast_series(self, statistics)

    def _abandon(self) -> None:
        self.context.owner.on_subscription_abandoned(self)

    async def close(self) -> None:
        """Stop for good. The current state is stored."""
        self._closed = self.acks.closed = True
        self.context.owner.watch_publishes(self.stages, begin=False)
        self.fanout.close()
        for number, consumer in enumerate(list(self.attached), 1):
            self.remove_consumer(consumer)
            consumer.session.closed(consumer)
            if number % SENT_AWAY_PER_TURN == 0:
                await trio.lowlevel.checkpoint()
        await self.keeper.close()
        self._let_go()

    def _let_go(self) -> None:
        """Release large state, and the references that the parts have to each other. Others, such
        as a lane of a connection, may still refer to one of them."""
        self.cursors.clear()
        self.groups.clear()
        self.fanout.consumers.clear()
        self.acks.disconnect()
        self.keeper.disconnect()
