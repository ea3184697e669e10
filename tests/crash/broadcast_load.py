"""The load of the broadcast crash harness: consumers that keep a history, and one publisher.

They speak the protocol themselves, without a client library between: what was acknowledged, and
when, is then known exactly. Every connection ends with the life of the server.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, final
from urllib.parse import urlsplit

import trio

from protocol import client as wire
from protocol import pulsar_api_pb2 as pb
from tests.crash.broadcast_history import ConsumerHistory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from protocol.message_id import MessageId

TOPIC = "persistent://public/default/broadcast-crash"
SUBSCRIPTION = "everybody"
CUMULATIVE_EVERY = 5
HOLE_EVERY = 7
PERMITS = 100_000
PUBLISHER_ID = 1
Type = pb.BaseCommand


@final
class Consumer:
    """One consumer name over all lives of the server. A third acknowledges cumulatively, a third
    one by one, a third leaves holes that it fills when they come again."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.history = ConsumerHistory(f"consumer-{number}")
        self.is_cumulative = number % 3 == 0
        self._leaves_holes = number % 3 == 2
        self._since_ack = 0

    @property
    def sub_type(self) -> pb.CommandSubscribe.SubType:
        """The subscription type that the client states."""
        shared = pb.CommandSubscribe.Shared
        return pb.CommandSubscribe.Exclusive if self.is_cumulative else shared

    def acknowledge(self, consumer_id: int, number: int, at: MessageId, again: bool) -> bytes:
        """The ACK that this message calls for, which may be none."""
        if self.is_cumulative:
            self._since_ack += 1
            if self._since_ack % CUMULATIVE_EVERY:
                return b""
            self.history.ack_through(number)
            return wire.ack(consumer_id, [at], cumulative=True)
        if self._leaves_holes and number % HOLE_EVERY == 0 and not again:
            return b""
        self.history.ack(number)
        return wire.ack(consumer_id, [at])


@final
class Load:
    """Published messages and consumers; a life of the server at a time."""

    def __init__(self, service_url: str, connections: int) -> None:
        address = urlsplit(service_url)
        self._address = (address.hostname or "127.0.0.1", address.port or 6650)
        self._connections = connections
        self.consumers: list[Consumer] = []
        self.sent = 0
        """Messages handed to the server so far; the next one has this number."""
        self.durable: set[int] = set()
        """Those that were confirmed."""
        self.violations: list[str] = []
        self.deliveries = 0
        self.acks_sent = 0
        self.news = trio.Event()
        self._subscribed: set[Consumer] = set()
        self._open: list[_Connection] = []
        self._publisher: _Connection | None = None

    async def begin_life(self, nursery: trio.Nursery) -> None:
        """Connect; no consumer is subscribed yet."""
        self._subscribed.clear()
        self._open = [_Connection(self) for _ in range(self._connections + 1)]
        for connection in self._open:
            await connection.open(self._address)
            nursery.start_soon(connection.run)
        self._publisher = self._open.pop()
        await self._publisher.send(wire.producer(TOPIC, PUBLISHER_ID, 1))
        await self.until(lambda: self._publisher is not None and self._publisher.can_publish)

    async def subscribe(self, consumers: Sequence[Consumer], *, wait: bool = True) -> None:
        """Attach them, spread over the connections; returns when all are answered."""
        by_connection: dict[_Connection, list[bytes]] = {}
        for consumer in consumers:
            connection = self._open[consumer.number % len(self._open)]
            by_connection.setdefault(connection, []).extend(connection.subscription(consumer))
        for connection, frames in by_connection.items():
            await connection.send(*frames)
        if wait:
            await self.until(lambda: self._subscribed.issuperset(consumers))

    async def publish_until_killed(self, rate: float) -> None:
        """Publish at this rate (messages per second) until cancelled."""
        while True:
            await self.publish(1)
            await trio.sleep(1 / rate)

    async def publish(self, count: int) -> None:
        """Send so many messages; not waited for."""
        assert self._publisher is not None
        frames = []
        for number in range(self.sent, self.sent + count):
            message = wire.message(b"%d" % number, sequence_id=number)
            frames.append(wire.send(PUBLISHER_ID, number, message))
        self.sent += count
        await self._publisher.send(*frames)

    async def until(self, condition: object, seconds: float = 60.0) -> None:
        """Return when the condition holds, looked at whenever something arrives.

        Raises: trio.TooSlowError
        """
        assert callable(condition)
        with trio.fail_after(seconds):
            while not condition():
                await self.news.wait()

    def end_life(self, killed_at: float, flush_seconds: float) -> None:
        """The server was killed then."""
        for consumer in self.consumers:
            consumer.history.killed(killed_at, flush_seconds)

    def on_subscribed(self, consumer: Consumer) -> None:
        """SUBSCRIBE was answered."""
        consumer.history.subscribed(self.sent)
        self._subscribed.add(consumer)

    def on_message(self, consumer: Consumer, number: int) -> bool:
        """Whether it had come before."""
        self.deliveries += 1
        again = number in consumer.history.received
        wrong = consumer.history.receive(number, self.durable)
        if wrong:
            self.violations.append(wrong)
        return again

    def tell(self) -> None:
        """Something has arrived."""
        news, self.news = self.news, trio.Event()
        news.set()


