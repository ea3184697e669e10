"""A second door, as small as one can be: lines of text, without authentication and schemas.

    PRODUCE topic name                  OK, or: ERR code text
    SEND number text                    STORED number ledger:entry, or: REFUSED number code text
    CONSUME topic subscription type     OK, or: ERR code text
    FLOW count
    ACK ledger:entry
                                        MESSAGE ledger:entry redeliveries text
                                        ACTIVE yes, or: ACTIVE no
                                        CLOSED producer, or: CLOSED consumer
                                        ENDED

A connection has one producer and one consumer. It shows what a door needs: a `ProducerSession`, a
`ConsumerSession`, and turns. Topics know nothing of it.
"""

from __future__ import annotations

from functools import partial
from itertools import groupby
from typing import final

import trio

from broker.ground.operations import Outcome
from broker.limits.publish_budget import PendingPublishes
from broker.net.back_pressure import BackPressure
from broker.net.outbox import Outbox
from broker.topics.subscription.api import AckId
from broker.topics.subscription.consumer import Consumer, ConsumerSession
from broker.topics.subscription.request import SubscriptionRequest
from broker.topics.subscription.sub_types import TYPE_NAMES
from broker.topics.topic.producer import NO_LIMITS, ProducerSession
from broker.topics.topic.producer_request import ProducerRequest
from broker.topics.topic.topic_base import PRODUCERS
from protocol import pulsar_api_pb2 as pb
from protocol.errors import BrokerError, NotAllowed, ServerError
from protocol.metadata import batch_messages, encode_message, is_batch, peek_and_payload
from protocol.new_messages import NO_SEQUENCE_ID, NewMessage, NewMessages
from protocol.topic_name import TopicName
from security.caller import UNAUTHENTICATED

LINE_BYTES_MAX = 64 * 1024
TYPES = {name: number for number, name in TYPE_NAMES.items()}


def code_and_text(error: BrokerError) -> str:
    return f"{ServerError.Name(error.server_error)} {error.message}"


class OfLines:
    """What is the same for producers and consumers."""

    def __init__(self, connection: LineConnection) -> None:
        super().__init__(connection.peer, "lines", UNAUTHENTICATED)
        self._connection = connection
        self._lines: list[str] = []

    async def is_alive(self, timeout_seconds: float) -> bool:
        return not self._connection.outbox.failed

    def close(self, reason: str) -> None:
        self._connection.outbox.fail(reason)


@final
class LineProducers(OfLines, ProducerSession):
    """What topics know of the producer of a connection."""

    @property
    def received_at(self) -> float:
        return self._connection.received_at

    def taken(self, count: int, size_bytes: int) -> None:
        self._connection.pressure.publishes.taken(count, size_bytes)

    def stored(self, producer, message, ledger_id, entry_id) -> None:
        self._lines.append(f"STORED {message.sequence_id} {ledger_id}:{entry_id}")

    def stored_run(self, producer, messages, start, end, ledger_id, entry_id) -> None:
        for at, number in enumerate(messages.sequence_ids[start:end], entry_id):
            self._lines.append(f"STORED {number} {ledger_id}:{at}")

    def answered(self, count: int, size_bytes: int) -> None:
        lines, self._lines = self._lines, []
        self._connection.say(*lines)
        self._connection.pressure.publish_done(count, size_bytes)

    def refused(self, producer, message, reason) -> None:
        self._connection.say(f"REFUSED {message.sequence_id} {code_and_text(reason)}")

    def closed(self, producer) -> None:
        if self._connection.producer is producer:
            self._connection.producer = None
            self._connection.say("CLOSED producer")

    def limits_changed(self, change: int) -> None:
        self._connection.pressure.limits_changed()


@final
class LineConsumers(OfLines, ConsumerSession):
    """What subscriptions know of the consumer of a connection."""

    @property
    def writable(self) -> bool:
        return self._connection.outbox.writable

    def deliver(self, consumer, delivery) -> None:
        counts = delivery.redelivery_counts or [0] * len(delivery.entry_ids)
        columns = zip(delivery.entry_ids, counts, delivery.payloads, strict=True)
        for entry_id, count, entry in columns:
            metadata, payload = peek_and_payload(entry)
            size = metadata.num_messages_in_batch
            singles = batch_messages(payload, size) if is_batch(metadata) else [(None, payload)]
            for _, text in singles:
                shown = bytes(text).decode()
                self._connection.say(f"MESSAGE {delivery.ledger_id}:{entry_id} {count} {shown}")

    def active(self, consumer, *, is_active: bool) -> None:
        self._connection.say(f"ACTIVE {'yes' if is_active else 'no'}")

    def ended(self, consumer) -> None:
        self._connection.say("ENDED")

    def closed(self, consumer) -> None:
        handle = self._connection.handle
        if handle is not None and handle.consumer is consumer:
            self._connection.handle = None
            self._connection.say("CLOSED consumer")


