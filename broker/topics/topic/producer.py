"""A producer attached to a topic, its session, the interface of its topic, and a message of it.

The session is the part of a connection that a topic sees, whatever protocol its client speaks: the
door of the protocol implements `ProducerSession`, and makes a receipt of `stored`.

Invariant: while `open`, the producer is in the map of its topic and in that of its session.
`remove_producer` of the topic ends both. Messages already handed to the ledger are answered even
after that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import mypyc_attr

from broker.topics.subscription.client_connection import ClientConnection
from broker.topics.subscription.delayed import delay_ms

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.ground.histograms import EntrySizes
    from broker.limits.backlog_rules import BacklogGate
    from broker.limits.publish_limit import PublishLimit
    from broker.topics.topic.producer_request import ProducerRequest
    from protocol.errors import BrokerError
    from protocol.new_messages import NewMessage, NewMessages

STORED_BEFORE: Final = (-1, -1)
"""Ledger id and entry id of a message that is a duplicate."""


@mypyc_attr(allow_interpreted_subclasses=True)
class ProducerSession(ClientConnection):
    """The producers of one connection, as their topics use it. It knows a producer by the
    `producer_id` that its own door has given it.

    Each message that a topic has taken is answered once, in order for each producer: it is `stored`
    or `refused`, and then counted as `answered`. The messages of a producer that was `closed` may
    stay without an answer: its client sends them again, by a new producer.

    A call queues what the client gets and returns at once. It raises nothing, also when the client
    has gone, and does not call the topic.
    """

    __slots__ = ()

    @property
    def received_at(self) -> float:
        """When the messages came that a topic takes now (monotonic)."""
        raise NotImplementedError

    def taken(self, count: int, size_bytes: int) -> None:
        """A topic has taken messages to store them. A connection with too many of them on their way
        is not to be read until some are `answered`."""
        raise NotImplementedError

    def stored(
        self, producer: Producer, message: NewMessage, ledger_id: int, entry_id: int
    ) -> None:
        """The message is durable under this id, or was so before (`STORED_BEFORE`); 0:0 on a topic
        that stores nothing. `answered` follows before anything else is done, so that the receipts
        of many messages can leave as one."""
        raise NotImplementedError

    def stored_run(
        self,
        producer: Producer,
        messages: NewMessages,
        start: int,
        end: int,
        ledger_id: int,
        entry_id: int,
    ) -> None:
        """As `stored` of the messages from index `start` to `end`, in consecutive entries of the
        ledger from this one on."""
        raise NotImplementedError

    def answered(self, count: int, size_bytes: int) -> None:
        """This many of the messages that were `taken` have their answers now."""
        raise NotImplementedError

    def refused(self, producer: Producer, message: NewMessage, reason: BrokerError) -> None:
        """The message is not stored."""
        raise NotImplementedError

    def closed(self, producer: Producer) -> None:
        """The topic has ended the producer, or is about to: drop it, and let the client know. It
        may return at once."""
        raise NotImplementedError

    def limits_changed(self, change: int) -> None:
        """The limits of a producer are others now: a message that waits for them is to ask again.
        `change`: how many more producers of the connection have limits than before."""
        raise NotImplementedError


class ProducerTopic:
    """A topic, as its producers and their connections use it. A class and no Protocol, because
    compiled code calls the methods of a class directly."""

    __slots__ = ()

    @property
    def epoch(self) -> int | None:
        """The number of the last exclusive grant; None before the first."""
        raise NotImplementedError

    def publish(self, producer: Producer, send: NewMessage) -> None:
        """Take a message. It is answered (`ProducerSession`) when the outcome is known."""
        raise NotImplementedError

    def publish_run(self, producer: Producer, run: NewMessages) -> None:
        """Take messages of one producer, as `publish` each of them."""
        for send in run.messages():
            self.publish(producer, send)

    def refuse_message(self, producer: Producer, send: NewMessage, refusal: BrokerError) -> None:
        """Refuse a message of the producer, and say so in the log."""
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
    """The limits that each message of a producer has to pass before it is handled. Identity is the
    object."""

    __slots__ = ("backlog", "delay_ms_max", "message_size_bytes_max", "rates")

    def __init__(
        self,
        rates: tuple[PublishLimit, ...],
        message_size_bytes_max: int,
        delay_ms_max: int,
        backlog: BacklogGate | None = None,
    ) -> None:
        self.backlog = backlog
        """None: the backlog of the topic is far from its quota."""
        self.rates = rates
        self.message_size_bytes_max = message_size_bytes_max
        """0: none but that of the broker."""
        self.delay_ms_max = delay_ms_max
        """How long after its publish time a message may be due; 0: no limit."""

    def refusal_of(self, payload: bytes) -> str:
        """Why they refuse a message, whatever was sent before; empty if they do not."""
        if 0 < self.message_size_bytes_max < len(payload):
            return "Exceed maximum message size"
        if 0 < self.delay_ms_max < delay_ms(payload):
            return f"Exceeds max allowed delivery delay of {self.delay_ms_max} milliseconds"
        return ""

    def same_as(self, other: ProducerLimits) -> bool:
        """Whether both ask the same of a message."""
        return (
            self.rates == other.rates
            and self.message_size_bytes_max == other.message_size_bytes_max
            and self.delay_ms_max == other.delay_ms_max
            and self.backlog is other.backlog
        )


NO_LIMITS: Final = ProducerLimits((), 0, 0)
"""Its messages are not looked at before they are handled."""


@final
class Producer:
    """One attached producer. Identity is the object."""

    __slots__ = (
        "bytes_in",
        "chunks_in",
        "connected_since_ms",
        "held_bytes",
        "limits",
        "messages_in",
        "name",
        "open",
        "producer_id",
        "rate_bytes_in",
        "rate_chunks_in",
        "rate_messages_in",
        "request",
        "session",
        "topic",
        "window_bytes_in",
        "window_chunks_in",
        "window_messages_in",
    )

    def __init__(
        self,
        topic: ProducerTopic,
        session: ProducerSession,
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
        self.held_bytes = 0
        """The bytes that its name and its metadata count for while it is with its topic."""
        self.limits = NO_LIMITS
        """The limits that its messages have to pass."""
        self.messages_in = 0
        self.bytes_in = 0
        self.chunks_in = 0
        """The number of messages that are chunks."""
        self.window_messages_in = 0
        self.window_bytes_in = 0
        self.window_chunks_in = 0
        self.rate_messages_in = 0.0
        self.rate_bytes_in = 0.0
        self.rate_chunks_in = 0.0

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
        change = int(limits is not NO_LIMITS) - int(self.limits is not NO_LIMITS)
        self.limits = limits
        self.session.limits_changed(change)

    def run_published(self, run: NewMessages) -> None:
        """Count messages that the topic has taken."""
        self.messages_in += run.message_count
        self.bytes_in += run.size_bytes

    def update_rates(self, seconds: float) -> None:
        """Close a rate window."""
        self.rate_messages_in = (self.messages_in - self.window_messages_in) / seconds
        self.rate_bytes_in = (self.bytes_in - self.window_bytes_in) / seconds
        self.rate_chunks_in = (self.chunks_in - self.window_chunks_in) / seconds
        self.window_chunks_in = self.chunks_in
        self.window_messages_in = self.messages_in
        self.window_bytes_in = self.bytes_in


class Publish:
    """State kept for a message until it is durable."""

    __slots__ = ("producer", "send", "size")

    def __init__(self, producer: Producer, send: NewMessage, size: int) -> None:
        self.producer = producer
        self.send = send
        self.size = size

    def take(self) -> Publish:
        """The message, which is answered by itself."""
        return self

    def stored(
        self, ledger_id: int, first_entry_id: int, count_max: int, sizes: EntrySizes
    ) -> tuple[int, int]:
        """Let the session know of messages that were stored one after the other, this one first,
        and count their sizes. Returns the number of messages, `count_max` at most, and of their
        bytes."""
        producer, size = self.producer, self.size
        producer.session.stored(producer, self.send, ledger_id, first_entry_id)
        sizes.add(size, 1)
        return 1, size


@final
class PublishRun(Publish):
    """State kept for the messages of a run until the last one is answered. It is the context of
    each of them. They are stored or refused in their order, so it only counts."""

    __slots__ = ("_run", "_taken")

    def __init__(self, producer: Producer, run: NewMessages) -> None:
        super().__init__(producer, run.message(0), len(run.payloads[0]))
        self._run = run
        self._taken = 0

    def take(self) -> Publish:
        """The next message, which is answered by itself."""
        send = self._run.message(self._taken)
        self._taken += 1
        return Publish(self.producer, send, len(send.payload))

    def stored(
        self, ledger_id: int, first_entry_id: int, count_max: int, sizes: EntrySizes
    ) -> tuple[int, int]:
        """See Publish."""
        run, first, producer = self._run, self._taken, self.producer
        end = min(first + count_max, len(run.payloads))
        self._taken = end
        producer.session.stored_run(producer, run, first, end, ledger_id, first_entry_id)
        size_bytes = run.size_each_bytes * (end - first)
        if size_bytes:
            sizes.add(run.size_each_bytes, end - first)
            return end - first, size_bytes
        same_size = 0
        last_size = 1
        for payload in run.payloads[first:end]:
            size = len(payload)
            size_bytes += size
            if size != last_size:
                sizes.add(last_size, same_size)
                last_size, same_size = size, 0
            same_size += 1
        sizes.add(last_size, same_size)
        return end - first, size_bytes
