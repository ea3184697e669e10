"""Operations of the tests with the stock client and the admin API."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

import pulsar


def publish(
    client: pulsar.Client,
    topic: str,
    values: list[Any],
    *,
    batched: bool = False,
    schema: Any = None,
    keys: list[str] | None = None,
    event_times: list[int] | None = None,
    **settings: Any,
) -> list[bytes]:
    """Send and return the serialized ids, in order."""
    schema = schema or pulsar.schema.BytesSchema()
    ids: list[bytes | None] = [None] * len(values)
    results: list[Any] = []

    def sent(index: int) -> Any:
        def on_sent(result: Any, message_id: Any) -> None:
            results.append(result)
            ids[index] = message_id.serialize()

        return on_sent

    producer = client.create_producer(
        topic,
        schema=schema,
        batching_enabled=batched,
        batching_max_messages=10,
        batching_max_publish_delay_ms=1000,
        block_if_queue_full=True,
        **settings,
    )
    for index, value in enumerate(values):
        producer.send_async(
            value,
            sent(index),
            partition_key=keys[index] if keys else None,
            event_timestamp=event_times[index] if event_times else None,
            properties={"n": str(index)},
        )
    producer.flush()
    producer.close()
    assert set(results) <= {pulsar.Result.Ok}
    assert None not in ids
    return [each for each in ids if each is not None]


def received(client: pulsar.Client, topic: str, count: int, schema: Any = None) -> list[Any]:
    """The first `count` messages of a topic that has no more."""
    schema = schema or pulsar.schema.BytesSchema()
    reader = client.create_reader(topic, pulsar.MessageId.earliest, schema=schema)
    messages = [reader.read_next(20_000) for _ in range(count)]
    assert not reader.has_message_available()
    reader.close()
    return messages


def admin(options: dict[str, str], method: str, path: str, body: Any = None) -> Any:
    """Call the admin API; the path is the part after /admin/v2."""
    request = urllib.request.Request(
        f"{options['admin.url']}/admin/v2{path}",
        data=None if body is None else json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
        method=method,
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        content = answer.read()
    return json.loads(content) if content else None


def path_of(topic: str) -> str:
    return "/" + topic.replace("://", "/")
