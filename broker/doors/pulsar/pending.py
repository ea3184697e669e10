"""The placeholder under a producer or consumer id until the real object exists.

A placeholder is created as soon as PRODUCER or SUBSCRIBE arrives, because a client may continue and
may even close an object that does not exist yet (its operation timed out).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from broker.topics.topic.producer import Producer


@final
class PendingConsumer:
    """A consumer being created."""

    __slots__ = ("cancelled", "permits")

    consumer = None
    writable_group = None

    def __init__(self) -> None:
        self.cancelled = False
        """Closed before it existed: it is undone once created, without an answer."""
        self.permits = 0
        """Early FLOW permits, granted once the consumer exists."""

    def on_writable(self) -> None:
        """Nothing is sent to it yet."""

    def remove(self) -> None:
        """The connection has ended."""
        self.cancelled = True


@final
class PendingProducer:
    """A producer being created, or waiting for exclusive access."""

    __slots__ = ("cancelled", "waiting")

    def __init__(self) -> None:
        self.cancelled = False
        self.waiting: Producer | None = None
        """Set while it waits for exclusive access."""

    def remove(self) -> None:
        """The connection has ended."""
        self.cancelled = True
