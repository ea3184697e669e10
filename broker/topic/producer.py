"""A producer attached to a topic.

Invariant: while `open`, the producer is in its topic's map and in its session's; `remove_producer`
of the topic ends both. Messages already handed to the ledger are answered even after that.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.net.session import Session
    from broker.topic.topic import Topic

SHARED = 0
EXCLUSIVE = 1
WAIT_FOR_EXCLUSIVE = 2
EXCLUSIVE_WITH_FENCING = 3
"""ProducerAccessMode numbers."""

ACCESS_MODE_NAMES = {
    SHARED: "Shared",
    EXCLUSIVE: "Exclusive",
    WAIT_FOR_EXCLUSIVE: "WaitForExclusive",
    EXCLUSIVE_WITH_FENCING: "ExclusiveWithFencing",
}


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerRequest:
    """What CommandProducer asks for, apart from the topic."""

    producer_id: int
    name: str
    """Chosen by the broker when the client gave none."""
    user_provided_name: bool
    epoch: int = 0
    access_mode: int = SHARED
    topic_epoch: int | None = None
    """What an exclusive producer was given before; older than the topic's means fenced."""
    encrypted: bool = False
    schema_version: bytes = b""
    metadata: Mapping[str, str] = field(default_factory=dict)
    txn_enabled: bool = False


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
        self, topic: Topic, session: Session, request: ProducerRequest, connected_since_ms: int
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

    def update_rates(self, seconds: float) -> None:
        """Close a rate window."""
        self.rate_messages_in = (self.messages_in - self.window_messages_in) / seconds
        self.rate_bytes_in = (self.bytes_in - self.window_bytes_in) / seconds
        self.window_messages_in = self.messages_in
        self.window_bytes_in = self.bytes_in

    def succeeds(self, other: Producer) -> bool:
        """Whether this is the same client's next attempt, so that it may replace `other`."""
        return (
            self.session is other.session
            and self.producer_id == other.producer_id
            and self.request.epoch > other.request.epoch
        )
