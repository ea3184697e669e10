"""Moving consumers of a broadcast: one that seeks, or everybody for an administrator.

The order of a seek is the same as elsewhere: positions change and are stored, who is moved is sent
CLOSE_CONSUMER, then the caller answers. Its client subscribes again by itself and finds the new
position under its name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from broker.subscription.start import seek_mark_delete
from protocol.ack_set import from_words
from protocol.errors import ConsumerNotFound

if TYPE_CHECKING:
    from broker.broadcast.broadcast_subscription import BroadcastSubscription
    from broker.subscription.consumer import Consumer
    from protocol.position import Position


@final
class ConsumerSeek:
    """The seek of one consumer; the others notice nothing."""

    def __init__(self, subscription: BroadcastSubscription, consumer: Consumer) -> None:
        self._subscription = subscription
        self._consumer = consumer

    async def seek(self, position: Position, ack_set: tuple[int, ...] = ()) -> None:
        """Go on with `position` (`ack_set`: with its messages whose bits are set).

        Raises: BrokerError.
        """
        subscription = self._subscription
        target = seek_mark_delete(subscription.ledger, position)
        slot = self._slot()
        _move(subscription, slot, subscription.ordinals.of(target))
        if ack_set and subscription.batch_index:
            ordinal = subscription.ordinals.exact(position)
            if ordinal is not None:
                subscription.cursors.ack_batch(slot, ordinal, from_words(ack_set))
        await self._disconnect()

    async def seek_to_time(self, publish_time_ms: int) -> None:
        """Go on with the first entry published at or after the time.

        Raises: BrokerError.
        """
        subscription = self._subscription
        found = await subscription.ledger.find_by_publish_time(publish_time_ms)
        _move(subscription, self._slot(), subscription.ordinals.of(found))
        await self._disconnect()

    def _slot(self) -> int:
        self._subscription.check_open()
        slot = self._subscription.attached.get(self._consumer)
        if slot is None:
            raise ConsumerNotFound("the consumer is gone: subscribe, then seek again")
        return slot

    async def _disconnect(self) -> None:
        subscription, consumer = self._subscription, self._consumer
        subscription.remove_consumer(consumer, comes_back=True)
        consumer.session.disconnect_consumer(consumer)
        subscription.keeper.changed()
        subscription.keeper.advance()
        await subscription.commit()


def _move(subscription: BroadcastSubscription, slot: int, acked: int) -> None:
    ordinals = subscription.ordinals
    subscription.cursors.seek(slot, min(max(acked, ordinals.first - 1), ordinals.tail))


async def reset_all(subscription: BroadcastSubscription, acked: int) -> None:
    """Put everybody behind the ordinal; consumers are disconnected and come back.

    Raises: BrokerError.
    """
    keeper = subscription.keeper
    subscription.seeking = True
    try:
        for slot in list(subscription.cursors):
            _move(subscription, slot, acked)
        keeper.put(acked)
        subscription.disconnect_consumers()
        await keeper.commit()
    finally:
        subscription.seeking = False


def skip_all_to(subscription: BroadcastSubscription, ordinal: int) -> None:
    """Acknowledge everything up to the ordinal for everybody, connected or not."""
    groups, fanout = subscription.groups, subscription.fanout
    ordinal = min(ordinal, subscription.ordinals.tail)
    for slot in list(subscription.cursors):
        subscription.cursors.ack_cumulative(slot, ordinal)
    for slot in list(subscription.attached.values()):
        if groups.sent[slot] < ordinal:
            groups.overtaken(slot)
        groups.forget_counts(slot)
        fanout.wake(groups.acked(slot) or groups.lanes[slot])
    if ordinal > subscription.keeper.marked:
        subscription.keeper.put(ordinal)
