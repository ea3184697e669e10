"""A client's connection with the types of the objects opened on it."""

from __future__ import annotations

from broker.handlers.pending import PendingConsumer, PendingProducer
from broker.net.session import Session
from broker.subscription.api import ConsumerHandle
from broker.topic.producer import Producer

ClientSession = Session[Producer | PendingProducer, ConsumerHandle | PendingConsumer]
