"""SUBSCRIBE: attach a consumer, opening or creating its subscription.

Nothing is left behind by a refusal: the schema is checked before the consumer is attached, and a
consumer that was closed meanwhile is taken out again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from broker.broadcast.broadcast_subscription import BroadcastSubscription, NameTaken
from broker.broadcast.lean_consumers import COUNTERS, PENDING, PERMITS
from broker.broadcast.selection import check_kind
from broker.handlers.attached import Attached, PendingConsumer
from broker.handlers.lookup import parse_topic
from broker.handlers.subscribe_broadcast import attach_at_once, attach_to_broadcast
from broker.subscription.api import EXCLUSIVE, FAILOVER
from broker.subscription.consumer import EPOCH_UNSET, Consumer, Counters, KeySharedOptions
from broker.subscription.factory import SubscriptionRequest
from broker.subscription.permits import Permits
from broker.subscription.unacked import PendingAcks
from protocol import commands
from protocol import pulsar_api_pb2 as pb
from protocol.errors import (
    BrokerError,
    NotAllowed,
    ProducerBusy,
    ServerError,
    ServiceNotReady,
    SubscriptionNotFound,
    TooManyRequests,
)
from protocol.position import signed_id

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable
    from typing import Any

    from broker.net.session import Session
    from broker.subscription.api import Subscription
    from broker.topic.topic import Topic

_EARLIEST = pb.CommandSubscribe.Earliest
_STOCK = KeySharedOptions()


def handle_subscribe(
    session: Session, body: pb.CommandSubscribe
) -> Coroutine[Any, Any, None] | None:
    """Attach a consumer, or confirm one that is attached under this id."""
    existing = session.consumers.get(body.consumer_id)
    if isinstance(existing, PendingConsumer):
        raise ServiceNotReady("Consumer is already present on the connection")
    if existing is not None:
        session.send(commands.success(body.request_id))
        return None
    if len(session.consumers) >= session.limits.consumers_per_connection_max:
        raise TooManyRequests(
            f"{len(session.consumers)} consumers are open on this connection, which is the bound"
        )
    place = PendingConsumer()
    session.consumers[body.consumer_id] = place
    return _subscribe(session, body, place, follow=True)


def _subscribe(
    session: Session, body: pb.CommandSubscribe, place: PendingConsumer, *, follow: bool
) -> Coroutine[Any, Any, None] | None:
    """Attach the consumer at once, or else with `follow` after those who are opening the same
    subscription; or return what has to be awaited for it."""
    try:
        if _create_at_once(session, body, place):
            return None
    except Exception:
        del session.consumers[body.consumer_id]
        raise
    if follow and _follow(session, body, place):
        return None
    return _create(session, body, place, follow=follow)


def _follow(session: Session, body: pb.CommandSubscribe, place: PendingConsumer) -> bool:
    """Wait for somebody who is opening the subscription; False: nobody is."""

    def subscribe() -> Coroutine[Any, Any, None] | None:
        return None if place.cancelled else _subscribe(session, body, place, follow=False)

    def command() -> pb.BaseCommand:
        return pb.BaseCommand(type=pb.BaseCommand.SUBSCRIBE, subscribe=body)

    def go_on() -> None:
        session.go_on(subscribe, command)

    follows = session.service.openings.call_after(_key(body), go_on)
    if follows:
        session.request_waits()
    return follows


def _key(body: pb.CommandSubscribe) -> tuple[str, str]:
    return parse_topic(body.topic).full, body.subscription


def _create_at_once(session: Session, body: pb.CommandSubscribe, place: PendingConsumer) -> bool:
    """The short way for consumers of a broadcast that is there; False: it must be the long way."""
    topic = session.service.topics.get(parse_topic(body.topic).full)
    if topic is None or topic.closing or body.HasField("schema"):
        return False
    if not isinstance(topic.subscriptions.get(body.subscription), BroadcastSubscription):
        return False
    _check(topic, body)
    request = _request(body)
    consumer = _consumer(session, body, request, lean=True)
    return attach_at_once(session, topic, request, consumer, body.request_id, place)


async def _create(
    session: Session, body: pb.CommandSubscribe, place: PendingConsumer, *, follow: bool
) -> None:
    if follow and _follow(session, body, place):
        return  # another one of the same turn has begun to open it
    try:
        request = _request(body)
        if follow:
            openings, nursery = session.service.openings, session.service.nursery
            with openings.leading(_key(body), nursery):
                topic, subscription = await _open(session, body, request)
        else:
            topic, subscription = await _open(session, body, request)
        check_kind(subscription, request)
        consumer = _consumer(session, body, request)
        if isinstance(subscription, BroadcastSubscription):
            await _attach_to_broadcast(topic, subscription, consumer, request)
        else:
            await _attach(topic, subscription, consumer)
        if place.cancelled:
            subscription.remove_consumer(consumer)
            return
        session.consumers[body.consumer_id] = Attached(consumer, subscription, topic)
        session.send(commands.success(body.request_id))
        subscription.announce_active(consumer)
        if place.permits:
            subscription.flow(consumer, place.permits)
    except Exception:
        if place.cancelled:
            return  # whoever closed it has been answered already
        raise
    finally:
        if session.consumers.get(body.consumer_id) is place:
            del session.consumers[body.consumer_id]


async def _open(
    session: Session, body: pb.CommandSubscribe, request: SubscriptionRequest
) -> tuple[Topic, Subscription]:
    topic = await session.service.get_or_load_topic(
        parse_topic(body.topic), create=body.force_topic_creation
    )
    _check(topic, body)
    await _check_schema(topic, body)
    return topic, await topic.open_subscription(request)


def _check(topic: Topic, body: pb.CommandSubscribe) -> None:
    if not body.subscription.strip():
        raise ProducerBusy("Empty subscription name")  # the code that Pulsar gives it
    if body.read_compacted and not (topic.persistent and body.subType in (EXCLUSIVE, FAILOVER)):
        raise NotAllowed(
            "readCompacted only allowed on persistent topics and"
            " Failover or Exclusive subscriptions"
        )
    if (
        topic.persistent
        and body.durable
        and body.subscription not in topic.subscriptions
        and not topic.namespace.policies.allows_auto_subscription_creation(topic.service.config)
    ):
        raise SubscriptionNotFound("Subscription does not exist")


async def _check_schema(topic: Topic, body: pb.CommandSubscribe) -> None:
    """A consumer's schema is registered on an idle topic, else it must fit what is there."""
    if not body.HasField("schema"):
        return
    active = bool(topic.access.producers) or topic.consumer_count() > 0
    await topic.service.schemas.for_consumer(
        topic.name,
        body.schema,
        topic.namespace.policies,
        topic_active=active or topic.holds_messages(),
    )


