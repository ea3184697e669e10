"""A client's connection with the types of the objects opened on it."""

from __future__ import annotations

from broker.doors.pulsar.pending import PendingConsumer, PendingProducer
from broker.doors.pulsar.producing import PulsarProducers
from broker.net.session import Session
from broker.topics.subscription.api import ConsumerHandle
from broker.topics.topic.producer import Producer

ClientSession = Session[
    Producer | PendingProducer, ConsumerHandle | PendingConsumer, PulsarProducers
]


def producing_of(session: ClientSession) -> PulsarProducers:
    """What topics know of the producers of this connection."""
    made = session.producing
    if made is None:
        made = session.producing = PulsarProducers(session)
    return made
