"""SUBSCRIBE to a broadcast: the part that a hundred thousand consumers take within seconds.

When topic and subscription are there, a consumer is attached at once, without a task of its own; it
is answered when its name is stored, together with all whose names were stored with it. Everything
else (topic not loaded, a schema, a name that seems to be taken) goes the common way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.broadcast.broadcast_subscription import BroadcastSubscription, NameTaken
from broker.broadcast.selection import check_kind
from broker.handlers.attached import Attached
from protocol import commands
from protocol.errors import ServerError

if TYPE_CHECKING:
    from broker.handlers.attached import PendingConsumer
    from broker.net.session import Session
    from broker.subscription.consumer import Consumer
    from broker.subscription.factory import SubscriptionRequest
    from broker.topic.topic import Topic
    from protocol.errors import BrokerError


def attach_at_once(
    session: Session,
    topic: Topic,
    request: SubscriptionRequest,
    consumer: Consumer,
    request_id: int,
    place: PendingConsumer,
) -> bool:
    """Attach the consumer, if it is one of a broadcast that is open and nothing has to be waited
    for first. False: nothing was done.

    Raises: BrokerError.
    """
    subscription = topic.subscriptions.get(request.name)
    if not isinstance(subscription, BroadcastSubscription) or request.start_rollback_seconds:
        return False
    check_kind(subscription, request)
    try:
        subscription.set_start(consumer, request)
        topic.attach_consumer(subscription, consumer)
    except NameTaken:
        return False
    finally:
        subscription.forget_start(consumer)

    def stored(error: BrokerError | None) -> None:
        answer(session, topic, subscription, consumer, request_id, place, error)

    subscription.keeper.call_when_stored(stored)
    return True


def answer(
    session: Session,
    topic: Topic,
    subscription: BroadcastSubscription,
    consumer: Consumer,
    request_id: int,
    place: PendingConsumer,
    error: BrokerError | None,
) -> None:
    """The consumer's name is stored, or could not be."""
    consumer_id = consumer.consumer_id
    if session.consumers.get(consumer_id) is place:
        del session.consumers[consumer_id]
    if place.cancelled or error is not None or consumer not in subscription.consumers:
        subscription.remove_consumer(consumer)
        if not place.cancelled:
            server_error, message = (
                (ServerError.ServiceNotReady, "The subscription was closed; try again")
                if error is None
                else (error.server_error, error.message)
            )
            session.send(commands.error(request_id, server_error, message))
        return
    session.consumers[consumer_id] = Attached(consumer, subscription, topic)
    session.send(commands.success(request_id))
    subscription.announce_active(consumer)
    if place.permits:
        subscription.flow(consumer, place.permits)


async def attach_to_broadcast(
    topic: Topic,
    subscription: BroadcastSubscription,
    consumer: Consumer,
    request: SubscriptionRequest,
) -> Consumer | None:
    """Attach the consumer; return when its name is stored. If the name belongs to a connected
    consumer, that one is returned and nothing was done.

    Raises: BrokerError.
    """
    await subscription.prepare(consumer, request)
    try:
        topic.attach_consumer(subscription, consumer)
    except NameTaken as refusal:
        return refusal.holder
    finally:
        subscription.forget_start(consumer)
    try:
        await subscription.commit()
    except BaseException:
        subscription.remove_consumer(consumer)
        raise
    return None
