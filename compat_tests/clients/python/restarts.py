"""The server is stopped or killed between publish and consume, with clients gone or waiting."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

import pulsar

from compat_tests.clients.python.scenario import (
    RECEIVE_TIMEOUT_MS,
    Receipts,
    Stage,
    receive_all_of,
    receive_many,
    scenario,
    send_all,
    texts,
)

if TYPE_CHECKING:
    from collections.abc import Callable

# A cursor is written to its ledger after the acks; this is longer than either server waits.
CURSOR_FLUSH_SECONDS = 2.0
# A client that has waited for its server tries again after at most a minute.
RECONNECT_MS_MAX = 90_000
SILENCE_MS = 1_000
# Longer than a stop, a start and a reconnection take together on a busy machine.
SEND_TIMEOUT_MS = 480_000


def _stop(stage: Stage) -> None:
    stage.server.stop()


def _kill(stage: Stage) -> None:
    stage.server.kill()


def _publish_then_consume(end: Callable[[Stage], None], stage: Stage) -> None:
    topics = {False: stage.topic("-unbatched"), True: stage.topic("-batched")}
    client = stage.new_client()
    for batched, topic in topics.items():
        consumer = client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Shared)
        producer = client.create_producer(topic, batching_enabled=batched)
        send_all(producer, [f"message {number}" for number in range(100)])
        messages = receive_many(consumer, 20, acknowledge=False)
        if not batched:
            for message in messages:
                if message.data() != b"message 3":
                    consumer.acknowledge(message)
    time.sleep(CURSOR_FLUSH_SECONDS)
    stage.close()
    end(stage)
    stage.server.start()
    client = stage.new_client()
    for batched, topic in topics.items():
        reader = client.create_reader(topic, pulsar.MessageId.earliest)
        kept = [reader.read_next(10_000).data().decode() for _ in range(100)]
        stage.see(f"batched {batched}: kept", kept)
        stage.see("more", reader.has_message_available())
        consumer = client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Shared)
        unacked = {"message 3"} | {f"message {n}" for n in range(20, 100)}
        rest = receive_all_of(consumer, unacked, RECONNECT_MS_MAX, 2 * SILENCE_MS)
        assert unacked <= set(texts(rest))
        if end is _stop:  # a kill may bring back acks younger than the flush interval
            stage.see("of the subscription", sorted(texts(rest)))
        producer = client.create_producer(topic, batching_enabled=batched)
        send_all(producer, ["new"])
        stage.see("new", texts(receive_all_of(consumer, ["new"], RECEIVE_TIMEOUT_MS, SILENCE_MS)))


def _clients_wait(end: Callable[[Stage], None], stage: Stage) -> None:
    consumer = stage.client.subscribe(stage.topic(), "s")
    producer = stage.client.create_producer(stage.topic(), send_timeout_millis=SEND_TIMEOUT_MS)
    send_all(producer, [f"before {number}" for number in range(10)])
    stage.see("before", texts(receive_many(consumer, 10)))
    time.sleep(CURSOR_FLUSH_SECONDS)
    end(stage)
    receipts = Receipts()
    for number in range(10):
        producer.send_async(f"meanwhile {number}".encode(), receipts)
    stage.server.start()
    producer.flush()
    stage.see("sent meanwhile", [result.name for result in receipts.take(10)])
    send_all(producer, [f"after {number}" for number in range(10)])
    sent = [f"{when} {number}" for when in ("meanwhile", "after") for number in range(10)]
    seen = texts(receive_all_of(consumer, sent, RECONNECT_MS_MAX, SILENCE_MS))
    new = [text for text in dict.fromkeys(seen) if not text.startswith("before")]
    stage.see("after", new)


for _name, _end in (("restart", _stop), ("kill-9", _kill)):
    scenario(f"{_name}-between-publish-and-consume", own_server=True)(
        partial(_publish_then_consume, _end)
    )
    scenario(f"{_name}-under-waiting-clients", own_server=True)(partial(_clients_wait, _end))


@scenario("restart-keeps-schemas-and-partitions", own_server=True)
def restart_keeps_schemas(stage: Stage) -> None:
    from pulsar.schema import StringSchema

    stage.partition(stage.topic("-partitioned"), 3)
    client = stage.new_client()
    producer = client.create_producer(stage.topic(), schema=StringSchema())
    producer.send("one")
    stage.close()
    stage.server.stop()
    stage.server.start()
    client = stage.new_client()
    stage.see("partitions", len(client.get_topic_partitions(stage.topic("-partitioned"))))
    path = "/admin/v2/schemas/" + stage.topic().partition("://")[2] + "/schema"
    body = stage.server.http("GET", path)[1]
    stage.see("schema", [body["type"], body["version"], body["data"]])
    stage.see_error(
        "producer of it", lambda: client.create_producer(stage.topic(), schema=StringSchema())
    )
