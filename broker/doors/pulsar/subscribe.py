"""SUBSCRIBE: attach a consumer, opening or creating its subscription.

A SUBSCRIBE is one of the operations on its topic until the topic is loaded, then one of those on
its subscription, so it takes effect after earlier requests. A task is needed only when something
must be opened or looked up first, or a schema registered. After a restart a hundred thousand
consumers may request one subscription: the first of them opens it, the others wait in a list. A
consumer is answered once the state that its subscription keeps of it is stored.

A refusal leaves no state: the schema is checked before the consumer is attached, and a consumer
that was closed meanwhile is removed again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from broker.doors.pulsar.lookup import parse_topic
from broker.doors.pulsar.pending import PendingConsumer
from broker.doors.pulsar.session import ClientSession, consuming_of
from broker.tenancy.schemas.registry import is_auto_consume
from broker.topics.subscription.consumer import NO_OPTIONS, Consumer, KeySharedOptions
from broker.topics.subscription.request import SubscriptionRequest
from protocol import commands
from protocol import pulsar_api_pb2 as pb
from protocol.errors import (
    BrokerError,
    MetadataError,
    ServerError,
    ServiceNotReady,
    TooManyRequests,
)

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping
    from typing import Any

    from broker.doors.pulsar.authorization import StillAllowed
    from broker.doors.pulsar.broker import Broker
    from broker.tenancy.schemas.registry import SchemaRegistry
    from broker.topics.subscription.api import ConsumerHandle, Subscription
    from broker.topics.topic.topic import Topic
    from protocol.requests import Subscribe

_TEMPORARY = frozenset(
    {ServerError.ServiceNotReady, ServerError.MetadataError, ServerError.PersistenceError}
)
"""Codes of refusals that a later SUBSCRIBE may not meet."""


def handle_subscribe(
    broker: Broker, grants: StillAllowed, session: ClientSession, subscribe: Subscribe
) -> None:
    """Attach a consumer, or confirm an attached one with this id."""
    consumer_id = subscribe.consumer_id
    existing = session.consumers.get(consumer_id)
    if isinstance(existing, PendingConsumer):
        raise ServiceNotReady("Consumer is already present on the connection")
    if existing is not None:
        session.send(commands.success(subscribe.request_id))
        return
    if len(session.consumers) >= session.limits.consumers_per_connection_max:
        raise TooManyRequests(
            f"{len(session.consumers)} consumers are open on this connection, which is the bound"
        )
    if subscribe.size_bytes > broker.config.maxConsumerMetadataSize:  # else its metadata cannot be
        _check_metadata(subscribe.metadata, broker.config.maxConsumerMetadataSize)
    if subscribe.size_bytes > broker.config.maxConsumerNameSize:
        _check_name(subscribe.consumer_name, broker.config.maxConsumerNameSize)
    name = parse_topic(subscribe.topic)
    waiter = _Subscribing(broker, grants, session, subscribe, consumer_id)
    broker.call_when_loaded(name, create=subscribe.may_create, waiter=waiter)


@final
class _Subscribing:
    """One SUBSCRIBE from its arrival until its consumer is attached."""

    __slots__ = (
        "_broker",
        "_consumer_id",
        "_grants",
        "_has_cleared",
        "_place",
        "_request",
        "_session",
        "_subscribe",
        "_topic",
    )

    _topic: Topic

    def __init__(
        self,
        broker: Broker,
        grants: StillAllowed,
        session: ClientSession,
        subscribe: Subscribe,
        consumer_id: int,
    ) -> None:
        self._broker = broker
        self._grants = grants
        self._session = session
        self._subscribe = subscribe
        self._consumer_id = consumer_id
        self._request = _request(subscribe)
        self._has_cleared = False
        """A dead connection held its place. There is no second search."""
        self._place = PendingConsumer()
        session.add_consumer(consumer_id, self._place)
        session.request_begins()

    @property
    def is_cancelled(self) -> bool:
        """It was closed, or its connection has ended."""
        return self._place.cancelled

    def loaded(self, topic: Topic) -> None:
        """The topic is loaded: earlier operations on the subscription come first."""
        self._topic = topic
        topic.operations.begin(self._request.name, self._in_turn)

    def refused(self, error: Exception) -> None:
        """Answer with the error, unless the consumer was closed, which has been answered."""
        session, consumer_id = self._session, self._consumer_id
        session.request_ends()
        _vacate(session, consumer_id, self._place)
        if not self._place.cancelled:
            session.refuse(self._subscribe.command(), error)
            if isinstance(error, BrokerError):
                _ask_again(session, consumer_id, error)

    def _in_turn(self) -> Coroutine[Any, Any, None] | None:
        """Attach the consumer at once, or return a coroutine for the rest."""
        topic, subscribe, request = self._topic, self._subscribe, self._request
        if self._place.cancelled:
            self._session.request_ends()
            return None
        try:
            topic.check_open()
            topic.check_consumer(self._session.remote_address, subscribe.sub_type, request)
            if not self._has_cleared:
                address = self._session.remote_address
                topic.check_subscribe_rate(address, subscribe.consumer_name, self._consumer_id)
            subscription = topic.subscriptions.get(request.name)
            if (
                subscription is None
                or request.start_rollback_seconds
                or subscribe.schema is not None
            ):
                return self._open_and_attach()
            if not self._grants.is_known(self._session, subscribe):
                return self._open_and_attach()
            self._attach(subscription, request)
        except Exception as error:
            self.refused(error)
        return None

    async def _open_and_attach(self) -> None:
        topic, request = self._topic, self._request
        try:
            await _check_schema(self._broker.schemas, topic, self._subscribe.schema)
            subscription = await topic.open_subscription_in_turn(request)
            if request.start_rollback_seconds:
                request = await subscription.locate(request)
            await self._grants.known(self._session, self._subscribe)
            if self._place.cancelled:
                self._session.request_ends()
            else:
                self._attach(subscription, request)
        except Exception as error:
            self.refused(error)

    def _attach(self, subscription: Subscription, request: SubscriptionRequest) -> None:
        """Add the consumer. A dead connection that holds its place is closed first."""
        session, topic = self._session, self._topic
        consumer = _consumer(session, self._subscribe)
        try:
            handle = topic.attach_consumer(subscription, consumer, request)
        except BrokerError as error:
            seconds = self._broker.config.connectionLivenessCheckTimeoutMillis / 1000
            holder = _in_the_way(subscription, consumer, error)
            if holder is None or not seconds or self._has_cleared:
                raise
            clear = self._clear(subscription, holder, error, seconds)
            session.start_rest(self._subscribe.command(), clear)
            return
        session.share.used_by(topic.name.tenant)
        session.request_ends()
        handle.when_kept(_Answer(session, self._subscribe.request_id, self._place, handle))

    async def _clear(
        self, subscription: Subscription, holder: Consumer, refusal: BrokerError, seconds: float
    ) -> None:
        """Try again if the holder's connection gives no sign of life, after closing it. Other
        requests do not wait for this."""
        if await holder.session.is_alive(seconds):
            self.refused(refusal)
            return
        holder.session.close("no sign of life, and its subscription is wanted again")
        subscription.remove_consumer(holder)
        self._has_cleared = True
        self._topic.operations.begin(self._request.name, self._in_turn)


@final
class _Answer:
    """The answer to one SUBSCRIBE whose consumer is attached. Tens of thousands may wait at once,
    and the garbage collector looks at all that they hold, so they do not hold the request."""

    __slots__ = ("_handle", "_place", "_request_id", "_session")

    def __init__(
        self,
        session: ClientSession,
        request_id: int,
        place: PendingConsumer,
        handle: ConsumerHandle,
    ) -> None:
        self._session = session
        self._request_id = request_id
        self._place = place
        self._handle = handle

    def __call__(self, error: BrokerError | None) -> None:
        """The consumer can stay, or it cannot for the given reason."""
        session, place, handle = self._session, self._place, self._handle
        consumer_id = handle.consumer.consumer_id
        if place.cancelled:
            _vacate(session, consumer_id, place)
            handle.remove()
        elif error is not None:
            _vacate(session, consumer_id, place)
            handle.remove()
            session.send(commands.error(self._request_id, error.server_error, error.message))
            _ask_again(session, consumer_id, error)
        else:
            session.add_consumer(consumer_id, handle)
            session.send(commands.success(self._request_id))
            handle.announce()
            if place.permits:
                handle.flow(place.permits)


def _vacate(session: ClientSession, consumer_id: int, place: PendingConsumer) -> None:
    if session.consumers.get(consumer_id) is place:
        del session.consumers[consumer_id]


def _ask_again(session: ClientSession, consumer_id: int, error: BrokerError) -> None:
    """Let clients of the C++ library (4.2 and before) subscribe again. After a retryable error of
    its first SUBSCRIBE a consumer of theirs takes itself for connected, and waits for its timeout.
    CLOSE_CONSUMER ends that, and clients that do not know the consumer any more ignore it."""
    if error.server_error in _TEMPORARY:
        session.send(commands.close_consumer(consumer_id))


async def _check_schema(schemas: SchemaRegistry, topic: Topic, schema: pb.Schema | None) -> None:
    """Register a consumer's schema on an idle topic; otherwise check it against the existing
    one."""
    if schema is not None:
        await schemas.for_consumer(
            topic.name, schema, topic.policies.effective, is_in_use=topic.is_in_use
        )


def _in_the_way(
    subscription: Subscription, consumer: Consumer, error: BrokerError
) -> Consumer | None:
    """The consumer that holds the refused place, if it is on another connection, possibly dead."""
    if error.server_error != ServerError.ConsumerBusy:
        return None
    holder = subscription.in_the_way_of(consumer)
    return None if holder is None or holder.session is consumer.session else holder


def _check_metadata(metadata: Mapping[str, str], size_max: int) -> None:
    """Pulsar counts characters of UTF-16; one outside of the first plane counts as two."""
    size = sum(len(text.encode("utf-16-le")) for pair in metadata.items() for text in pair) // 2
    if size > size_max:
        raise MetadataError(f"metadata has a max size of {size_max} bytes")


def _check_name(name: str, bytes_max: int) -> None:
    size_bytes = len(name.encode())
    if size_bytes > bytes_max:
        raise MetadataError(
            f"The name of the consumer takes {size_bytes} bytes, more than the {bytes_max} of"
            " maxConsumerNameSize"
        )


def _request(subscribe: Subscribe) -> SubscriptionRequest:
    return SubscriptionRequest(
        subscribe.subscription,
        subscribe.durable,
        subscribe.earliest,
        subscribe.start_message_id,
        subscribe.rollback_seconds,
        None,
        subscribe.properties,
        subscribe.metadata,
        subscribe.read_compacted,
        subscribe.replicated,
    )


def _consumer(session: ClientSession, subscribe: Subscribe) -> Consumer:
    key_shared = subscribe.key_shared
    return Consumer(
        subscribe.consumer_id,
        subscribe.consumer_name,
        consuming_of(session),
        subscribe.sub_type,
        subscribe.priority_level,
        subscribe.durable,
        subscribe.read_compacted,
        NO_OPTIONS if key_shared is None else _key_shared(key_shared),
        subscribe.metadata,
        subscribe.properties,
        subscribe.epoch,
        session.caller.role or "",
        session.connections.clock.wall_ms(),
        subscribe.schema is not None and is_auto_consume(subscribe.schema),
    )


def _key_shared(meta: pb.KeySharedMeta) -> KeySharedOptions:
    return KeySharedOptions(
        sticky=meta.keySharedMode == pb.KeySharedMode.STICKY,
        ranges=tuple((each.start, each.end) for each in meta.hashRanges),
        out_of_order_allowed=meta.allowOutOfOrderDelivery,
    )
