"""Markers that real Pulsar's brokers write into topics, for transactions and for replicated
subscriptions. They are written here through the protocol, as no client of applications does it.

Each scenario publishes `a`, two markers, `b`, `c`, a marker, and leaves three entries to clients.
"""

from __future__ import annotations

import time
from typing import Any, Final

import pulsar

from compat_tests.clients.admin_requests import AdminRequests, decoded
from compat_tests.clients.python.scenario import (
    Stage,
    receive_many,
    receive_until_silence,
    scenario,
    texts,
)
from compat_tests.clients.python.wire import Wire
from protocol import client as wire

SNAPSHOT_REQUEST: Final[dict[str, Any]] = {"marker_type": 10}
TXN_COMMIT: Final[dict[str, Any]] = {"marker_type": 21, "txnid_most_bits": 1, "txnid_least_bits": 2}
TXN_ABORT: Final[dict[str, Any]] = {"marker_type": 22, "txnid_most_bits": 1, "txnid_least_bits": 3}
STATISTICS_SECONDS_MAX: Final = 10.0
TYPES: Final = ("Exclusive", "Failover", "Shared", "KeyShared")


def _publish(stage: Stage, topic: str) -> None:
    connection = Wire(stage.server.service_url)
    try:
        connection.publish(
            topic,
            [
                wire.message(b"a", sequence_id=0),
                wire.message(b"", sequence_id=1, **SNAPSHOT_REQUEST),
                wire.message(b"", sequence_id=2, **TXN_COMMIT),
                wire.batch([b"b", b"c"], sequence_id=3),
                wire.message(b"", sequence_id=5, **TXN_ABORT),
            ],
        )
    finally:
        connection.close()


def _subscription(stage: Stage, topic: str, expected_backlog: int) -> dict[str, Any]:
    """Its figures, as soon as the backlog is the expected one, and after a while at the latest."""
    requests = AdminRequests(stage.server.web_url)
    deadline = time.monotonic() + STATISTICS_SECONDS_MAX
    while True:
        path = "/admin/v2/" + topic.replace("://", "/") + "/stats"
        figures: dict[str, Any] = decoded(requests.raw("GET", path)[1])["subscriptions"]["s"]
        if figures["msgBacklog"] == expected_backlog or time.monotonic() > deadline:
            return {key: figures[key] for key in ("msgBacklog", "unackedMessages")}
        time.sleep(0.05)


@scenario("markers-of-brokers")
def markers_of_brokers(stage: Stage) -> None:
    for kind in TYPES:
        topic = stage.topic(f"-{kind.lower()}")
        consumer = stage.client.subscribe(
            topic, "s", consumer_type=getattr(pulsar.ConsumerType, kind)
        )
        _publish(stage, topic)
        received = receive_many(consumer, 3, acknowledge=False)
        received += receive_until_silence(consumer, acknowledge=False)
        assert texts(received) == ["a", "b", "c"]
        stage.see(f"{kind} received", texts(received))
        stage.see(f"{kind} before acknowledging", _subscription(stage, topic, 2))
        for message in received:
            consumer.acknowledge(message)
        stage.see(f"{kind} acknowledged", _subscription(stage, topic, 0))


@scenario("markers-in-a-backlog")
def markers_in_a_backlog(stage: Stage) -> None:
    topic = stage.topic()
    stage.client.subscribe(topic, "s").close()
    _publish(stage, topic)
    stage.see("nobody has received them", _subscription(stage, topic, 5))
    consumer = stage.client.subscribe(topic, "s")
    received = receive_many(consumer, 3, acknowledge=False)
    consumer.acknowledge_cumulative(received[-1])
    stage.see("received", texts(received))
    stage.see("acknowledged", _subscription(stage, topic, 0))


@scenario("markers-and-readers")
def markers_and_readers(stage: Stage) -> None:
    topic = stage.topic()
    reader = stage.client.create_reader(topic, pulsar.MessageId.earliest)
    _publish(stage, topic)
    read: list[str] = []
    while len(read) < 4 and reader.has_message_available():
        try:
            read.append(reader.read_next(3_000).data().decode())
        except pulsar.Timeout:
            read.append("nothing, although a message was said to be available")
    stage.see("read", read)
    late = stage.client.create_reader(topic, pulsar.MessageId.latest)
    stage.see("available to a reader from the tail", late.has_message_available())
    only_markers = stage.topic("-only")
    connection = Wire(stage.server.service_url)
    connection.publish(only_markers, [wire.message(b"", **SNAPSHOT_REQUEST)])
    connection.close()
    empty = stage.client.create_reader(only_markers, pulsar.MessageId.earliest)
    stage.see("available among markers alone", empty.has_message_available())
