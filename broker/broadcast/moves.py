"""Moving consumers of a broadcast: one that seeks, or everybody for an administrator.

The order of a seek is the same as elsewhere: positions change, who is moved is sent CLOSE_CONSUMER,
and the caller answers when they are stored. Its client subscribes again by itself and finds the new
position under its name.

A move that cannot be stored is refused, and what it left is put back: until it is stored, the main
cursor is held where the consumer was, so that nothing of it is freed (`_Undo`). Until then its name
is not moved a second time either: what is put back would be the place of a move that was refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from broker.subscription.start import seek_mark_delete
from protocol.ack_set import from_words
from protocol.errors import BrokerError, ConsumerNotFound, ServiceNotReady

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
        target = subscription.ordinals.of(seek_mark_delete(subscription.ledger, position))
        batch = subscription.ordinals.exact(position) if ack_set else None
        unacked = from_words(ack_set)
        slot = self._slot()
        undo = _Undo(subscription, slot)
        _move(subscription, slot, target)
        if batch is not None and subscription.batch_index:
            subscription.cursors.ack_batch(slot, batch, unacked)
        await self._store(undo)

    async def seek_to_time(self, publish_time_ms: int) -> None:
        """Go on with the first entry published at or after the time.

        Raises: BrokerError.
        """
        subscription = self._subscription
        found = await subscription.ledger.find_by_publish_time(publish_time_ms)
        target = subscription.ordinals.of(found)
        slot = self._slot()
        undo = _Undo(subscription, slot)
        _move(subscription, slot, target)
        await self._store(undo)

    def _slot(self) -> int:
        self._subscription.check_open()
        slot = self._subscription.attached.get(self._consumer)
        if slot is None:
            raise ConsumerNotFound("the consumer is gone: subscribe, then seek again")
        return slot

    async def _store(self, undo: _Undo) -> None:
        subscription, consumer = self._subscription, self._consumer
        subscription.remove_consumer(consumer, comes_back=True)
        consumer.session.disconnect_consumer(consumer)
        await undo.unless_stored()


async def leave(subscription: BroadcastSubscription, consumer: Consumer) -> None:
    """Unsubscribe one of several consumers, after `check_unsubscribe`: its virtual cursor ends.

    Raises: BrokerError: that could not be stored, and its virtual cursor is still there.
    """
    slot = subscription.attached.get(consumer)
    if slot is None:
        return
    try:
        undo = _Undo(subscription, slot)
    except BrokerError:
        subscription.stays(consumer)
        subscription.remove_consumer(consumer, comes_back=True)
        raise
    subscription.remove_consumer(consumer)
    await undo.unless_stored()


@final
class _Undo:
    """Where a virtual cursor was. From here until the end of `unless_stored` the main cursor does
    not pass that place.

    Raises: BrokerError ServiceNotReady: its last move is not decided yet.
    """

    def __init__(self, subscription: BroadcastSubscription, slot: int) -> None:
        cursors = subscription.cursors
        name = cursors.names[slot]
        assert name is not None
        if name in subscription.moving:
            raise ServiceNotReady(
                "a seek or unsubscribe of this consumer is still being stored: try again"
            )
        subscription.moving.add(name)
        self._subscription = subscription
        self._name = name
        self._durable = bool(cursors.durable[slot])
        self._acked = cursors.acked[slot]
        self._ragged = cursors.ragged_of(slot)
        cursors.hold(self._acked)

    async def unless_stored(self) -> None:
        """Store what has changed; put everything back if that fails.

        Raises: BrokerError.
        """
        subscription = self._subscription
        keeper = subscription.keeper
        keeper.changed()
        keeper.advance()
        try:
            await subscription.commit()
        except BrokerError:
            if not subscription.acks.closed:
                self._put_back()
                keeper.changed()
            raise
        finally:
            subscription.moving.discard(self._name)
            if not subscription.acks.closed:
                subscription.cursors.release(self._acked)
                keeper.advance()

    def _put_back(self) -> None:
        subscription = self._subscription
        cursors, name = subscription.cursors, self._name
        slot = cursors.slot_of(name)
        holder = None if slot is None else subscription.fanout.consumers[slot]
        if holder is not None:  # it came back too early, or another one of that name came
            subscription.remove_consumer(holder, comes_back=True)
            holder.session.disconnect_consumer(holder)
            slot = cursors.slot_of(name)
        if slot is None:
            slot = cursors.join(name, self._acked, durable=self._durable)
            cursors.detach(slot, subscription.deadline(durable=self._durable))
        cursors.put_back(slot, self._acked, self._ragged)


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
