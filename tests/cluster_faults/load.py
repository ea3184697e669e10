"""The load: stock clients that publish and consume while a cluster suffers, and what they are told.

Each topic has two producers, one of them batching, an exclusive subscription that acknowledges
cumulatively, and a shared one of two consumers that leaves holes. One client has them all, as an
application would. It connects again by itself and sends again what has no receipt. Nothing has a
time limit. Bounds: the rate, and the time that the runner lets it run.
"""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, final

import pulsar

from tests.cluster_faults.checks import ProducerHistory, SubscriptionHistory, TopicHistory
from tests.crash.load import message_id_of, parse_payload, payload_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tests.crash.checks import MessageId

RATE: Final = 200
"""Messages per second of all producers together."""
CUMULATIVE_EVERY: Final = 20
HOLE_EVERY: Final = 16
WAIT_SECONDS_MAX: Final = 180.0
"""For what must come by itself once everything is well again. Generous: the machine may be busy."""
_EXCLUSIVE: Final = "exclusive"
_SHARED: Final = "shared"
_PRODUCER_MADE: Final = re.compile(r"\[\S+, (\S+)\] Created producer on broker")


class Stuck(Exception):
    """What must come by itself did not come; the text says what."""


def wait_until(what: str, is_true: Callable[[], object]) -> None:
    """Raises: Stuck: it is not true in time."""
    end = time.monotonic() + WAIT_SECONDS_MAX
    while not is_true():
        if time.monotonic() > end:
            raise Stuck(f"STUCK: {what}: not within {WAIT_SECONDS_MAX:g} s")
        time.sleep(0.02)


@dataclass
class _Topic:
    name: str
    history: TopicHistory
    receipt_times: list[float] = field(default_factory=list)
    """On the monotonic clock, ascending."""
    consumers: list[pulsar.Consumer] = field(default_factory=list)


@final
@dataclass
class _Producer:
    number: int
    name: str
    topic: _Topic
    history: ProducerHistory
    client: pulsar.Producer
    newest: int = -1
    """The newest message with a receipt."""