@final
class _Connection:
    """One TCP connection in one life of the server."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._client = wire.Client()
        self._stream: trio.SocketStream | None = None
        self._sending = trio.Lock()
        self._asked: dict[int, Consumer] = {}
        self._consumers: dict[int, Consumer] = {}
        self._acks: list[tuple[Consumer, int]] = []
        self._taken_with_pong: deque[list[tuple[Consumer, int]]] = deque()
        self.can_publish = False

    async def open(self, address: tuple[str, int]) -> None:
        """Connect and shake hands."""
        self._stream = await trio.open_tcp_stream(*address)
        await self._stream.send_all(wire.connect())

    async def send(self, *frames: bytes) -> None:
        """Send, unless the server has just been killed."""
        assert self._stream is not None
        try:
            async with self._sending:
                await self._stream.send_all(b"".join(frames))
        except trio.BrokenResourceError:
            return  # what is lost with the server is what this harness is about

    def subscription(self, consumer: Consumer) -> tuple[bytes, bytes]:
        """SUBSCRIBE and FLOW."""
        consumer_id = len(self._consumers)
        request_id = self._client.next_request_id()
        self._consumers[consumer_id] = self._asked[request_id] = consumer
        subscribe = wire.subscribe(
            TOPIC,
            SUBSCRIPTION,
            consumer_id,
            request_id,
            consumer.sub_type,
            consumer_name=consumer.history.name,
            metadata={"vela.broadcast": "true"},
        )
        return subscribe, wire.flow(consumer_id, PERMITS)

    async def run(self) -> None:
        """Take what arrives until the server is gone."""
        assert self._stream is not None
        async with self._stream:
            while data := await self._receive(self._stream):
                answers = [self._take(*frame) for frame in self._client.receive(data)]
                answer = b"".join(answers)
                if self._acks:
                    # Commands are handled in order: the PONG says that the acks were taken.
                    answer += wire.ping()
                    self._taken_with_pong.append(self._acks)
                    self._acks = []
                if answer:
                    await self.send(answer)
                self._load.tell()

    @staticmethod
    async def _receive(stream: trio.SocketStream) -> bytes:
        try:
            return bytes(await stream.receive_some(1 << 20))
        except trio.BrokenResourceError:
            return b""

    def _take(self, command: pb.BaseCommand, payload: bytes | None) -> bytes:
        """Handle one command; what is to be answered."""
        kind = command.type
        if kind == Type.MESSAGE:
            return self._take_message(command, payload)
        if kind == Type.PING:
            return wire.pong()
        if kind == Type.PONG:
            now = trio.current_time()
            for consumer, number in self._taken_with_pong.popleft():
                consumer.history.ack_taken(number, now, cumulative=consumer.is_cumulative)
        elif kind == Type.SEND_RECEIPT:
            self._load.durable.add(command.send_receipt.sequence_id)
        elif kind == Type.SUCCESS:
            subscribed = self._asked.pop(command.success.request_id, None)
            if subscribed is not None:
                self._load.on_subscribed(subscribed)
        elif kind == Type.PRODUCER_SUCCESS:
            self.can_publish = True
        elif kind not in (Type.CONNECTED, Type.ACTIVE_CONSUMER_CHANGE):
            self._load.violations.append(f"unexpected: {command}")
        return b""

    def _take_message(self, command: pb.BaseCommand, payload: bytes | None) -> bytes:
        consumer_id = command.message.consumer_id
        consumer = self._consumers[consumer_id]
        answers = b""
        for message in wire.received_messages(command, payload or b""):
            number = int(message.payload)
            again = self._load.on_message(consumer, number)
            answer = consumer.acknowledge(consumer_id, number, message.message_id, again)
            if answer:
                self._load.acks_sent += 1
                self._acks.append((consumer, number))
            answers += answer
        return answers
