"""What a session keeps under a producer or consumer id: the real one, or a place held for it.

A place is taken the moment PRODUCER or SUBSCRIBE arrives, because a client may go on, and may even
close what is not there yet (its operation timed out).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from broker.subscription.api import Subscription
    from broker.subscription.consumer import Consumer
    from broker.topic.producer import Producer
    from broker.topic.topic import Topic


@final
class Attached:
    """A consumer and what it is attached to."""

    __slots__ = ("consumer", "subscription", "topic")

    def __init__(self, consumer: Consumer, subscription: Subscription, topic: Topic) -> None:
        self.consumer = consumer
        self.subscription = subscription
        self.topic = topic


@final
class PendingConsumer:
    """A consumer being created."""

    __slots__ = ("cancelled", "permits")

    def __init__(self) -> None:
        self.cancelled = False
        """Closed before it was there: it is undone once created, and nothing is answered."""
        self.permits = 0
        """FLOW that came early; granted once the consumer is there."""


@final
class PendingProducer:
    """A producer being created, or waiting for exclusive access."""

    __slots__ = ("cancelled", "waiting")

    def __init__(self) -> None:
        self.cancelled = False
        self.waiting: Producer | None = None
        """Set while it waits for exclusive access."""
