"""The handle of a consumer of a stock subscription: its commands act on the shared state.

All consumers share one cursor, so SEEK and UNSUBSCRIBE concern the whole subscription.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, final

from broker.topics.subscription.api import Subscription
from broker.topics.subscription.sub_types import TYPE_NAMES
from protocol.errors import BrokerError, ServerError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from broker.topics.subscription.api import AckId, SubscriptionOwner
    from broker.topics.subscription.consumer import Consumer
    from broker.topics.subscription.factory import TopicContext
    from broker.topics.subscription.statistics import ConsumerStatistics
    from protocol.position import Position


class StockSubscription(Subscription, Protocol):
    """The parts of the subscription that the handle uses."""

    context: TopicContext

    def announce_active(self, consumer: Consumer) -> None:
        """See `ConsumerHandle.announce`."""

    def flow(self, consumer: Consumer, permits: int) -> None:
        """See `ConsumerHandle.flow`."""

    def ack(self, consumer: Consumer, ids: Sequence[AckId], *, cumulative: bool) -> None:
        """See `ConsumerHandle.ack`."""

    def ack_entries(self, consumer: Consumer, ledger_id: int, entry_ids: list[int]) -> None:
        """See `ConsumerHandle.ack_entries`."""

    def redeliver(
        self, consumer: Consumer, positions: Sequence[Position] | None, epoch: int
    ) -> None:
        """See `ConsumerHandle.redeliver`."""

    def on_writable(self, consumer: Consumer) -> None:
        """See `ConsumerHandle.on_writable`."""

    def statistics_of(self, consumer: Consumer) -> ConsumerStatistics:
        """See `ConsumerHandle.statistics`."""


@final
class StockConsumerHandle:
    """See `broker.topics.subscription.api.ConsumerHandle`."""

    __slots__ = ("consumer", "subscription")

    def __init__(self, consumer: Consumer, subscription: StockSubscription) -> None:
        self.consumer = consumer
        self.subscription = subscription

    @property
    def topic(self) -> SubscriptionOwner:
        """The topic whose messages it gets."""
        return self.subscription.context.owner

    @property
    def type_name(self) -> str:
        """The type that the client asked for."""
        return TYPE_NAMES[self.consumer.sub_type]

    def when_kept(self, call: Callable[[BrokerError | None], None]) -> None:
        """Call at once: nothing is stored per consumer."""
        call(None)

    def announce(self) -> None:
        """Tell whether it is active, and whether the topic has ended."""
        self.subscription.announce_active(self.consumer)

    def flow(self, permits: int) -> None:
        """More permits."""
        self.subscription.flow(self.consumer, permits)

    def ack(self, ids: Sequence[AckId], *, cumulative: bool) -> None:
        """Acknowledge, for all consumers."""
        self.subscription.ack(self.consumer, ids, cumulative=cumulative)

    def ack_entries(self, ledger_id: int, entry_ids: list[int]) -> None:
        """Acknowledge, for all consumers."""
        self.subscription.ack_entries(self.consumer, ledger_id, entry_ids)

    def redeliver(self, positions: Sequence[Position] | None, epoch: int) -> None:
        """Deliver again."""
        self.subscription.redeliver(self.consumer, positions, epoch)

    @property
    def writable_group(self) -> object:
        """Each consumer is notified by itself."""
        return self

    def on_writable(self) -> None:
        """The connection of the consumer has room again."""
        self.subscription.on_writable(self.consumer)

    def remove(self) -> None:
        """The consumer has left."""
        self.subscription.remove_consumer(self.consumer)

    def seek(self, position: Position, ack_set: tuple[int, ...] = ()) -> Awaitable[None]:
        """Move the shared cursor."""
        return self.subscription.seek(position, ack_set)

    def seek_to_time(self, publish_time_ms: int) -> Awaitable[None]:
        """Move the shared cursor."""
        return self.subscription.seek_to_time(publish_time_ms)

    def unsubscribe(self, *, force: bool) -> Awaitable[None]:
        """End the subscription. Without `force`, only its last consumer may do so."""
        subscription, consumer = self.subscription, self.consumer
        if not force and [each for each in subscription.consumers if each is not consumer]:
            raise BrokerError(
                ServerError.MetadataError,
                "Unconnected or shared consumer attempting to unsubscribe",
            )
        subscription.remove_consumer(consumer)
        return self.topic.end_subscription(subscription, force=force)

    def statistics(self) -> ConsumerStatistics:
        """Its row of the statistics."""
        return self.subscription.statistics_of(self.consumer)

    def mark_delete(self) -> Position | None:
        """The mark-delete position of the shared cursor."""
        return self.subscription.mark_delete_position()
