"""Moves consumers of a broadcast: one that seeks, or all of them for an administrator.

The order of a seek is the same as elsewhere: positions change, the moved consumers are sent
CLOSE_CONSUMER, and the caller answers when the positions are stored. The client subscribes again by
itself and finds the new position under its name.

A move that cannot be stored is refused and undone. Until it is stored, the main cursor is held at
the old position of the consumer, so that none of its entries are deleted (`_Undo`). Until then the
name is not moved a second time either: the undo could restore the place of a move that was refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from broker.ground.operations import start_owned
from broker.topics.subscription.start import seek_mark_delete
from protocol.ack_set import from_words
from protocol.errors import BrokerError, ConsumerNotFound, ServiceNotReady

if TYPE_CHECKING:
    from collections.abc import Awaitable, Coroutine
    from typing import Any

    from broker.topics.broadcast.members import BroadcastMembers
    from broker.topics.subscription.consumer import Consumer
    from protocol.position import Position


def seek(
    members: BroadcastMembers,
    consumer: Consumer,
    position: Position,
    ack_set: tuple[int, ...],
) -> Awaitable[None]:
    """Let one consumer continue with `position` (`ack_set`: with its messages whose bits are set).
    It is moved and disconnected when this returns. Await it until that is stored.

    Raises: BrokerError.
    """

    def move() -> Coroutine[Any, Any, None]:
        target = members.ordinals.of(seek_mark_delete(members.ledger, position))
        batch = members.ordinals.exact(position) if ack_set else None
        return _move_one(members, consumer, target, batch, from_words(ack_set))

    return start_owned(members.context.nursery, move)


def seek_to_time(
    members: BroadcastMembers, consumer: Consumer, publish_time_ms: int
) -> Awaitable[None]:
    """Let one consumer continue with the first entry published at or after the time. It is moved
    and disconnected when that entry is found.

    Raises: BrokerError.
    """

    async def find_and_move() -> None:
        found = await members.ledger.find_by_publish_time(publish_time_ms)
        await _move_one(members, consumer, members.ordinals.of(found))

    return start_owned(members.context.nursery, find_and_move)


def _move_one(
    members: BroadcastMembers,
    consumer: Consumer,
    target: int,
    batch: int | None = None,
    unacked: int = 0,
) -> Coroutine[Any, Any, None]:
    slot = _slot(members, consumer)
    undo = _Undo(members, slot)
    _move(members, slot, target)
    if batch is not None and members.batch_index:
        members.cursors.ack_batch(slot, batch, unacked)
    members.remove_consumer(consumer, comes_back=True)
    consumer.session.closed(consumer)
    return undo.unless_stored()


def _slot(members: BroadcastMembers, consumer: Consumer) -> int:
    members.check_open()
    slot = members.attached.get(consumer)
    if slot is None:
        raise ConsumerNotFound("the consumer is gone: subscribe, then seek again")
    return slot


def leave(members: BroadcastMembers, consumer: Consumer) -> Awaitable[None]:
    """Unsubscribe one of several consumers. It is detached and its virtual cursor has ended when
    this returns. Await it until that is stored. If it cannot be stored, its virtual cursor exists
    again.

    Raises: BrokerError ServiceNotReady: a move of it is still being stored; it stays attached.
    """

    def drop() -> Coroutine[Any, Any, None]:
        undo = _Undo(members, _slot(members, consumer))
        members.drop_consumer(consumer)
        return undo.unless_stored()

    return start_owned(members.context.nursery, drop)


@final
class _Undo:
    """The former place of a virtual cursor. From here until the end of `unless_stored` the main
    cursor does not pass that place.

    Raises: BrokerError ServiceNotReady: its last move is not decided yet.
    """

    def __init__(self, members: BroadcastMembers, slot: int) -> None:
        cursors = members.cursors
        name = cursors.names[slot]
        assert name is not None
        if name in members.moving:
            raise ServiceNotReady(
                "a seek or unsubscribe of this consumer is still being stored: try again"
            )
        members.moving.add(name)
        self._members = members
        self._name = name
        self._durable = bool(cursors.durable[slot])
        self._acked = cursors.acked[slot]
        self._ragged = cursors.ragged_of(slot)
        cursors.hold(self._acked)

    async def unless_stored(self) -> None:
        """Store the changes. If that fails, undo everything.

        Raises: BrokerError.
        """
        members = self._members
        keeper = members.keeper
        keeper.changed()
        keeper.advance()
        try:
            await members.commit()
        except BrokerError:
            if not members.acks.closed:
                self._put_back()
                keeper.changed()
            raise
        finally:
            members.moving.discard(self._name)
            if not members.acks.closed:
                members.cursors.release(self._acked)
                keeper.advance()

    def _put_back(self) -> None:
        members = self._members
        cursors, name = members.cursors, self._name
        slot = cursors.slot_of(name)
        holder = None if slot is None else members.fanout.consumer_at(slot)
        if holder is not None:  # it returned too early, or another one of that name arrived
            members.remove_consumer(holder, comes_back=True)
            holder.session.closed(holder)
            slot = cursors.slot_of(name)
        if slot is None:
            slot = cursors.join(name, self._acked, durable=self._durable)
            cursors.detach(slot, members.deadline(durable=self._durable))
        cursors.put_back(slot, self._acked, self._ragged)


def _move(members: BroadcastMembers, slot: int, acked: int) -> None:
    ordinals = members.ordinals
    members.cursors.seek(slot, min(max(acked, ordinals.first - 1), ordinals.tail))


async def reset_all(members: BroadcastMembers, acked: int) -> None:
    """Put every consumer after the ordinal. Consumers are disconnected and return.

    Raises: BrokerError.
    """
    keeper = members.keeper
    members.seeking = True
    try:
        for slot in list(members.cursors):
            _move(members, slot, acked)
        keeper.move_to(acked)
        members.disconnect_consumers()
        await keeper.commit()
    finally:
        members.seeking = False


def skip_all_to(members: BroadcastMembers, ordinal: int) -> None:
    """Acknowledge everything up to the ordinal for every consumer, connected or not."""
    groups, fanout = members.groups, members.fanout
    ordinal = min(ordinal, members.ordinals.tail)
    for slot in list(members.cursors):
        members.cursors.ack_cumulative(slot, ordinal)
    for slot in list(members.attached.values()):
        if groups.sent[slot] < ordinal:
            groups.overtaken(slot)
        groups.forget_counts(slot)
        fanout.wake(groups.acked(slot) or groups.lanes[slot])
    if ordinal > members.keeper.marked:
        members.keeper.move_to(ordinal)