@final
class LineConnection:
    """One connection of the line door (`ServedConnection`)."""

    def __init__(self, service, connections, transport) -> None:
        self.peer = transport.peer
        self.remote_address = f"/{transport.peer}"
        self.received_at = 0.0
        self.producer = None
        self.handle = None
        self._service = service
        self._connections = connections
        self._transport = transport
        self._rest = b""
        bounds = (connections.turns, connections.outputs)
        self.outbox = Outbox(transport, *bounds, self._has_room, lambda: self._start_writer())
        publishes = PendingPublishes(connections.publish_budget, connections.limits)
        self.pressure = BackPressure(self.outbox, publishes, connections.limits)
        self._producers, self._consumers = LineProducers(self), LineConsumers(self)

    def check_deadlines(self, now: float) -> None: ...

    def check_credential(self, wall_seconds: float, now: float) -> None: ...

    def say(self, *lines: str) -> None:
        self.outbox.append("".join(f"{line}\n" for line in lines).encode())

    async def run(self) -> None:
        transport = self._transport
        async with trio.open_nursery() as nursery:
            self._start_writer = partial(nursery.start_soon, self.outbox.run)
            try:
                while len(self._rest) < LINE_BYTES_MAX and (data := await transport.receive()):
                    self.received_at = self._connections.clock.now()
                    *lines, self._rest = (self._rest + data).split(b"\n")
                    await self._handle([each.decode() for each in lines])
                    if self.pressure.must_pause():
                        await self.pressure.wait_resumed()
            except trio.BrokenResourceError:
                pass
            finally:
                self.outbox.fail("closed")
                self._leave()
            nursery.cancel_scope.cancel()

    def _has_room(self) -> None:
        self.pressure.resume()
        if self.handle is not None:
            self.handle.on_writable()

    def _leave(self) -> None:
        producer, self.producer = self.producer, None
        handle, self.handle = self.handle, None
        if producer is not None:
            producer.remove()
        if handle is not None:
            handle.remove()

    def _in_turn(self, publish, *what) -> None:
        self._connections.turns.begin_turn()
        try:
            publish(*what)
        finally:
            self._connections.turns.end_turn()

    async def _handle(self, lines: list[str]) -> None:
        """Consecutive SENDs are one run, as long as no limit looks at each of them."""
        for word, group in groupby(lines, lambda line: line.partition(" ")[0]):
            bodies = [each.partition(" ")[2] for each in group]
            try:
                if word == "SEND":
                    await self._send(bodies)
                for body in bodies if word != "SEND" else ():
                    await self._do(word, *body.split(" "))
            except BrokerError as error:
                self.say(f"ERR {code_and_text(error)}")

    async def _do(self, word: str, *values: str) -> None:
        if word == "PRODUCE":
            await self._produce(*values)
        elif word == "CONSUME":
            await self._consume(*values)
        elif self.handle is not None:
            if word == "FLOW":
                self.handle.flow(int(values[0]))
            elif word == "ACK":
                self.handle.ack([AckId(tuple(map(int, values[0].split(":"))))], cumulative=False)

    async def _produce(self, topic_name: str, name: str) -> None:
        topic = await self._service.get_or_load_topic(TopicName.parse(topic_name), create=True)
        request = ProducerRequest(producer_id=0, name=name, user_provided_name=True)

        async def attach() -> None:
            await topic.prepare_to_produce(name, self.remote_address, encrypted=False)
            policies = topic.policies.effective
            await self._service.schemas.for_producer(topic.name, None, policies)
            self.producer = await topic.attach_producer(self._producers, request)

        await topic.operations.run(PRODUCERS, attach)
        self.say("OK")

    async def _send(self, bodies: list[str]) -> None:
        messages = [self._message(*each.split(" ", 1)) for each in bodies]
        if self.producer is not None and self.producer.limits is NO_LIMITS:
            payloads = [each.payload for each in messages]
            numbers = [each.sequence_id for each in messages]
            run = NewMessages(numbers, payloads, None, sum(map(len, payloads)), 0, False)
            self._in_turn(self.producer.topic.publish_run, self.producer, run)
            return
        for message in messages:
            await self._send_limited(message)

    def _message(self, number: str, text: str) -> NewMessage:
        metadata = pb.MessageMetadata(
            producer_name="" if self.producer is None else self.producer.name,
            sequence_id=int(number),
            publish_time=self._connections.clock.wall_ms(),
        )
        payload = encode_message(metadata, text.encode())
        return NewMessage(int(number), NO_SEQUENCE_ID, False, payload)

    async def _send_limited(self, message: NewMessage) -> None:
        size = len(message.payload)
        while (producer := self.producer) is not None:
            refusal = producer.limits.refusal_of(message.payload)
            if refusal:
                producer.topic.refuse_message(producer, message, NotAllowed(refusal))
                return
            if self.pressure.admitted_by(producer.limits.rates, 1, size):
                break
            await self.pressure.wait_resumed()
        if producer is not None and (
            producer.limits.backlog is None or producer.limits.backlog.takes(size)
        ):
            self._in_turn(producer.topic.publish, producer, message)

    async def _consume(self, topic_name: str, name: str, kind: str = "Shared") -> None:
        if kind not in TYPES:
            raise NotAllowed(f"{kind} is no type of subscription")
        topic = await self._service.get_or_load_topic(TopicName.parse(topic_name), create=True)
        request = SubscriptionRequest(name, earliest=True)
        topic.check_consumer(self.remote_address, TYPES[kind], request)
        subscription = await topic.open_subscription(request)
        consumer = Consumer(0, self.peer, self._consumers, TYPES[kind])
        handle = topic.attach_consumer(subscription, consumer, request)
        kept: Outcome[None] = Outcome()
        handle.when_kept(lambda error: kept.fail(error) if error else kept.succeed(None))
        await kept
        self.handle = handle
        self.say("OK")
        handle.announce()


@final
class LineDoor:
    """See `broker.net.listener.Door`."""

    protocol = "lines"

    def __init__(self, service) -> None:
        self.connection = partial(LineConnection, service)

    def refusal(self, reason: str) -> bytes:
        return f"ERR NotAllowedError {reason}\n".encode()
