"""The stage that a scenario of the Python client gets, and the trace that it produces.

A scenario is a function of a Stage. It tells what a user sees through `see`, `see_message` and
`see_error`; the comparison is of these lists. It never tells ids, times or addresses. What must
hold on any server is asserted in the scenario itself, so that two servers that are wrong in the
same way do not pass for equal.
"""

from __future__ import annotations

import hashlib
import queue
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pulsar

from compat_tests.clients.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from compat_tests.oracle.server_process import ServerProcess

RECEIVE_TIMEOUT_MS = 10_000
SILENCE_TIMEOUT_MS = 700
TURN_TIMEOUT_MS = 20
TOGETHER_SECONDS_MAX = 30.0
OPERATION_TIMEOUT_SECONDS = 20
RECEIPT_SECONDS_MAX = 10.0


def text_of(data: bytes) -> str:
    """A payload as it is shown in a trace: short text as it is, anything else by its hash."""
    if len(data) <= 200:
        try:
            return data.decode()
        except UnicodeDecodeError:
            pass
    return f"sha256:{hashlib.sha256(data).hexdigest()}:{len(data)}"


def seen_form(message: pulsar.Message) -> dict[str, Any]:
    """A message as a user sees it, without ids and times."""
    form: dict[str, Any] = {
        "data": text_of(message.data()),
        "key": message.partition_key(),
        "properties": dict(sorted(message.properties().items())),
        "redelivery_count": message.redelivery_count(),
    }
    if message.ordering_key():
        form["ordering_key"] = message.ordering_key()
    if message.event_timestamp():
        form["event_time"] = message.event_timestamp()
    return form


@dataclass
class Stage:
    """One scenario on one server: a client, topic names of its own with a mark, and the trace."""

    server: ServerProcess
    scenario_name: str
    keys_directory: Path
    mark: str = ""
    trace: list[Any] = field(default_factory=list)
    _clients: list[pulsar.Client] = field(default_factory=list)

    def topic(self, suffix: str = "", domain: str = "persistent") -> str:
        """A topic name of this scenario's own; the same on both servers."""
        return f"{domain}://public/default/python-{self.scenario_name}{self.mark}{suffix}"

    def new_client(
        self, operation_timeout_seconds: int = OPERATION_TIMEOUT_SECONDS
    ) -> pulsar.Client:
        """A client of its own connection; closed with the stage."""
        client = pulsar.Client(
            self.server.service_url,
            operation_timeout_seconds=operation_timeout_seconds,
            logger=pulsar.FileLogger(
                pulsar.LoggerLevel.Warn, str(self.server.directory / "python-client.log")
            ),
        )
        self._clients.append(client)
        return client

    @property
    def client(self) -> pulsar.Client:
        """The scenario's first client."""
        return self._clients[0] if self._clients else self.new_client()

    def partition(self, topic: str, count: int) -> None:
        """Make a partitioned topic over HTTP."""
        path = "/admin/v2/" + topic.replace("://", "/") + "/partitions"
        status, body = self.server.http("PUT", path, count)
        assert status == 204, f"PUT {path} answered {status} {body}"

    def see(self, what: str, value: Any = None) -> None:
        """Add an observation to the trace."""
        self.trace.append([what, value])

    def see_message(self, what: str, message: pulsar.Message) -> None:
        """Add a received message to the trace."""
        self.see(what, seen_form(message))

    def see_error(self, what: str, action: Callable[[], object]) -> None:
        """Do it and add the name of the client's error, or None, to the trace."""
        try:
            action()
        except pulsar.PulsarException as refused:
            self.see(what, type(refused).__name__)
        else:
            self.see(what, None)

    def close(self) -> None:
        """Close every client."""
        for client in self._clients:
            try:
                client.close()
            except pulsar.PulsarException:
                pass  # already closed by the scenario
        self._clients.clear()


