"""The handle of a consumer of a broadcast: its commands concern its own virtual cursor only.

When the last consumer unsubscribes, the subscription ends, because no consumer needs it any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from broker.topics.broadcast.moves import leave, seek, seek_to_time
from broker.topics.broadcast.statistics import consumer_statistics

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from broker.topics.broadcast.members import BroadcastMembers
    from broker.topics.subscription.api import AckId, Subscription, SubscriptionOwner
    from broker.topics.subscription.consumer import Consumer
    from broker.topics.subscription.statistics import ConsumerStatistics
    from protocol.errors import BrokerError
    from protocol.position import Position

TYPE_NAME: Final = "Broadcast"


@final
class BroadcastConsumerHandle:
    """See `broker.topics.subscription.api.ConsumerHandle`."""

    __slots__ = ("_members", "consumer", "subscription")

    type_name = TYPE_NAME

    def __init__(
        self, consumer: Consumer, members: BroadcastMembers, subscription: Subscription
    ) -> None:
        self.consumer = consumer
        self.subscription = subscription
        self._members = members

    @property
    def topic(self) -> SubscriptionOwner:
        """The topic whose messages it gets."""
        return self._members.context.owner

    def when_kept(self, call: Callable[[BrokerError | None], None]) -> None:
        """Its name is stored before it is answered, together with others that arrived meanwhile."""
        self._members.keeper.call_when_stored(self.consumer, call)

    def announce(self) -> None:
        """All consumers are active. Tells it if the topic has ended."""
        self._members.announce(self.consumer)

    def flow(self, permits: int) -> None:
        """More permits."""
        self._members.flow(self.consumer, permits)

    def ack(self, ids: Sequence[AckId], *, cumulative: bool) -> None:
        """Acknowledge for this consumer alone."""
        self._members.acks.ack(self.consumer, ids, cumulative=cumulative)

    def ack_entries(self, ledger_id: int, entry_ids: list[int]) -> None:
        """Acknowledge for this consumer alone."""
        self._members.acks.ack_entries(self.consumer, ledger_id, entry_ids)

    def redeliver(self, positions: Sequence[Position] | None, epoch: int) -> None:
        """Redeliver to this consumer alone."""
        self._members.redeliver(self.consumer, positions, epoch)

    @property
    def writable_group(self) -> object:
        """One key per connection, because the fan-out serves connections."""
        return self._members

    def on_writable(self) -> None:
        """The connection of the consumer has room again."""
        self._members.on_writable(self.consumer)

    def remove(self) -> None:
        """The consumer has left. Its virtual cursor is kept for a while."""
        self._members.remove_consumer(self.consumer)

    def seek(self, position: Position, ack_set: tuple[int, ...] = ()) -> Awaitable[None]:
        """Move its virtual cursor. Other consumers are not affected."""
        return seek(self._members, self.consumer, position, ack_set)

    def seek_to_time(self, publish_time_ms: int) -> Awaitable[None]:
        """Move its virtual cursor. Other consumers are not affected."""
        return seek_to_time(self._members, self.consumer, publish_time_ms)

    def unsubscribe(self, *, force: bool) -> Awaitable[None]:
        """End its virtual cursor. With the last one the subscription ends."""
        members = self._members
        if len(members.cursors) > 1:
            return leave(members, self.consumer)
        members.remove_consumer(self.consumer)
        return self.topic.end_subscription(self.subscription, force=force)

    def statistics(self) -> ConsumerStatistics:
        """Its row of the statistics."""
        return consumer_statistics(self._members, self.consumer)

    def mark_delete(self) -> Position | None:
        """The position of its virtual cursor."""
        return self._members.mark_delete_of(self.consumer)
