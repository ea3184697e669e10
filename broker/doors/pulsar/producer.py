"""PRODUCER and CLOSE_PRODUCER."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from broker.doors.pulsar.lookup import parse_topic
from broker.doors.pulsar.pending import PendingProducer
from broker.doors.pulsar.session import ClientSession, producing_of
from broker.limits.producer_bytes import producer_bytes
from broker.topics.subscription.request import SubscriptionRequest
from broker.topics.topic.producer_request import SHARED, ProducerRequest
from broker.topics.topic.topic_base import PRODUCERS
from protocol import commands
from protocol import pulsar_api_pb2 as pb
from protocol.errors import (
    MetadataError,
    NotAllowed,
    ServiceNotReady,
    TooManyRequests,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from broker.doors.pulsar.authorization import StillAllowed
    from broker.doors.pulsar.broker import Broker
    from broker.topics.topic.producer import Producer
    from broker.topics.topic.topic import Topic


def handle_producer(
    broker: Broker, grants: StillAllowed, session: ClientSession, body: pb.CommandProducer
) -> None:
    """Open a producer, or confirm an open one with this id."""
    existing = session.producers.get(body.producer_id)
    if isinstance(existing, PendingProducer):
        raise ServiceNotReady("Producer is already present on the connection")
    if existing is not None:
        session.send(_success(body.request_id, existing, ready=True))
        return
    if len(session.producers) >= session.limits.producers_per_connection_max:
        raise TooManyRequests(
            f"{len(session.producers)} producers are open on this connection, which is the bound"
        )
    _check_size(body, broker.config.maxProducerMetadataSize)
    topic_name = parse_topic(body.topic)
    place = PendingProducer()
    session.producers[body.producer_id] = place
    session.request_begins()
    opening = _Opening(broker, grants, session, body, place)
    broker.call_when_loaded(topic_name, create=True, waiter=opening)


def _check_size(body: pb.CommandProducer, bytes_max: int) -> None:
    """Raises: MetadataError, as for the properties of a consumer."""
    size_bytes = producer_bytes(body.producer_name, _metadata(body))
    if size_bytes > bytes_max:
        raise MetadataError(
            f"The name and the metadata of the producer take {size_bytes} bytes, more than the"
            f" {bytes_max} of maxProducerMetadataSize"
        )


def _metadata(body: pb.CommandProducer) -> dict[str, str]:
    return {item.key: item.value for item in body.metadata}


@final
class _Opening:
    """A PRODUCER from its arrival to its answer. The producers of a topic are opened one after the
    other, because the first to arrive gets the name, or exclusive access to the topic."""

    __slots__ = ("_body", "_broker", "_grants", "_has_cleared", "_place", "_session", "_topic")

    _topic: Topic

    def __init__(
        self,
        broker: Broker,
        grants: StillAllowed,
        session: ClientSession,
        body: pb.CommandProducer,
        place: PendingProducer,
    ) -> None:
        self._broker = broker
        self._grants = grants
        self._session = session
        self._body = body
        self._place = place
        self._has_cleared = False
        """A dead connection held its name. There is no second search."""

    @property
    def is_cancelled(self) -> bool:
        """It was closed, or its connection has ended."""
        return self._place.cancelled

    def loaded(self, topic: Topic) -> None:
        """The topic is loaded: wait for producers that arrived earlier, if any."""
        self._topic = topic
        topic.operations.begin(PRODUCERS, self._in_turn)

    def refused(self, error: Exception) -> None:
        """Answer with the error, unless the producer was closed, which has been answered."""
        self._session.request_ends()
        self._refuse(error)

    def _refuse(self, error: Exception) -> None:
        self._leave_place()
        if not self._place.cancelled:
            self._session.refuse(self._command(), error)

    def _command(self) -> pb.BaseCommand:
        return pb.BaseCommand(type=pb.BaseCommand.PRODUCER, producer=self._body)

    def _leave_place(self) -> None:
        producers, producer_id = self._session.producers, self._body.producer_id
        if producers.get(producer_id) is self._place:
            del producers[producer_id]

    async def _in_turn(self) -> None:
        broker, session = self._broker, self._session
        topic, body = self._topic, self._body
        try:
            await topic.prepare_to_produce(
                body.producer_name, session.remote_address, encrypted=body.encrypted
            )
            schema_version = await broker.schemas.for_producer(
                topic.name,
                body.schema if body.HasField("schema") else None,
                topic.policies.effective,
            )
            if self._place.cancelled:
                session.request_ends()
                return
            await _open_initial_subscription(topic, body.initial_subscription_name)
            request = _request(broker, topic, body, schema_version)
            producing = producing_of(session)
            holder = None if self._has_cleared else topic.holder_of_name(producing, request)
            seconds = broker.config.connectionLivenessCheckTimeoutMillis / 1000
            if holder is not None and seconds:
                session.start_rest(self._command(), self._clear(holder, seconds))
                return
            await self._grants.known(session, body)
            producer = await topic.attach_producer(producing, request)
        except Exception as error:
            self.refused(error)
            return
        session.request_ends()
        if producer.open:
            self._answer(producer)
        elif self._place.cancelled:
            topic.remove_producer(producer)
        elif session.waits >= session.limits.producers_waiting_max:
            topic.remove_producer(producer)
            self._refuse(
                TooManyRequests(
                    f"{session.waits} producers of this connection wait for exclusive access to "
                    "their topics, which is the bound: close some, or open it on another connection"
                )
            )
        else:
            self._place.waiting = producer
            session.send(_success(body.request_id, producer, ready=False))
            turn = topic.wait_turn(producer)
            session.start_wait(self._command(), self._wait_turn(producer, turn))

    async def _clear(self, holder: Producer, seconds: float) -> None:
        """Try again after closing the connection of the holder if it gives no sign of life. It may
        be half-open, and a client that moved must not be locked out."""
        if not await holder.session.is_alive(seconds):
            holder.session.close("no sign of life, and its producer's name is wanted again")
            self._topic.remove_producer(holder)
        self._has_cleared = True
        self._topic.operations.begin(PRODUCERS, self._in_turn)

    async def _wait_turn(self, producer: Producer, turn: Awaitable[None]) -> None:
        try:
            await turn
        except Exception as error:
            self._refuse(error)
        else:
            self._answer(producer)

    def _answer(self, producer: Producer) -> None:
        session, producer_id = self._session, self._body.producer_id
        if self._place.cancelled:
            self._topic.remove_producer(producer)
            return
        session.closed_producers.discard(producer_id)
        session.producers[producer_id] = producer
        session.share.used_by(self._topic.name.tenant)
        session.send(_success(self._body.request_id, producer, ready=True))


async def _open_initial_subscription(topic: Topic, name: str) -> None:
    """After the checks of the schema, as in Pulsar: a subscription stays."""
    if not name or not topic.persistent or name in topic.subscriptions:
        return
    if not topic.policies.effective.auto_subscription_creation:
        raise NotAllowed(
            "Could not create the initial subscription due to the auto subscription creation"
            " is not allowed."
        )
    topic.check_subscription_name(name)
    await topic.open_subscription(SubscriptionRequest(name=name, earliest=True))


def _new_name(broker: Broker, topic: Topic) -> str:
    """A generated name that means no other producer of the topic. Clients may call themselves as
    they like, also as the broker would call one: each of these costs one number, once."""
    name = broker.next_producer_name()
    while topic.knows_producer(name):
        name = broker.next_producer_name()
    return name


def _request(
    broker: Broker, topic: Topic, body: pb.CommandProducer, version: bytes
) -> ProducerRequest:
    given = body.producer_name
    return ProducerRequest(
        producer_id=body.producer_id,
        name=given or _new_name(broker, topic),
        user_provided_name=bool(given) and body.user_provided_producer_name,
        epoch=body.epoch,
        access_mode=body.producer_access_mode,
        topic_epoch=body.topic_epoch if body.HasField("topic_epoch") else None,
        encrypted=body.encrypted,
        schema_version=version,
        metadata=_metadata(body),
        txn_enabled=body.txn_enabled,
    )


def _success(request_id: int, producer: Producer, *, ready: bool) -> bytes:
    topic = producer.topic
    exclusive = ready and producer.request.access_mode != SHARED
    return commands.producer_success(
        request_id,
        producer.name,
        topic.last_sequence_id(producer.name),
        producer.request.schema_version,
        topic.epoch if exclusive else None,
        producer_ready=ready,
    )


def handle_close_producer(session: ClientSession, body: pb.CommandCloseProducer) -> None:
    """Close a producer. Messages it has sent are still stored and answered."""
    producer = session.producers.pop(body.producer_id, None)
    if producer is None:
        session.send(commands.success(body.request_id))  # the requested state already holds
        return
    if isinstance(producer, PendingProducer):
        producer.cancelled = True
        if producer.waiting is not None:
            producer.waiting.topic.remove_producer(producer.waiting)
        session.send(commands.success(body.request_id))
        return
    topic = producer.topic
    topic.remove_producer(producer)
    answer = commands.success(body.request_id)
    topic.call_after_publishes(lambda: session.send(answer))
