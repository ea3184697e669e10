"""A broker with a client of it, and what both show of the topics of one namespace.

A message is shown without its id and times, because two copies of a topic are compared. The id is
compared with the one that the producer was told, whichever broker delivers the message.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pulsar

from compat_tests.oracle.redirects import ask

if TYPE_CHECKING:
    from collections.abc import Iterator

    from compat_tests.oracle.server_process import ServerProcess

RECEIVE_MS_MAX = 60_000
TURN_MS = 20
SILENCE_MS = 300
WAIT_SECONDS_MAX = 60.0
END = "end"
"""A property of messages that are sent after all others: what has not come by then, does not. Its
value is another one each time."""

Place = tuple[int, int, int, int]
"""Partition, ledger, entry, index in the batch."""


def place_of(message_id: Any) -> Place:
    """Of the id in a receipt or in a message."""
    return (
        message_id.partition(),
        message_id.ledger_id(),
        message_id.entry_id(),
        message_id.batch_index(),
    )


def shown(message: Any) -> dict[str, Any]:
    """What a user sees of a message, without ids and times."""
    return {
        "data": bytes(message.data()),
        "key": message.partition_key(),
        "ordering key": message.ordering_key(),
        "properties": dict(sorted(message.properties().items())),
        "event time": message.event_timestamp(),
        "redeliveries": message.redelivery_count(),
        "producer": message.producer_name(),
        "schema version": message.schema_version(),
    }


class Site:
    """Use it as long as the broker runs."""

    def __init__(self, server: ServerProcess, client: pulsar.Client) -> None:
        self.server = server
        self.client = client

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """The answer to an administrative request that must be granted."""
        status, answer = ask(self.server, method, f"/admin/v2{path}", body)
        assert status in (200, 204), (method, path, status, answer)
        return answer

    def subscribe(self, topic: str, subscription: str, **fields: Any) -> pulsar.Consumer:
        """A consumer that begins with the first message."""
        settings = {
            "consumer_type": pulsar.ConsumerType.Shared,
            "initial_position": pulsar.InitialPosition.Earliest,
        }
        return self.client.subscribe(topic, subscription, **(settings | fields))

    def backlogs(self, path: str) -> dict[str, int]:
        """Backlog of each subscription of a topic, by the statistics at `path`."""
        subscriptions = self.ask("GET", path)["subscriptions"]
        return {name: each["msgBacklog"] for name, each in sorted(subscriptions.items())}


@contextmanager
def site(server: ServerProcess) -> Iterator[Site]:
    """With a client that is closed at the end."""
    log = pulsar.FileLogger(pulsar.LoggerLevel.Warn, str(server.directory / "client.log"))
    client = pulsar.Client(server.service_url, operation_timeout_seconds=60, logger=log)
    try:
        yield Site(server, client)
    finally:
        client.close()


def an_end() -> dict[str, str]:
    """Properties of an end that no other has."""
    return {END: uuid4().hex}


def received_until_the_end(
    *consumers: pulsar.Consumer, end: dict[str, str], ends: int = 1
) -> list[Any]:
    """All messages that these consumers get before, together, so many of these ends. All are
    acknowledged. Ends of earlier times are among the messages.

    Raises: AssertionError: something comes after the ends. pulsar.Timeout: the ends do not come.
    """
    messages: list[Any] = []
    deadline = time.monotonic() + RECEIVE_MS_MAX / 1000
    while ends:
        for consumer in consumers:
            try:
                message = consumer.receive(TURN_MS if len(consumers) > 1 else RECEIVE_MS_MAX)
            except pulsar.Timeout:
                if time.monotonic() > deadline:
                    raise
                continue
            consumer.acknowledge(message)
            if message.properties() == end:
                ends -= 1
            else:
                messages.append(message)
    for consumer in consumers:
        try:
            late = consumer.receive(SILENCE_MS)
        except pulsar.Timeout:
            continue
        raise AssertionError(f"{late.data()!r} came after the end")
    return messages
