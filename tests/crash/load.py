"""The load: stock Pulsar clients that publish and consume while the server is killed under them.

One client lives through all incarnations, as an application would: it reconnects by itself and
sends again what was not acked. Everything it is told is recorded for `checks`. Bounds: sends in
flight per producer, messages per producer, unacked holes per subscription.
"""

from __future__ import annotations

import hashlib
import threading
import time
from typing import TYPE_CHECKING, final

import pulsar

from tests.crash.checks import Event, Sent, SubscriptionHistory, TopicHistory

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.crash.checks import MessageId

IN_FLIGHT_MAX = 300
HOLES_MAX = 2000
HOLE_EVERY = 16
CUMULATIVE_EVERY = 20
NAMESPACE = "persistent://public/default"


def payload_of(seed: int, producer: int, sequence: int) -> bytes:
    """Content that says what it is and can be made again; mostly small, now and then large."""
    head = f"{producer}:{sequence}:".encode()
    digest = hashlib.sha256(f"{seed}:".encode() + head).digest()
    size = 60_000 if digest[0] == 0 else 16 + digest[1] * 4
    return head + digest * (size // len(digest))


def parse_payload(data: bytes) -> tuple[int, int]:
    """(producer, sequence)"""
    producer, sequence, _ = data.split(b":", 2)
    return int(producer), int(sequence)


def message_id_of(message_id: pulsar.MessageId) -> MessageId:
    """As a tuple that orders."""
    return message_id.ledger_id(), message_id.entry_id(), message_id.batch_index()


def quiet_client(service_url: str, log: Path) -> pulsar.Client:
    """A client that tells a file what it goes through."""
    return pulsar.Client(
        service_url,
        logger=pulsar.FileLogger(pulsar.LoggerLevel.Warn, str(log)),
        operation_timeout_seconds=30,
        connection_timeout_ms=3000,
    )


@final
class Load:
    """Producers and consumers in threads of their own, from `start` to `stop`."""

    def __init__(
        self,
        service_url: str,
        directory: Path,
        seed: int,
        rate: int,
        messages_max: int,
        on_ack: Callable[[], None],
    ) -> None:
        self._client = quiet_client(service_url, directory / "client.log")
        self._seed = seed
        self._rate = rate
        self._messages_max = messages_max
        self._on_ack = on_ack
        self._producing = True
        self._consuming = True
        self._threads: list[threading.Thread] = []
        self._producer_count = 0
        self.errors: list[str] = []
        self.ack_counts: list[int] = []
        """Sends acked so far, by producer: progress that the driver waits for."""
        self.topics: dict[str, TopicHistory] = {}

    def start(self) -> None:
        """Needs a server that is ready."""
        for name, is_batched in (("crash-unbatched", False), ("crash-batched", True)):
            topic = f"{NAMESPACE}/{name}"
            history = self.topics[topic] = TopicHistory()
            self._start_consumers(topic, history)
            for _ in range(2):
                self._start_producer(topic, history, is_batched)

    def finish_producing(self, timeout_seconds: float) -> None:
        """No new messages; wait until everything sent is answered."""
        self._producing = False
        deadline = time.monotonic() + timeout_seconds
        for thread in self._threads:
            if thread.name.startswith("producer"):
                thread.join(max(0.0, deadline - time.monotonic()))
                if thread.is_alive():
                    self.errors.append(f"{thread.name} got no answer in {timeout_seconds} s")

    def stop(self) -> None:
        """End the consumers and the client."""
        self._consuming = False
        for thread in self._threads:
            thread.join(20)
        self._client.close()

    def _start_producer(self, topic: str, history: TopicHistory, is_batched: bool) -> None:
        number = self._producer_count
        self._producer_count += 1
        self.ack_counts.append(0)
        producer = self._client.create_producer(
            topic,
            producer_name=f"crash-{number}",
            send_timeout_millis=0,
            max_pending_messages=IN_FLIGHT_MAX * 2,
            batching_enabled=is_batched,
            batching_max_messages=40,
            batching_max_publish_delay_ms=5,
        )
        rate = self._rate * (4 if is_batched else 1)
        self._run(f"producer {number}", self._produce, producer, number, history, rate)

    def _start_consumers(self, topic: str, history: TopicHistory) -> None:
        for name, kind, count in (
            ("exclusive", pulsar.ConsumerType.Exclusive, 1),
            ("shared", pulsar.ConsumerType.Shared, 2),
        ):
            is_cumulative = kind == pulsar.ConsumerType.Exclusive
            subscription = history.subscriptions[name] = SubscriptionHistory(is_cumulative)
            holes: set[tuple[int, int]] = set()
            for _ in range(count):
                consumer = self._client.subscribe(
                    topic, name, kind, initial_position=pulsar.InitialPosition.Earliest
                )
                self._run(f"{name} {topic}", self._consume, consumer, subscription, holes)

    def _run(self, name: str, body: Callable[..., None], *arguments: object) -> None:
        def guarded() -> None:
            try:
                body(*arguments)
            except Exception as error:
                self.errors.append(f"{name}: {type(error).__name__}: {error}")

        thread = threading.Thread(target=guarded, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _produce(
        self, producer: pulsar.Producer, number: int, history: TopicHistory, rate: int
    ) -> None:
        in_flight = threading.Semaphore(IN_FLIGHT_MAX)
        burst = max(1, rate // 50)
        sequence = 0

        def answered(sequence: int) -> Callable[[pulsar.Result, pulsar.MessageId], None]:
            def record(result: pulsar.Result, message_id: pulsar.MessageId) -> None:
                if result == pulsar.Result.Ok:
                    history.acked.append(Sent(number, sequence, message_id_of(message_id)))
                    self.ack_counts[number] += 1
                    self._on_ack()
                else:
                    history.failed.add((number, sequence))
                in_flight.release()

            return record

        while self._producing and sequence < self._messages_max:
            for _ in range(burst):
                if not in_flight.acquire(timeout=0.1):
                    break
                payload = payload_of(self._seed, number, sequence)
                producer.send_async(payload, answered(sequence))
                sequence += 1
            time.sleep(burst / rate)
        producer.flush()
        for _ in range(IN_FLIGHT_MAX):
            in_flight.acquire()
        producer.close()

    def _consume(
        self,
        consumer: pulsar.Consumer,
        subscription: SubscriptionHistory,
        holes: set[tuple[int, int]],
    ) -> None:
        count = 0
        while self._consuming:
            try:
                message = consumer.receive(timeout_millis=200)
            except pulsar.Timeout:
                continue
            message_id = message_id_of(message.message_id())
            subscription.received.append(Event(message_id, time.monotonic()))
            count += 1
            if subscription.is_cumulative:
                if count % CUMULATIVE_EVERY == 0:
                    consumer.acknowledge_cumulative(message)
                    subscription.acked.append(Event(message_id, time.monotonic()))
                continue
            if not stays_unacked(message_id[:2], holes):
                consumer.acknowledge(message)
                subscription.acked.append(Event(message_id, time.monotonic()))


def stays_unacked(entry: tuple[int, int], holes: set[tuple[int, int]]) -> bool:
    """Whether an entry (ledger id, entry id) is one of the `holes`, to which it may be added.

    The first one always is: without retention a server may remove ledgers of which everything is
    acknowledged, and the check would call their messages lost.
    """
    if entry in holes:
        return True
    if holes and (hash(entry) % HOLE_EVERY or len(holes) >= HOLES_MAX):
        return False
    holes.add(entry)
    return True


def read_topic(client: pulsar.Client, topic: str, history: TopicHistory, seed: int) -> None:
    """Fill `history.log` from the earliest message on.

    Raises: pulsar.Timeout: a message that is said to be available does not come.
    """
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    while reader.has_message_available():
        message = reader.read_next(timeout_millis=20_000)
        data = message.data()
        producer, sequence = parse_payload(data)
        is_intact = data == payload_of(seed, producer, sequence)
        history.log.append((message_id_of(message.message_id()), producer, sequence, is_intact))
    reader.close()


def read_subscriptions(client: pulsar.Client, topic: str, history: TopicHistory) -> None:
    """Messages that new consumers still get, without acknowledging any of them."""
    for name, subscription in history.subscriptions.items():
        is_cumulative = subscription.is_cumulative
        kind = pulsar.ConsumerType.Exclusive if is_cumulative else pulsar.ConsumerType.Shared
        acked = {event.message_id for event in subscription.acked}
        newest = max(acked, default=(-1, -1, -1))
        missing = {
            entry[0]
            for entry in history.log
            if (entry[0] > newest if is_cumulative else entry[0] not in acked)
        }
        consumer = client.subscribe(topic, name, kind)
        while True:
            try:
                message = consumer.receive(timeout_millis=5000 if missing else 500)
            except pulsar.Timeout:
                break
            message_id = message_id_of(message.message_id())
            subscription.received.append(Event(message_id, time.monotonic()))
            missing.discard(message_id)
        consumer.close()
