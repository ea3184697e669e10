"""SUBSCRIBE: attach a consumer, opening or creating its subscription.

When topic and subscription are there, a consumer is attached at once, without a task of its own:
a hundred thousand may come within seconds. It is answered when what its subscription keeps of it is
stored. A task is needed when something must be opened or looked up first, or a schema registered.

Nothing is left behind by a refusal: the schema is checked before the consumer is attached, and a
consumer that was closed meanwhile is taken out again.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, cast, final

from broker.handlers.lookup import parse_topic
from broker.handlers.pending import PendingConsumer
from broker.subscription.api import EXCLUSIVE, FAILOVER
from broker.subscription.consumer import EPOCH_UNSET, NO_OPTIONS, Consumer, KeySharedOptions
from broker.subscription.factory import SubscriptionRequest
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
    from broker.subscription.api import ConsumerHandle, Subscription
    from broker.topic.topic import Topic
    from protocol.topic_name import TopicName

_EARLIEST = pb.CommandSubscribe.Earliest


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
    return _Subscribing(session, body, parse_topic(body.topic)).begin()


@final
class _Subscribing:
    """One SUBSCRIBE from its arrival to its answer."""

    __slots__ = ("_body", "_place", "_request", "_session", "_topic_name")

    def __init__(self, session: Session, body: pb.CommandSubscribe, topic_name: TopicName) -> None:
        self._session = session
        self._body = body
        self._topic_name = topic_name
        self._request = _request(body)
        self._place = session.consumers[body.consumer_id] = PendingConsumer()

    def begin(self, *, follow: bool = True) -> Coroutine[Any, Any, None] | None:
        """Attach the consumer at once, or else with `follow` after those who are opening the same
        subscription; or return what has to be awaited for it."""
        try:
            if self._attach_at_once():
                return None
        except Exception:
            self._vacate()
            raise
        return None if follow and self._follow() else self._open_and_attach(lead=follow)

    def _attach_at_once(self) -> bool:
        """False: something has to be waited for, and nothing was done."""
        body, request = self._body, self._request
        topic = self._session.service.topics.get(self._topic_name.full)
        if topic is None or topic.closing or body.HasField("schema"):
            return False
        subscription = topic.subscriptions.get(request.name)
        if subscription is None or request.start_rollback_seconds:
            return False
        _check(topic, body)
        consumer = _consumer(self._session, body, request)
        try:
            self._attach(topic, subscription, consumer, request)
        except BrokerError as error:
            if _in_the_way(subscription, consumer, error) is None:
                raise
            return False
        return True

    def _follow(self) -> bool:
        """Wait for somebody who is opening the subscription; False: nobody is."""
        session, body = self._session, self._body

        def subscribe() -> Coroutine[Any, Any, None] | None:
            return None if self._place.cancelled else self.begin(follow=False)

        def command() -> pb.BaseCommand:
            return pb.BaseCommand(type=pb.BaseCommand.SUBSCRIBE, subscribe=body)

        def go_on() -> None:
            session.go_on(subscribe, command)

        key = (self._topic_name.full, self._request.name)
        follows = session.service.openings.call_after(key, go_on)
        if follows:
            session.request_waits()
        return follows

    async def _open_and_attach(self, *, lead: bool) -> None:
        if lead and self._follow():
            return  # another one of the same turn has begun to open it
        request = self._request
        try:
            if lead:
                service = self._session.service
                key = (self._topic_name.full, request.name)
                with service.openings.leading(key, service.nursery):
                    topic, subscription = await self._open()
            else:
                topic, subscription = await self._open()
            if request.start_rollback_seconds:
                request = await subscription.locate(request)
            consumer = _consumer(self._session, self._body, request)
            try:
                self._attach(topic, subscription, consumer, request)
            except BrokerError as error:
                holder = _in_the_way(subscription, consumer, error)
                if holder is None or not await _is_dead(topic, holder):
                    raise
                subscription.remove_consumer(holder)
                self._attach(topic, subscription, consumer, request)
        except Exception:
            self._vacate()
            if not self._place.cancelled:  # else whoever closed it has been answered already
                raise

    async def _open(self) -> tuple[Topic, Subscription]:
        body = self._body
        topic = await self._session.service.get_or_load_topic(
            self._topic_name, create=body.force_topic_creation
        )
        _check(topic, body)
        await _check_schema(topic, body)
        return topic, await topic.open_subscription(self._request)

    def _attach(
        self,
        topic: Topic,
        subscription: Subscription,
        consumer: Consumer,
        request: SubscriptionRequest,
    ) -> None:
        handle = topic.attach_consumer(subscription, consumer, request)
        handle.when_kept(partial(self._answer, handle))

    def _answer(self, handle: ConsumerHandle, error: BrokerError | None) -> None:
        """The consumer can stay, or cannot."""
        session, body, place = self._session, self._body, self._place
        self._vacate()
        if place.cancelled:
            handle.remove()
        elif error is not None:
            handle.remove()
            session.send(commands.error(body.request_id, error.server_error, error.message))
        else:
            session.consumers[body.consumer_id] = handle
            session.send(commands.success(body.request_id))
            handle.announce()
            if place.permits:
                handle.flow(place.permits)

    def _vacate(self) -> None:
        consumers, consumer_id = self._session.consumers, self._body.consumer_id
        if consumers.get(consumer_id) is self._place:
            del consumers[consumer_id]


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


def _in_the_way(
    subscription: Subscription, consumer: Consumer, error: BrokerError
) -> Consumer | None:
    """Whose place was refused to the consumer, if it is on another connection: that may be dead."""
    if error.server_error != ServerError.ConsumerBusy:
        return None
    holder = subscription.in_the_way_of(consumer)
    return None if holder is None or holder.session is consumer.session else holder


async def _is_dead(topic: Topic, holder: Consumer) -> bool:
    """Whether the connection of another consumer gives no sign of life; then it is closed."""
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
    session: Session, body: pb.CommandSubscribe, request: SubscriptionRequest
) -> Consumer:
    return Consumer(
        consumer_id=body.consumer_id,
        name=body.consumer_name,
        session=session,
        sub_type=body.subType,
        priority_level=body.priority_level,
        durable=request.durable,
        read_compacted=request.read_compacted,
        key_shared=(
            _key_shared(body.keySharedMeta) if body.HasField("keySharedMeta") else NO_OPTIONS
        ),
        metadata=request.metadata,
        subscription_properties=request.properties,
        epoch=body.consumer_epoch if body.HasField("consumer_epoch") else EPOCH_UNSET,
        connected_since_ms=session.service.clock.wall_ms(),
    )


def _key_shared(meta: pb.KeySharedMeta) -> KeySharedOptions:
    return KeySharedOptions(
        sticky=meta.keySharedMode == pb.KeySharedMode.STICKY,
        ranges=tuple((each.start, each.end) for each in meta.hashRanges),
        out_of_order_allowed=meta.allowOutOfOrderDelivery,
    )
