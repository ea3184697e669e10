"""A producer attached to a topic, the interface of its topic, and a message of it.

Invariant: while `open`, the producer is in the map of its topic and in that of its session.
`remove_producer` of the topic ends both. Messages already handed to the ledger are answered even
after that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.net.publish_limit import PublishLimit
    from broker.net.session import AnySession
    from broker.topic.producer_request import ProducerRequest
    from protocol.send_fields import Send


class ProducerTopic:
    """A topic, as its producers and their connections use it. A class and no Protocol, because
    compiled code calls the methods of a class directly."""

    @property
    def epoch(self) -> int | None:
        """The number of the last exclusive grant; None before the first."""
        raise NotImplementedError

    def publish(self, producer: Producer, send: Send) -> None:
        """Take a message. Its receipt or refusal is sent when the outcome is known."""
        raise NotImplementedError

    def last_sequence_id(self, producer_name: str) -> int:
        """The sequence id after which a new producer of this name continues; -1 without
        deduplication."""
        del producer_name
        return -1

    def remove_producer(self, producer: Producer) -> None:
        """The producer has left, for whatever reason. Idempotent."""
        raise NotImplementedError

    def call_after_publishes(self, callback: Callable[[], None]) -> None:
        """Call once every message taken so far is answered."""
        raise NotImplementedError


@final
class ProducerLimits:
    """What each message of a producer has to pass before it is handled. Identity is the object."""

    __slots__ = ("delay_ms_max", "message_size_bytes_max", "rates")

    def __init__(
        self, rates: tuple[PublishLimit, ...], message_size_bytes_max: int, delay_ms_max: int
    ) -> None:
        self.rates = rates
        self.message_size_bytes_max = message_size_bytes_max
        """0: none but that of the broker."""
        self.delay_ms_max = delay_ms_max
        """How long after its publish time a message may be due; 0: no limit."""


NO_LIMITS: Final = ProducerLimits((), 0, 0)
"""Its messages are not looked at before they are handled."""


@final
class Producer:
    """One attached producer. Identity is the object."""

    __slots__ = (
        "bytes_in",
        "connected_since_ms",
        "limits",
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
        self,
        topic: ProducerTopic,
        session: AnySession,
        request: ProducerRequest,
        connected_since_ms: int,
    ) -> None:
        self.topic = topic
        self.session = session
        self.request = request
        self.producer_id = request.producer_id
        self.name = request.name
        self.connected_since_ms = connected_since_ms
        self.open = False
        self.limits = NO_LIMITS
        """What its messages have to pass."""
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

    def use_limits(self, limits: ProducerLimits) -> None:
        """From now on its messages have to pass these, and no others. The only place that counts
        the limited producers of a connection."""
        if limits is self.limits:
            return
        session = self.session
        session.limited_producers += int(limits is not NO_LIMITS) - int(
            self.limits is not NO_LIMITS
        )
        self.limits = limits
        session.limits_changed()

    def update_rates(self, seconds: float) -> None:
        """Close a rate window."""
        self.rate_messages_in = (self.messages_in - self.window_messages_in) / seconds
        self.rate_bytes_in = (self.bytes_in - self.window_bytes_in) / seconds
        self.window_messages_in = self.messages_in
        self.window_bytes_in = self.bytes_in


@final
class Publish:
    """State kept for a message until it is durable."""

    __slots__ = ("producer", "send", "size")

    def __init__(self, producer: Producer, send: Send, size: int) -> None:
        self.producer = producer
        self.send = send
        self.size = size