_REGISTRY: Registry[Stage] = Registry()
SCENARIOS = _REGISTRY.entries
scenario = _REGISTRY.scenario


def receive_many(
    consumer: pulsar.Consumer, count: int, acknowledge: bool = True
) -> list[pulsar.Message]:
    """Exactly `count` messages, acknowledged one by one unless told otherwise."""
    received: list[pulsar.Message] = []
    for _ in range(count):
        message = consumer.receive(RECEIVE_TIMEOUT_MS)
        received.append(message)
        if acknowledge:
            consumer.acknowledge(message)
    return received


def receive_until_silence(
    consumer: pulsar.Consumer, silence_ms: int = SILENCE_TIMEOUT_MS, acknowledge: bool = True
) -> list[pulsar.Message]:
    """Everything that comes until nothing has come for a while."""
    received: list[pulsar.Message] = []
    while True:
        try:
            message = consumer.receive(silence_ms)
        except pulsar.Timeout:
            return received
        received.append(message)
        if acknowledge:
            consumer.acknowledge(message)


def receive_together(
    consumers: Sequence[pulsar.Consumer], count: int
) -> list[list[pulsar.Message]]:
    """The messages of each of them, acknowledged, until all have `count` together; then a silence.

    Raises: AssertionError: they got fewer in the time allowed.
    """
    parts: list[list[pulsar.Message]] = [[] for _ in consumers]
    deadline = time.monotonic() + TOGETHER_SECONDS_MAX
    while (got := sum(map(len, parts))) < count:
        assert time.monotonic() < deadline, f"only {got} of {count} messages came"
        for part, consumer in zip(parts, consumers, strict=True):
            part += receive_until_silence(consumer, TURN_TIMEOUT_MS)
    for part, consumer in zip(parts, consumers, strict=True):
        part += receive_until_silence(consumer)
    return parts


def receive_all_of(
    consumer: pulsar.Consumer, expected: Iterable[str], within_ms: int, silence_ms: int
) -> list[pulsar.Message]:
    """Everything, acknowledged, until all expected texts were seen and then a silence came.

    A text that does not come within `within_ms` is left to the caller to miss.
    """
    missing = set(expected)
    received: list[pulsar.Message] = []
    deadline = time.monotonic() + within_ms / 1000
    while missing and (left_ms := int((deadline - time.monotonic()) * 1000)) > 0:
        try:
            message = consumer.receive(left_ms)
        except pulsar.Timeout:
            break
        consumer.acknowledge(message)
        received.append(message)
        missing.discard(message.data().decode())
    return received + receive_until_silence(consumer, silence_ms)


class Receipts:
    """What a producer is told of messages that it sends without waiting for each.

    `flush` of the client does not wait for a receipt that it has taken note of, but has not told
    its callback yet.
    """

    def __init__(self) -> None:
        self._told: queue.SimpleQueue[pulsar.Result] = queue.SimpleQueue()

    def __call__(self, result: pulsar.Result, message_id: pulsar.MessageId) -> None:
        """The callback of `send_async`."""
        self._told.put(result)

    def __len__(self) -> int:
        return self._told.qsize()

    def take(self, count: int) -> list[pulsar.Result]:
        """So many, in the order in which they were told.

        Raises: queue.Empty: one was not told in time.
        """
        return [self._told.get(timeout=RECEIPT_SECONDS_MAX) for _ in range(count)]


def send_all(producer: pulsar.Producer, payloads: Iterable[str], **options: Any) -> None:
    """Send texts without waiting for each; every one must be acknowledged by the server."""
    payload_list = list(payloads)
    receipts = Receipts()
    for payload in payload_list:
        producer.send_async(payload.encode(), receipts, **options)
    producer.flush()
    results = receipts.take(len(payload_list))
    assert all(result == pulsar.Result.Ok for result in results), results


def texts(messages: Iterable[pulsar.Message]) -> list[str]:
    """The payloads as text."""
    return [message.data().decode() for message in messages]
