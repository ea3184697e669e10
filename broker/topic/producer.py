"""A producer attached to a topic.

Invariant: while `open`, the producer is in the map of its topic and in that of its session.
`remove_producer` of the topic ends both. Messages already handed to the ledger are answered even
after that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from broker.net.session import AnySession
    from broker.topic.producer_request import ProducerRequest
    from broker.topic.topic import Topic


@final
class Producer:
    """One attached producer. Identity is the object."""

    __slots__ = (
        "bytes_in",
        "connected_since_ms",
        "messages_in",
        "name",
        "open",
        "producer_id",
        "rate_bytes_in",
        "rate_messages_in",
        "request",
        "session",
        "topic",
        "window_bytes_in",
        "window_messages_in",
    )

    def __init__(
        self, topic: Topic, session: AnySession, request: ProducerRequest, connected_since_ms: int
    ) -> None:
        self.topic = topic
        self.session = session
        self.request = request
        self.producer_id = request.producer_id
        self.name = request.name
        self.connected_since_ms = connected_since_ms
        self.open = False
        self.messages_in = 0
        self.bytes_in = 0
        self.window_messages_in = 0
        self.window_bytes_in = 0
        self.rate_messages_in = 0.0
        self.rate_bytes_in = 0.0

    def __repr__(self) -> str:
        return f"Producer({self.producer_id}, {self.name!r}, {self.session.remote_address})"

    def remove(self) -> None:
        """It has left."""
        self.topic.remove_producer(self)

    def update_rates(self, seconds: float) -> None:
        """Close a rate window."""
        self.rate_messages_in = (self.messages_in - self.window_messages_in) / seconds
        self.rate_bytes_in = (self.bytes_in - self.window_bytes_in) / seconds
        self.window_messages_in = self.messages_in
        self.window_bytes_in = self.bytes_in
