"""A client's connection with the types of the objects opened on it, and what topics know of it."""

from __future__ import annotations

from broker.doors.pulsar.consuming import PulsarConsumers
from broker.doors.pulsar.pending import PendingConsumer, PendingProducer
from broker.doors.pulsar.producing import PulsarProducers
from broker.net.session import Session
from broker.topics.subscription.api import ConsumerHandle
from broker.topics.topic.producer import Producer

ClientSession = Session[
    Producer | PendingProducer,
    ConsumerHandle | PendingConsumer,
    PulsarProducers,
    PulsarConsumers,
]


def producing_of(session: ClientSession) -> PulsarProducers:
    """The producers of this connection, as topics know them."""
    made = session.producing
    if made is None:
        made = session.producing = PulsarProducers(session)
    return made


def consuming_of(session: ClientSession) -> PulsarConsumers:
    """The consumers of this connection, as subscriptions know them."""
    made = session.consuming
    if made is None:
        made = session.consuming = PulsarConsumers(session)
    return made
