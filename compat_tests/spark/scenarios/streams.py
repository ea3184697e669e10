"""Streaming jobs: checkpoints, restarts, starts, and streams into Pulsar."""

from __future__ import annotations

import time
from typing import Any

import pulsar

from compat_tests.spark.stage import Stage, offsets, run_to_end, scenario, wait_until


def _numbered(first: int, end: int) -> list[str]:
    return [f"m{number:03}" for number in range(first, end)]


@scenario("stream-read-and-restart")
def read_and_restart(stage: Stage) -> None:
    """Live, stopped, published to meanwhile, restarted, over the ends of ledgers: each row once."""
    for batched in (False, True):
        topic, name = stage.topic(f"-{batched}"), f"files-{batched}"
        stage.publish(topic, _numbered(0, 20), batched)
        stream = stage.read_stream(topic=topic, startingOffsets="earliest")
        done = 20
        for round_number in range(3):
            query = stage.to_files(stream, name)
            for count in (0, 10, 1, 15):
                stage.publish(topic, _numbered(done, done + count), batched)
                done += count
                query.processAllAvailable()
                stage.see("files so far", stage.files(name).count())
            stage.see("subscriptions while it runs", stage.subscriptions(topic))
            query.stop()
            stage.see(f"subscriptions after stop {round_number}", stage.subscriptions(topic))
            stage.publish(topic, _numbered(done, done + 7), batched)
            done += 7
        query = stage.to_files(stream, name)
        query.processAllAvailable()
        query.stop()
        rows = stage.see_rows(f"batched {batched}", stage.files(name))
        assert sorted(bytes(row["value"]).decode() for row in rows) == _numbered(0, done)


@scenario("stream-read-partitions")
def read_partitions(stage: Stage) -> None:
    """Three partitions with keys, a restart, and growth to five while it runs."""
    topic = stage.topic()
    stage.partition(topic, 3)

    def publish(first: int, end: int) -> None:
        producer = stage.client.create_producer(topic)
        for text in _numbered(first, end):
            producer.send(text.encode(), partition_key=f"key-{int(text[1:]) % 7}")
        producer.close()

    publish(0, 30)
    stream = stage.read_stream(topic=topic, startingOffsets="earliest")
    query = stage.to_files(stream)
    query.processAllAvailable()
    stage.see("first", stage.files().count())
    publish(30, 40)
    query.processAllAvailable()
    query.stop()
    for index in range(3):
        stage.see(f"left on partition {index}", stage.subscriptions(f"{topic}-partition-{index}"))
    publish(40, 50)
    query = stage.to_files(stream)
    query.processAllAvailable()
    stage.see("after the restart", stage.files().count())
    stage.partition(topic, 5, "POST")
    for index in (3, 4):
        stage.publish(f"{topic}-partition-{index}", [f"new{index}"])
    wait_until(lambda: stage.files().count() == 52, "the rows of new partitions are there")
    query.stop()
    stage.see_rows("rows", stage.files())


@scenario("stream-read-available-now")
def read_available_now(stage: Stage) -> None:
    topic = stage.topic()
    stage.publish(topic, _numbered(0, 12))
    stream = stage.read_stream(topic=topic, startingOffsets="earliest")
    for count in (12, 0, 5):
        run_to_end(stage.to_files(stream, available_now=True))
        stage.see("files", stage.files().count())
        stage.publish(topic, ["more"] * count)
    run_to_end(stage.to_files(stream, available_now=True))
    stage.see_rows("rows", stage.files())


@scenario("stream-read-starts")
def read_starts(stage: Stage) -> None:
    """Every form of a start: earliest, latest, an id, a time."""
    topic = stage.topic()
    ids = stage.publish(topic, _numbered(0, 10))
    moment = int(time.time() * 1000) + 20
    wait_until(lambda: time.time() * 1000 > moment + 20, "the next publish time is later")
    ids += stage.publish(topic, _numbered(10, 20))
    forms: dict[str, dict[str, Any]] = {
        "default": {},
        "earliest": {"startingOffsets": "earliest"},
        "latest": {"startingOffsets": "latest"},
        "the first": {"startingOffsets": offsets({topic: ids[0]})},
        "the middle": {"startingOffsets": offsets({topic: ids[10]})},
        "the last": {"startingOffsets": offsets({topic: ids[19]})},
        "a time": {"startingTime": moment},
    }
    queries = {}
    for what, options in forms.items():
        name = what.replace(" ", "-")
        queries[name] = stage.to_files(stage.read_stream(topic=topic, **options), name)
        queries[name].processAllAvailable()
    stage.publish(topic, ["end0", "end1"])
    for name, query in queries.items():
        query.processAllAvailable()
        query.stop()
        stage.see_rows(name, stage.files(name).select("value"))


