"""A client's connection with the types of the objects opened on it."""

from __future__ import annotations

from broker.doors.pulsar.pending import PendingConsumer, PendingProducer
from broker.net.session import Session
from broker.topics.subscription.api import ConsumerHandle
from broker.topics.topic.producer import Producer

ClientSession = Session[Producer | PendingProducer, ConsumerHandle | PendingConsumer]
