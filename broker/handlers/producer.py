"""PRODUCER and CLOSE_PRODUCER."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.handlers.lookup import parse_topic
from broker.handlers.pending import PendingProducer
from broker.subscription.factory import SubscriptionRequest
from broker.topic.producer_request import SHARED, ProducerRequest
from protocol import commands
from protocol.errors import (
    MetadataError,
    NotAllowed,
    ServiceNotReady,
    TooManyRequests,
)

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

    from broker.net.session import Session
    from broker.topic.producer import Producer
    from broker.topic.topic import Topic
    from protocol import pulsar_api_pb2 as pb


def handle_producer(session: Session, body: pb.CommandProducer) -> Coroutine[Any, Any, None] | None:
    """Open a producer, or confirm one that is open under this id."""
    existing = session.producers.get(body.producer_id)
    if isinstance(existing, PendingProducer):
        raise ServiceNotReady("Producer is already present on the connection")
    if existing is not None:
        session.send(_success(body.request_id, existing, ready=True))
        return None
    if len(session.producers) >= session.limits.producers_per_connection_max:
        raise TooManyRequests(
            f"{len(session.producers)} producers are open on this connection, which is the bound"
        )
    place = PendingProducer()
    session.producers[body.producer_id] = place
    return _create(session, body, place)


async def _create(session: Session, body: pb.CommandProducer, place: PendingProducer) -> None:
    try:
        topic = await _prepare(session, body)
        schema_version = await session.service.schemas.for_producer(
            topic.name, body.schema if body.HasField("schema") else None, topic.namespace.policies
        )
        if place.cancelled:
            return
        request = _request(session, body, schema_version)
        producer = await topic.attach_producer(session, request)
        if not producer.open and not place.cancelled:
            place.waiting = producer
            session.send(_success(body.request_id, producer, ready=False))
            await topic.wait_turn(producer)
        if place.cancelled:
            topic.remove_producer(producer)
            return
        session.closed_producers.pop(body.producer_id, None)
        session.producers[body.producer_id] = producer
        session.send(_success(body.request_id, producer, ready=True))
    except Exception:
        if place.cancelled:
            return  # whoever closed it has been answered already
        raise
    finally:
        if session.producers.get(body.producer_id) is place:
            del session.producers[body.producer_id]


async def _prepare(session: Session, body: pb.CommandProducer) -> Topic:
    """The topic, after everything that may be refused before anything is changed."""
    service = session.service
    topic = await service.get_or_load_topic(parse_topic(body.topic), create=True)
    await topic.apply_policies()
    policies = topic.namespace.policies
    required = policies.encryption_required or service.config.encryptionRequireOnProducer
    if required and not body.encrypted:
        raise MetadataError(f"Encryption is required in {topic.name.full}")
    name = body.initial_subscription_name
    if name and topic.persistent and name not in topic.subscriptions:
        if not policies.allows_auto_subscription_creation(service.config):
            raise NotAllowed(
                "Could not create the initial subscription due to the auto subscription creation"
                " is not allowed."
            )
        await topic.open_subscription(SubscriptionRequest(name=name, earliest=True))
    return topic


def _request(session: Session, body: pb.CommandProducer, version: bytes) -> ProducerRequest:
    given = body.producer_name
    return ProducerRequest(
        producer_id=body.producer_id,
        name=given or session.service.next_producer_name(),
        user_provided_name=bool(given) and body.user_provided_producer_name,
        epoch=body.epoch,
        access_mode=body.producer_access_mode,
        topic_epoch=body.topic_epoch if body.HasField("topic_epoch") else None,
        encrypted=body.encrypted,
        schema_version=version,
        metadata={item.key: item.value for item in body.metadata},
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
        topic.access.epoch if exclusive else None,
        producer_ready=ready,
    )


def handle_close_producer(session: Session, body: pb.CommandCloseProducer) -> None:
    """Close a producer; messages it has sent are still stored and answered."""
    producer = session.producers.pop(body.producer_id, None)
    if producer is None:
        session.send(commands.success(body.request_id))  # what the client wants is so already
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