@scenario("stream-read-checkpoint-decides")
def checkpoint_decides(stage: Stage) -> None:
    """From a checkpoint the initial offset is asked for again, and only on the server."""
    topic = stage.topic()
    ids = stage.publish(topic, _numbered(0, 10))
    for start in ("earliest", "latest", offsets({topic: ids[2]})):
        query = stage.to_files(stage.read_stream(topic=topic, startingOffsets=start))
        query.processAllAvailable()
        query.stop()
        stage.publish(topic, ["more"])
    stage.see_rows("rows", stage.files().select("value"))


@scenario("stream-read-predefined-subscription")
def predefined_subscription(stage: Stage) -> None:
    """It must be there; it is moved by commits and left at the stop."""
    topic = stage.topic()
    stage.publish(topic, _numbered(0, 10))
    stream = stage.read_stream(
        topic=topic, startingOffsets="earliest", predefinedSubscription="mine"
    )

    def run() -> None:
        query = stage.to_files(stream)
        try:
            query.processAllAvailable()
        finally:
            query.stop()

    stage.see_failure("without it", run)
    stage.client.subscribe(topic, "mine", initial_position=pulsar.InitialPosition.Earliest).close()
    run()
    stage.see("subscriptions", stage.subscriptions(topic))
    stage.publish(topic, _numbered(10, 15))
    run()
    stage.see_rows("rows", stage.files().select("value"))
    consumer = stage.client.subscribe(topic, "mine")
    stage.see("the next of it", consumer.receive(10_000).data().decode())


@scenario("stream-read-subscription-prefix")
def subscription_prefix(stage: Stage) -> None:
    topic = stage.topic()
    stage.publish(topic, ["a"])
    stream = stage.read_stream(
        topic=topic, startingOffsets="earliest", subscriptionPrefix="mine/of us"
    )
    query = stage.to_files(stream)
    query.processAllAvailable()
    stage.see("subscriptions", stage.subscriptions(topic))
    query.stop()
    stage.see("after the stop", stage.subscriptions(topic))


@scenario("stream-topic-to-topic")
def topic_to_topic(stage: Stage) -> None:
    """Read, change, write, with a restart; keys and order of a partition are kept."""
    source, sink = stage.topic("-source"), stage.topic("-sink")
    stage.publish(source, _numbered(0, 30), partition_key="key")
    stream = stage.read_stream(topic=source, startingOffsets="earliest")
    changed = stream.selectExpr(
        "upper(cast(value AS string)) AS value",
        "__key",
        f"'{sink}' AS __topic",
        "unix_millis(__publishTime) * 0 + 7 AS __eventTime",
    )
    for first in (30, 40):
        query = stage.to_topic(changed, "copy", pulsar__producer__blockIfQueueFull="true")
        query.processAllAvailable()
        stage.publish(source, _numbered(first, first + 10), partition_key="key")
        query.processAllAvailable()
        query.stop()
    reader = stage.client.create_reader(sink, pulsar.MessageId.earliest)
    got = []
    while reader.has_message_available():
        message = reader.read_next(10_000)
        got.append([message.data().decode(), message.partition_key(), message.event_timestamp()])
    stage.see("written", got)


@scenario("stream-windows-to-topic")
def windows_to_topic(stage: Stage) -> None:
    """Event times into windows with a watermark, append mode, as AVRO records."""
    from pyspark.sql.functions import window

    source, sink = stage.topic("-source"), stage.topic("-sink")
    start_ms = 1_700_000_000_000

    def publish(seconds: list[int]) -> None:
        for second in seconds:
            stage.publish(source, [str(second)], event_timestamp=start_ms + second * 1000)

    publish([0, 1, 5, 12, 13, 31])
    stream = stage.read_stream(topic=source, startingOffsets="earliest")
    timely = stream.withWatermark("__eventTime", "5 seconds")
    grouped = timely.groupBy(window("__eventTime", "10 seconds")).count()
    rows = grouped.selectExpr("unix_millis(window.start) AS start", "count", f"'{sink}' AS __topic")
    query = stage.to_topic(rows, "windows")
    query.processAllAvailable()
    publish([2, 45])
    query.processAllAvailable()
    query.stop()
    stage.see_rows("windows", stage.read(topic=sink, **stage.http_lookup))


@scenario("stream-write-refused")
def write_refused(stage: Stage) -> None:
    source, sink = stage.topic("-source"), stage.topic("-sink")
    stage.publish(source, ["1"])
    numbers = stage.spark.sql(f"SELECT 1L AS value, '{sink}' AS __topic")
    stage.write(numbers)
    stream = stage.read_stream(topic=source, startingOffsets="earliest")

    def run() -> None:
        texts = stream.selectExpr("cast(value AS string) AS value", f"'{sink}' AS __topic")
        query = stage.to_topic(texts, "refused")
        try:
            query.processAllAvailable()
        finally:
            query.stop()

    stage.see_failure("another schema", run)
    stage.see_rows("left", stage.read(topic=sink))
