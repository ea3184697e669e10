"""The place held under a producer or consumer id until the real one is there.

A place is taken the moment PRODUCER or SUBSCRIBE arrives, because a client may go on, and may even
close what is not there yet (its operation timed out).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from broker.topic.producer import Producer


@final
class PendingConsumer:
    """A consumer being created."""

    __slots__ = ("cancelled", "permits")

    consumer = None
    writable_group = None

    def __init__(self) -> None:
        self.cancelled = False
        """Closed before it was there: it is undone once created, and nothing is answered."""
        self.permits = 0
        """FLOW that came early; granted once the consumer is there."""

    def on_writable(self) -> None:
        """Nothing is sent to it yet."""

    def remove(self) -> None:
        """The connection is gone."""
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
        """The connection is gone."""
        self.cancelled = True