@final
class Load:
    """See the module docstring."""

    def __init__(
        self, service_url: str, log: Path, name: str, seed: int, topics: Mapping[str, bool]
    ) -> None:
        """`log`: of all clients of this process, because the first one's is used by all. `name`: no
        other load of this process has it. `topics`: full name -> whether it has deduplication."""
        self._log = log
        self._log_place = len(log.read_bytes()) if log.exists() else 0
        self._name = name
        self._client = pulsar.Client(
            service_url,
            logger=pulsar.FileLogger(pulsar.LoggerLevel.Info, str(log)),
            operation_timeout_seconds=60,
            connection_timeout_ms=3_000,
        )
        self._seed = seed
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._guard, args=(self._produce,), daemon=True)
        self._producers: list[_Producer] = []
        self._topics = [
            _Topic(name, TopicHistory(has_deduplication))
            for name, has_deduplication in topics.items()
        ]
        self.topics_read: set[str] = set()
        """Those whose logs are complete."""
        self.errors: list[str] = []
        """What went wrong in the load itself."""

    @property
    def histories(self) -> dict[str, TopicHistory]:
        """By topic."""
        return {topic.name: topic.history for topic in self._topics}

    def receipt_times(self, name: str) -> list[float]:
        """Of a topic, on the monotonic clock."""
        (found,) = (topic for topic in self._topics if topic.name == name)
        return list(found.receipt_times)

    # --- publishing ---------------------------------------------------------------------

    def start(self) -> None:
        """Make everything and begin. Return when each producer has a receipt."""
        for topic in self._topics:
            self._subscribe(topic)
            for is_batched in (False, True):
                number = len(self._producers)
                name = f"{self._name}-{number}"
                history = topic.history.producers[number] = ProducerHistory()
                client = self._client.create_producer(
                    topic.name,
                    producer_name=name,
                    send_timeout_millis=0,
                    max_pending_messages=50_000,
                    batching_enabled=is_batched,
                    batching_max_messages=20,
                    batching_max_publish_delay_ms=100,
                )
                self._producers.append(_Producer(number, name, topic, history, client))
        self._thread.start()
        self.wait_for_more("the load begins")

    def wait_for_more(self, what: str) -> None:
        """Return when each producer has a receipt for a message sent after this call.

        Raises: Stuck.
        """
        wanted = [(each, each.history.sent) for each in self._producers]
        wait_until(
            f"receipts while {what}",
            lambda: all(each.newest >= number for each, number in wanted),
        )

    def finish_publishing(self) -> None:
        """No more messages. Return when each has its receipt. Raises: Stuck."""
        self._is_over.set()
        self._thread.join()
        wait_until("receipts for the last messages", lambda: not self._without_receipt())
        for producer in self._producers:
            producer.client.close()

    def _without_receipt(self) -> int:
        return sum(
            each.history.sent - len(each.history.receipts) - len(each.history.failed)
            for each in self._producers
        )

    def _guard(self, body: Callable[[], None]) -> None:
        try:
            body()
        except Exception as error:
            self.errors.append(f"BROKEN LOAD: {type(error).__name__}: {error}")

    def _produce(self) -> None:
        period = len(self._producers) / RATE
        at = time.monotonic()
        while not self._is_over.wait(max(0.0, at - time.monotonic())):
            at = max(at, time.monotonic() - 1.0) + period  # what was missed for long is left out
            for producer in self._producers:
                message = producer.history.sent
                payload = payload_of(self._seed, producer.number, message)
                producer.history.sent += 1
                producer.client.send_async(payload, self._on_answer(producer, message))

    def _on_answer(
        self, producer: _Producer, message: int
    ) -> Callable[[pulsar.Result, pulsar.MessageId], None]:
        history, topic = producer.history, producer.topic

        def answered(result: pulsar.Result, message_id: pulsar.MessageId) -> None:
            with self._lock:
                if message in history.receipts or message in history.failed:
                    self.errors.append(f"{producer.name} got two answers to message {message}")
                elif result != pulsar.Result.Ok:
                    history.failed[message] = str(result)
                else:
                    history.receipts[message] = message_id_of(message_id)
                    producer.newest = max(producer.newest, message)
                    topic.receipt_times.append(time.monotonic())

        return answered

    # --- consuming ----------------------------------------------------------------------

    def _subscribe(self, topic: _Topic) -> None:
        for name, kind, count in (
            (_EXCLUSIVE, pulsar.ConsumerType.Exclusive, 1),
            (_SHARED, pulsar.ConsumerType.Shared, 2),
        ):
            history = SubscriptionHistory(is_exclusive=name == _EXCLUSIVE)
            topic.history.subscriptions[name] = history
            for _ in range(count):
                listener = self._on_message(history)
                consumer = self._consumer(topic.name, name, kind, message_listener=listener)
                topic.consumers.append(consumer)

    def _consumer(
        self, topic: str, name: str, kind: pulsar.ConsumerType, **fields: Any
    ) -> pulsar.Consumer:
        first = pulsar.InitialPosition.Earliest
        return self._client.subscribe(topic, name, kind, initial_position=first, **fields)

    def _on_message(
        self, history: SubscriptionHistory
    ) -> Callable[[pulsar.Consumer, pulsar.Message], None]:
        def received(consumer: pulsar.Consumer, message: pulsar.Message) -> None:
            self._guard(lambda: self._take(history, consumer, message))

        return received

    def _take(
        self, history: SubscriptionHistory, consumer: pulsar.Consumer, message: pulsar.Message
    ) -> None:
        position = message_id_of(message.message_id())
        with self._lock:
            history.delivered.append(position)
            count = len(history.delivered)
        if history.is_exclusive:
            if count % CUMULATIVE_EVERY == 0:
                consumer.acknowledge_cumulative(message)
        elif not is_hole(position):
            consumer.acknowledge(message)
            history.acknowledged.add(position)

    # --- the end ------------------------------------------------------------------------

    def read_back(self) -> None:
        """Fill the logs, wait for the consumers, and have the holes delivered again.

        Raises: Stuck, pulsar.Timeout: a message that is said to be available does not come.
        """
        for topic in self._topics:
            self._read(topic)
            wanted = {entry[0] for entry in topic.history.log}
            for name, subscription in topic.history.subscriptions.items():
                wait_until(
                    f"delivery of {len(wanted)} messages of {topic.name} to {name}",
                    lambda seen=subscription.delivered, wanted=wanted: wanted <= set(seen),
                )
            self._read_holes(topic, wanted)

    def close(self) -> None:
        """End the client, and learn from its log how often each producer was made."""
        self._is_over.set()
        if self._thread.is_alive():
            self._thread.join()
        self._client.close()
        logged = self._log.read_bytes()[self._log_place :].decode(errors="replace")
        made = Counter(_PRODUCER_MADE.findall(logged))
        for producer in self._producers:
            if not made[producer.name]:
                self.errors.append(f"the client's log does not say where {producer.name} was made")
            producer.history.connections = made[producer.name]

    def _read(self, topic: _Topic) -> None:
        reader = self._client.create_reader(topic.name, pulsar.MessageId.earliest)
        while reader.has_message_available():
            message = reader.read_next(timeout_millis=int(1_000 * WAIT_SECONDS_MAX))
            data = message.data()
            producer, number = parse_payload(data)
            is_intact = data == payload_of(self._seed, producer, number)
            position = message_id_of(message.message_id())
            topic.history.log.append((position, producer, number, is_intact))
        reader.close()
        self.topics_read.add(topic.name)

    def _read_holes(self, topic: _Topic, wanted: set[MessageId]) -> None:
        for consumer in topic.consumers:
            consumer.close()
        shared = topic.history.subscriptions[_SHARED]
        holes = wanted - shared.acknowledged
        consumer = self._consumer(topic.name, _SHARED, pulsar.ConsumerType.Shared)
        end = time.monotonic() + WAIT_SECONDS_MAX
        while not holes <= shared.again:
            if time.monotonic() > end:
                count = len(holes - shared.again)
                raise Stuck(f"STUCK: {count} of {len(holes)} holes of {topic.name} come again")
            try:
                message = consumer.receive(timeout_millis=1_000)
            except pulsar.Timeout:
                continue
            shared.again.add(message_id_of(message.message_id()))
        consumer.close()


def is_hole(position: MessageId) -> bool:
    """Whether the shared subscription leaves this entry unacknowledged."""
    return (position[0] * 31 + position[1]) % HOLE_EVERY == 0
