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
    from collections.abc import Awaitable

    from broker.broadcast.broadcast_subscription import BroadcastSubscription
    from broker.subscription.consumer import Consumer
    from protocol.position import Position


async def seek(
    subscription: BroadcastSubscription,
    consumer: Consumer,
    position: Position,
    ack_set: tuple[int, ...],
) -> None:
    """Let one consumer go on with `position` (`ack_set`: with its messages whose bits are set).

    Raises: BrokerError.
    """
    target = subscription.ordinals.of(seek_mark_delete(subscription.ledger, position))
    batch = subscription.ordinals.exact(position) if ack_set else None
    unacked = from_words(ack_set)
    slot = _slot(subscription, consumer)
    undo = _Undo(subscription, slot)
    _move(subscription, slot, target)
    if batch is not None and subscription.batch_index:
        subscription.cursors.ack_batch(slot, batch, unacked)
    await _store(subscription, consumer, undo)


async def seek_to_time(
    subscription: BroadcastSubscription, consumer: Consumer, publish_time_ms: int
) -> None:
    """Let one consumer go on with the first entry published at or after the time.

    Raises: BrokerError.
    """
    found = await subscription.ledger.find_by_publish_time(publish_time_ms)
    target = subscription.ordinals.of(found)
    slot = _slot(subscription, consumer)
    undo = _Undo(subscription, slot)
    _move(subscription, slot, target)
    await _store(subscription, consumer, undo)


def _slot(subscription: BroadcastSubscription, consumer: Consumer) -> int:
    subscription.check_open()
    slot = subscription.attached.get(consumer)
    if slot is None:
        raise ConsumerNotFound("the consumer is gone: subscribe, then seek again")
    return slot


async def _store(subscription: BroadcastSubscription, consumer: Consumer, undo: _Undo) -> None:
    subscription.remove_consumer(consumer, comes_back=True)
    consumer.session.disconnect_consumer(consumer)
    await undo.unless_stored()


def leave(subscription: BroadcastSubscription, consumer: Consumer) -> Awaitable[None]:
    """Unsubscribe one of several consumers. It is detached and its virtual cursor has ended when
    this returns; to be awaited until that is stored. If it cannot be stored, its virtual cursor is
    there again.

    Raises: BrokerError ServiceNotReady: a move of it is still being stored; it stays attached.
    """
    undo = _Undo(subscription, _slot(subscription, consumer))
    subscription.drop_consumer(consumer)
    return undo.unless_stored()


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
        holder = None if slot is None else subscription.fanout.consumer_at(slot)
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
