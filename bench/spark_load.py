"""The load of the Spark benchmark: data sets, and a consumer that follows a topic meanwhile."""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pulsar

from bench.spark_report import Latencies

if TYPE_CHECKING:
    from collections.abc import Iterator

    from compat_tests.oracle.server_process import ServerProcess

NAMESPACE = "public/default"
BATCH_MESSAGES = 1000
KEYS = 1000
FILLER_RECORDS = 30_000
SEND_TIMEOUT_MS = 60_000
DRAIN_SECONDS_MAX = 60.0
TAIL_SUBSCRIPTION = "tail"


@dataclass(frozen=True)
class DataSet:
    """Messages of one size on one topic, the same on every server."""

    name: str
    rows: int
    size_bytes: int
    batched: bool
    partitions: int = 0
    """0: a topic without partitions."""

    @property
    def topic(self) -> str:
        return f"persistent://{NAMESPACE}/{self.name.replace(' ', '-')}"

    @property
    def parts(self) -> list[str]:
        if not self.partitions:
            return [self.topic]
        return [f"{self.topic}-partition-{index}" for index in range(self.partitions)]


def values(count: int, size_bytes: int) -> Iterator[bytes]:
    """Texts that are all different and compress somewhat, as records of devices do."""
    chance = random.Random(1)
    record = b'{"speed":%d,"lat":%d,"lon":%d}'
    parts = [
        record % (chance.randrange(200), chance.randrange(10**9), chance.randrange(10**9))
        for _ in range(FILLER_RECORDS)
    ]
    filler = b"".join(parts)
    for number in range(count):
        start = chance.randrange(len(filler) - size_bytes)
        yield b"%012d" % number + filler[start : start + size_bytes - 12]


def client_of(server: ServerProcess) -> pulsar.Client:
    """The stock client, silent."""
    return pulsar.Client(server.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))


def publish(server: ServerProcess, data: DataSet) -> None:
    """Fill the topic. Raises: RuntimeError: something was not stored."""
    if data.partitions:
        path = f"/admin/v2/persistent/{data.topic.partition('://')[2]}/partitions"
        status, told = server.http("PUT", path, data.partitions)
        if status not in (204, 409):
            raise RuntimeError(f"{server.name} made no partitions: {status} {told}")
    failures: list[Any] = []

    def on_sent(result: Any, _: Any) -> None:
        if result != pulsar.Result.Ok:
            failures.append(result)

    client = client_of(server)
    try:
        producer = client.create_producer(
            data.topic,
            batching_enabled=data.batched,
            batching_max_messages=BATCH_MESSAGES,
            batching_max_allowed_size_in_bytes=2**20,
            compression_type=pulsar.CompressionType.LZ4
            if data.batched
            else pulsar.CompressionType.NONE,
            block_if_queue_full=True,
            max_pending_messages=5000,
            send_timeout_millis=SEND_TIMEOUT_MS,
            message_routing_mode=pulsar.PartitionsRoutingMode.RoundRobinDistribution,
        )
        for number, value in enumerate(values(data.rows, data.size_bytes)):
            key = f"k{number % KEYS}" if not data.batched else None
            producer.send_async(value, on_sent, partition_key=key)
        producer.flush()
        producer.close()
    finally:
        client.close()
    if failures:
        raise RuntimeError(f"{server.name} refused {len(failures)} messages: {failures[0]}")


def served_bytes(server: ServerProcess, data: DataSet) -> int:
    """Bytes of the topic sent so far by the broker, without those to the following consumer."""
    total = 0
    for part in data.parts:
        path = f"/admin/v2/persistent/{part.partition('://')[2]}/stats"
        status, stats = server.http("GET", path)
        if status != 200:
            raise RuntimeError(f"{server.name} tells nothing of {part}: {status} {stats}")
        tail = stats["subscriptions"].get(TAIL_SUBSCRIPTION, {})
        total += stats["bytesOutCounter"] - tail.get("bytesOutCounter", 0)
    return total


@dataclass
class Tail:
    """A producer at a steady rate, and a consumer that follows it: delivery times on one clock."""

    server: ServerProcess
    topic: str
    rate: int
    size_bytes: int = 1000
    _received: list[tuple[int, int, int]] = field(default_factory=list)
    """(number, nanoseconds when sent, when received)"""
    _sent: int = 0

    def __enter__(self) -> Tail:
        self._client = client_of(self.server)
        self._consumer = self._client.subscribe(
            self.topic, TAIL_SUBSCRIPTION, initial_position=pulsar.InitialPosition.Latest
        )
        self._producer = self._client.create_producer(
            self.topic, batching_enabled=False, block_if_queue_full=True
        )
        self._stop = threading.Event()
        self._drained = threading.Event()
        self._threads = [threading.Thread(target=work) for work in (self._send, self._receive)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(DRAIN_SECONDS_MAX)
        self._client.close()

    def stop(self) -> list[int]:
        """End it once all was received; the numbers in the order they came."""
        self._stop.set()
        for thread in self._threads:
            thread.join(DRAIN_SECONDS_MAX)
        return [number for number, _, _ in self._received]

    @property
    def sent(self) -> int:
        return self._sent

    def warm_up(self, messages: int) -> None:
        """Wait until so many were received. Raises: RuntimeError: they do not come."""
        deadline = time.monotonic() + DRAIN_SECONDS_MAX
        while len(self._received) < messages:
            if time.monotonic() > deadline:
                raise RuntimeError(f"only {len(self._received)} messages came to the tail")
            time.sleep(0.05)

    def between(self, begun_ns: int, ended_ns: int) -> Latencies:
        """Of the messages sent in this time; waits until they are there."""
        deadline = time.monotonic() + DRAIN_SECONDS_MAX
        while (not self._received or self._received[-1][1] < ended_ns) and (
            time.monotonic() < deadline
        ):
            time.sleep(0.05)
        times = [
            (received - sent) / 1e6
            for _, sent, received in list(self._received)
            if begun_ns <= sent < ended_ns
        ]
        return Latencies.of(times)

    def _send(self) -> None:
        begun = time.monotonic()
        while not self._stop.is_set():
            now = time.perf_counter_ns()
            head = b"%d %d " % (self._sent, now)
            self._producer.send_async(head.ljust(self.size_bytes, b"."), lambda *_: None)
            self._sent += 1
            self._stop.wait(max(0.0, begun + self._sent / self.rate - time.monotonic()))
        self._producer.flush()
        self._drained.set()

    def _receive(self) -> None:
        idle_ms, deadline = 500, None
        while deadline is None or time.monotonic() < deadline:
            if self._drained.is_set() and deadline is None:
                deadline = time.monotonic() + DRAIN_SECONDS_MAX / 2
            if self._drained.is_set() and len(self._received) >= self._sent:
                return
            try:
                message = self._consumer.receive(idle_ms)
            except pulsar.Timeout:
                continue
            received = time.perf_counter_ns()
            number, sent, _ = message.data().split(b" ", 2)
            self._received.append((int(number), int(sent), received))
            self._consumer.acknowledge(message)
