"""Topics: partitioned, several at once, by pattern, non-persistent."""

from __future__ import annotations

import re
import time
from collections import Counter
from typing import Any

import pulsar

from compat_tests.clients.admin_requests import AdminRequests, decoded, topic_path
from compat_tests.clients.python.scenario import (
    Stage,
    receive_all_of,
    receive_many,
    receive_together,
    receive_until_silence,
    scenario,
    send_all,
    texts,
)

RECONNECT_MS_MAX = 60_000
PERMITS_SECONDS_MAX = 30.0


@scenario("partitioned")
def partitioned(stage: Stage) -> None:
    topic = stage.topic()
    stage.partition(topic, 4)
    stage.see(
        "partitions", [name.rpartition("/")[2] for name in stage.client.get_topic_partitions(topic)]
    )
    consumer = stage.client.subscribe(topic, "s")
    by_key = stage.client.create_producer(topic)
    for number in range(60):
        by_key.send(str(number).encode(), partition_key=f"key-{number % 12}")
    received = receive_many(consumer, 60)
    placed = {m.partition_key(): m.topic_name().rpartition("-")[2] for m in received}
    stage.see("where each key went", dict(sorted(placed.items())))
    for key in sorted(placed):
        stage.see(f"order of {key}", texts(m for m in received if m.partition_key() == key))
    round_robin = stage.client.create_producer(topic)
    for number in range(40):
        round_robin.send(str(number).encode())
    spread = Counter(m.topic_name().rpartition("-")[2] for m in receive_many(consumer, 40))
    stage.see("round robin", dict(sorted(spread.items())))
    stage.see_error(
        "a producer on a partition that is not there",
        lambda: stage.client.create_producer(f"{topic}-partition-7"),
    )
    one = stage.client.subscribe(f"{topic}-partition-2", "one")
    by_key.send(b"again", partition_key=next(k for k, p in placed.items() if p == "2"))
    stage.see("one partition", texts(receive_many(one, 1)))


@scenario("several-topics")
def several_topics(stage: Stage) -> None:
    topics = [stage.topic(f"-{number}") for number in range(3)]
    consumer = stage.client.subscribe(topics, "s")
    for number, topic in enumerate(topics):
        producer = stage.client.create_producer(topic)
        send_all(producer, [f"{number} {turn}" for turn in range(5)])
    got = receive_many(consumer, 15)
    for number, topic in enumerate(topics):
        stage.see(topic, texts(m for m in got if m.topic_name() == topic))
        stage.see("in order", [m.data().decode()[0] for m in got].count(str(number)))


@scenario("topics-by-pattern")
def topics_by_pattern(stage: Stage) -> None:
    names = [stage.topic(f"-{kind}-{number}") for kind in ("yes", "no") for number in range(2)]
    producers = {name: stage.client.create_producer(name) for name in names}
    pattern = re.compile(stage.topic("-yes-.*"))
    consumer = stage.client.subscribe(
        pattern,
        "s",
        initial_position=pulsar.InitialPosition.Earliest,
    )
    for name, producer in producers.items():
        send_all(producer, [f"to {name}"])
    stage.see("first", sorted(texts(receive_many(consumer, 2))))
    stage.see("more", texts(receive_until_silence(consumer)))


@scenario("non-persistent")
def non_persistent(stage: Stage) -> None:
    topic = stage.topic(domain="non-persistent")
    producer = stage.client.create_producer(topic)
    producer.send(b"nobody is there")
    consumer = stage.client.subscribe(topic, "s")
    shared = [
        stage.client.subscribe(topic, "shared", consumer_type=pulsar.ConsumerType.Shared)
        for _ in range(2)
    ]
    _await_permits(stage, topic, 3)
    for number in range(10):
        producer.send(str(number).encode(), partition_key="k")
    got = receive_many(consumer, 10)
    for message in got:
        stage.see_message("message", message)
    taken = [texts(part) for part in receive_together(shared, 10)]
    stage.see("shared", sorted(text for part in taken for text in part))
    assert all(taken)
    consumer.close()
    producer.send(b"nobody is there again")
    back = stage.client.subscribe(topic, "s")
    stage.see("kept for it", texts(receive_until_silence(back)))
    stage.see_error("exclusive beside it", lambda: stage.client.subscribe(topic, "s"))


def _await_permits(stage: Stage, topic: str, consumers: int) -> None:
    """Wait until that many consumers of the topic have permits. A client answers a subscribe before
    its first permits reach the broker, and a non-persistent topic drops what comes earlier."""
    path = f"/admin/v2/{topic.replace('://', '/')}/stats"
    deadline = time.monotonic() + PERMITS_SECONDS_MAX
    while _consumers_with_permits(stage.server.http("GET", path)[1]) < consumers:
        assert time.monotonic() < deadline, "the consumers got no permits"
        time.sleep(0.05)


