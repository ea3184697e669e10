"""The server is stopped or killed between publish and consume, with clients gone or waiting."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

import pulsar

from compat_tests.clients.python.scenario import (
    Stage,
    receive_many,
    receive_until_silence,
    scenario,
    send_all,
    texts,
)

if TYPE_CHECKING:
    from collections.abc import Callable

# A cursor is written to its ledger behind the acks; this is longer than either server waits.
CURSOR_FLUSH_SECONDS = 2.0


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
        rest = receive_until_silence(consumer, 2000)
        assert {"message 3"} | {f"message {n}" for n in range(20, 100)} <= set(texts(rest))
        if end is _stop:  # a kill may bring back acks younger than the flush interval
            stage.see("of the subscription", sorted(texts(rest)))
        producer = client.create_producer(topic, batching_enabled=batched)
        send_all(producer, ["new"])
        stage.see("new", texts(receive_until_silence(consumer, 1000)))


def _clients_wait(end: Callable[[Stage], None], stage: Stage) -> None:
    consumer = stage.client.subscribe(stage.topic(), "s")
    producer = stage.client.create_producer(stage.topic(), send_timeout_millis=120_000)
    send_all(producer, [f"before {number}" for number in range(10)])
    stage.see("before", texts(receive_many(consumer, 10)))
    time.sleep(CURSOR_FLUSH_SECONDS)
    end(stage)
    results: list[pulsar.Result] = []
    for number in range(10):
        producer.send_async(
            f"meanwhile {number}".encode(), lambda result, message_id: results.append(result)
        )
    stage.server.start()
    producer.flush()
    stage.see("sent meanwhile", [result.name for result in results])
    send_all(producer, [f"after {number}" for number in range(10)])
    seen = texts(receive_until_silence(consumer, 5000))
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