async def _attach_to_broadcast(
    topic: Topic,
    subscription: BroadcastSubscription,
    consumer: Consumer,
    request: SubscriptionRequest,
) -> None:
    """Add the consumer; a connection that holds its name but is dead makes room first."""
    holder = await attach_to_broadcast(topic, subscription, consumer, request)
    if holder is None:
        return
    if not await _is_dead(topic, holder, consumer):
        raise NameTaken(holder)
    subscription.remove_consumer(holder)
    holder = await attach_to_broadcast(topic, subscription, consumer, request)
    if holder is not None:
        raise NameTaken(holder)


async def _attach(topic: Topic, subscription: Subscription, consumer: Consumer) -> None:
    """Add the consumer; a connection that holds its place but is dead makes room first."""
    try:
        topic.attach_consumer(subscription, consumer)
    except BrokerError as error:
        busy = error.server_error == ServerError.ConsumerBusy
        if not busy or not await _clear_dead(topic, subscription, consumer):
            raise
        topic.attach_consumer(subscription, consumer)


async def _clear_dead(topic: Topic, subscription: Subscription, consumer: Consumer) -> bool:
    others = [each for each in subscription.consumers if each.session is not consumer.session]
    cleared = False
    for other in others[:1]:
        if await _is_dead(topic, other, consumer):
            subscription.remove_consumer(other)
            cleared = True
    return cleared


async def _is_dead(topic: Topic, holder: Consumer, consumer: Consumer) -> bool:
    """Whether the connection of another consumer gives no sign of life; then it is closed."""
    if holder.session is consumer.session:
        return False
    seconds = topic.service.config.connectionLivenessCheckTimeoutMillis / 1000
    session = cast("Session", holder.session)
    if not seconds or await session.is_alive(seconds):
        return False
    session.close("no sign of life, and its subscription is wanted again")
    return True


def _properties(items: Iterable[pb.KeyValue]) -> dict[str, str]:
    return {item.key: item.value for item in items} if items else {}


def _request(body: pb.CommandSubscribe) -> SubscriptionRequest:
    start = None
    if body.HasField("start_message_id"):
        data = body.start_message_id
        start = (signed_id(data.ledgerId), signed_id(data.entryId), data.batch_index)
    return SubscriptionRequest(
        name=body.subscription,
        durable=body.durable,
        earliest=body.initialPosition == _EARLIEST,
        start_message_id=start,
        start_rollback_seconds=body.start_message_rollback_duration_sec,
        properties=_properties(body.subscription_properties),
        metadata=_properties(body.metadata),
        read_compacted=body.read_compacted,
    )


def _consumer(
    session: Session, body: pb.CommandSubscribe, request: SubscriptionRequest, *, lean: bool = False
) -> Consumer:
    """`lean`: it is for a broadcast, which shares what it does not use."""
    return Consumer(
        consumer_id=body.consumer_id,
        name=body.consumer_name,
        session=session,
        sub_type=body.subType,
        priority_level=body.priority_level,
        durable=request.durable,
        read_compacted=request.read_compacted,
        key_shared=_key_shared(body.keySharedMeta) if body.HasField("keySharedMeta") else _STOCK,
        metadata=request.metadata,
        subscription_properties=request.properties,
        epoch=body.consumer_epoch if body.HasField("consumer_epoch") else EPOCH_UNSET,
        connected_since_ms=session.service.clock.wall_ms(),
        permits=PERMITS if lean else Permits(),
        pending=PENDING if lean else PendingAcks(),
        counters=COUNTERS if lean else Counters(),
    )


def _key_shared(meta: pb.KeySharedMeta) -> KeySharedOptions:
    return KeySharedOptions(
        sticky=meta.keySharedMode == pb.KeySharedMode.STICKY,
        ranges=tuple((each.start, each.end) for each in meta.hashRanges),
        out_of_order_allowed=meta.allowOutOfOrderDelivery,
    )