def _consumers_with_permits(stats: dict[str, Any]) -> int:
    return sum(
        consumer["availablePermits"] > 0
        for subscription in stats["subscriptions"].values()
        for consumer in subscription["consumers"]
    )


@scenario("topic-deleted-under-clients")
def topic_deleted(stage: Stage) -> None:
    producer = stage.client.create_producer(stage.topic())
    send_all(producer, ["one"])
    producer.close()
    path = "/admin/v2/" + stage.topic().replace("://", "/")
    stage.see("delete", stage.server.http("DELETE", path)[0])
    stage.see("delete again", stage.server.http("DELETE", path)[0])
    consumer = stage.client.subscribe(
        stage.topic(), "s", initial_position=pulsar.InitialPosition.Earliest
    )
    stage.see("left of it", texts(receive_until_silence(consumer)))


@scenario("topic-unloaded-under-clients")
def topic_unloaded(stage: Stage) -> None:
    consumer = stage.client.subscribe(stage.topic(), "s")
    producer = stage.client.create_producer(stage.topic())
    send_all(producer, [str(number) for number in range(10)])
    got = receive_many(consumer, 10, acknowledge=False)
    consumer.acknowledge_cumulative(got[4])
    path = "/admin/v2/" + stage.topic().replace("://", "/") + "/unload"
    stage.see("unload", stage.server.http("PUT", path)[0])
    send_all(producer, ["after"])
    unacked = {"5", "6", "7", "8", "9", "after"}
    again = set(texts(receive_all_of(consumer, unacked, RECONNECT_MS_MAX, 1000)))
    stage.see("came after it", sorted(again & unacked))


@scenario("messages-of-nobody-outlive-an-unload")
def kept_over_unload(stage: Stage) -> None:
    producer = stage.client.create_producer(stage.topic())
    send_all(producer, [str(number) for number in range(5)])
    path = "/admin/v2/" + stage.topic().replace("://", "/")
    stage.see("unload", stage.server.http("PUT", path + "/unload")[0])
    send_all(producer, ["after"])
    reader = stage.client.create_reader(stage.topic(), pulsar.MessageId.earliest)
    stage.see("read", [reader.read_next(RECONNECT_MS_MAX).data().decode() for _ in range(6)])


@scenario("trim-over-http")
def trim(stage: Stage) -> None:
    admin = AdminRequests(stage.server.web_url)
    for kind, parts in (("plain", 0), ("parted", 2)):
        topic = stage.topic(f"-{kind}")
        if parts:
            stage.partition(topic, parts)
        names = [f"{topic}-partition-{index}" for index in range(parts)] or [topic]
        consumer = stage.client.subscribe(topic, "slow")
        producer = stage.client.create_producer(topic)
        for turn in range(3):  # three ledgers of each
            for number in range(4):
                producer.send(f"{turn} {number}".encode())
            stage.see("unload", admin("PUT", f"{topic_path(topic)}/unload"))
        stage.see("trim", admin.raw("POST", f"{topic_path(topic)}/trim"))
        stage.see("kept", [_entries(admin, name) for name in names])
        # An unload sends again what the client holds: of several partitions it hands both out.
        wanted = {f"{turn} {number}" for turn in range(3) for number in range(4)}
        got = receive_all_of(consumer, wanted, RECONNECT_MS_MAX, 1000)
        stage.see("all of them", sorted(set(texts(got))))
        consumer.close()
        producer.close()
        path = f"{topic_path(topic)}/subscription/slow?force=true"
        stage.see("unsubscribe", admin("DELETE", path))
        stage.see("trim again", admin.raw("POST", f"{topic_path(topic)}/trim"))
        deadline = time.monotonic() + 30.0
        while any(_entries(admin, name) for name in names) and time.monotonic() < deadline:
            time.sleep(0.1)
        stage.see("left", [_entries(admin, name) for name in names])
    one = topic_path(stage.topic("-parted-partition-1"))
    stage.see("one partition", admin.raw("POST", f"{one}/trim"))
    for what, topic in (
        ("no such topic", stage.topic("-none")),
        ("no such partition", stage.topic("-parted-partition-7")),
        ("a partition of nothing", stage.topic("-none-partition-0")),
        ("no such namespace", "persistent://public/nowhere/t"),
        ("a partition in no such namespace", "persistent://public/nowhere/t-partition-0"),
        ("not stored", stage.topic("-unstored", "non-persistent")),
    ):
        stage.see(what, admin("POST", f"{topic_path(topic)}/trim"))
    admin("POST", f"{topic_path(stage.topic('-plain'))}/terminate")
    stage.see("terminated", admin.raw("POST", f"{topic_path(stage.topic('-plain'))}/trim"))


def _entries(admin: AdminRequests, topic: str) -> Any:
    return decoded(admin.raw("GET", f"{topic_path(topic)}/internalStats")[1])["numberOfEntries"]
