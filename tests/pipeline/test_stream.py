"""Streams: stopped, restarted, limited; every message once, and retention held until the commit."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pulsar
import pytest
from pulsar.schema import AvroSchema, Integer, Record, String

from pipeline.data_loss import DataLost
from pipeline.options import source_options
from pipeline.planner import StreamPlanner
from tests.pipeline.topics import admin, path_of, publish

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

Options = dict[str, str]
TIMEOUT_SECONDS = 120


def source(spark: SparkSession, options: Options, **more: str) -> DataFrame:
    given = {"startingOffsets": "earliest", **options, **more}
    return spark.readStream.format("vela").options(**given).load()


def run(frame: DataFrame, directory: Path) -> StreamingQuery:
    """Everything there is now, into Parquet."""
    query = (
        frame.writeStream.format("parquet")
        .option("checkpointLocation", str(directory / "checkpoint"))
        .option("path", str(directory / "out"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(TIMEOUT_SECONDS)
    return query


def archived(spark: SparkSession, directory: Path) -> list[bytes]:
    rows = spark.read.parquet(str(directory / "out")).select("__messageId").collect()
    return sorted(bytes(row[0]) for row in rows)


def subscriptions(options: Options, topic: str) -> list[str]:
    names = admin(options, "GET", path_of(topic) + "/subscriptions")
    return [name for name in names if not name.startswith("reader-")]


def offsets_of(directory: Path) -> list[Any]:
    files = [
        each for each in (directory / "checkpoint" / "offsets").iterdir() if each.name.isdigit()
    ]
    files.sort(key=lambda each: int(each.name))
    return [json.loads(each.read_text().splitlines()[-1]) for each in files]


def test_a_restarted_stream_reads_each_message_once(
    spark: SparkSession, client: pulsar.Client, options: Options, topic: str, tmp_path: Path
) -> None:
    ids = []
    for batched in (False, True, False):
        ids += publish(client, topic, [b"x"] * 60, batched=batched)
        run(source(spark, options), tmp_path)

    assert archived(spark, tmp_path) == sorted(ids)
    (anchor,) = subscriptions(options, topic)
    assert anchor.startswith("spark-vela-")
    stats = admin(options, "GET", path_of(topic) + "/stats")
    # Spark commits a micro-batch when it plans the next one: the last 60 are still held.
    assert stats["subscriptions"][anchor]["msgBacklog"] == 60
    ends = [offset["t"][topic] for offset in offsets_of(tmp_path)]
    assert ends == sorted(ends)


def test_a_limited_stream_takes_several_micro_batches(
    spark: SparkSession, client: pulsar.Client, options: Options, topic: str, tmp_path: Path
) -> None:
    ids = publish(client, topic, [b"x"] * 100)

    query = run(source(spark, options, maxRowsPerTrigger="30"), tmp_path)

    rows = [progress["numInputRows"] for progress in query.recentProgress]
    assert max(rows) <= 30
    assert sum(rows) == 100
    assert archived(spark, tmp_path) == sorted(ids)


def test_a_stream_from_latest_begins_where_it_was_started(
    spark: SparkSession, client: pulsar.Client, options: Options, topic: str, tmp_path: Path
) -> None:
    publish(client, topic, [b"before"] * 5)
    run(source(spark, options, startingOffsets="latest"), tmp_path)
    ids = publish(client, topic, [b"after"] * 5)
    run(source(spark, options, startingOffsets="latest"), tmp_path)

    assert archived(spark, tmp_path) == sorted(ids)


def test_a_predefined_subscription_is_the_anchor(
    spark: SparkSession, client: pulsar.Client, options: Options, topic: str, tmp_path: Path
) -> None:
    publish(client, topic, [b"x"] * 5)

    run(source(spark, options, predefinedSubscription="mine"), tmp_path)

    assert subscriptions(options, topic) == ["mine"]


def test_new_topics_of_a_pattern_are_read_from_their_beginning(
    spark: SparkSession, client: pulsar.Client, options: Options, topic: str, tmp_path: Path
) -> None:
    pattern = {**options, "topicsPattern": f"{topic}-.*"}
    del pattern["topic"]
    ids = publish(client, f"{topic}-one", [b"x"] * 5)
    run(source(spark, pattern), tmp_path)
    ids += publish(client, f"{topic}-two", [b"y"] * 5)
    run(source(spark, pattern), tmp_path)

    assert archived(spark, tmp_path) == sorted(ids)
    assert subscriptions(options, f"{topic}-two") == subscriptions(options, f"{topic}-one")


def test_a_topic_of_a_pattern_that_is_deleted_counts_as_data_loss(
    spark: SparkSession, client: pulsar.Client, options: Options, topic: str, tmp_path: Path
) -> None:
    pattern = {**options, "topicsPattern": f"{topic}-.*"}
    del pattern["topic"]
    ids = publish(client, f"{topic}-one", [b"x"] * 5)
    ids += publish(client, f"{topic}-two", [b"x"] * 5)
    run(source(spark, pattern), tmp_path)
    admin(options, "DELETE", path_of(f"{topic}-one") + "?force=true")
    ids += publish(client, f"{topic}-two", [b"y"] * 5)

    with pytest.raises(Exception, match="-one was deleted"):
        run(source(spark, pattern), tmp_path)
    run(source(spark, pattern, failOnDataLoss="false"), tmp_path)
    run(source(spark, pattern), tmp_path)

    assert archived(spark, tmp_path) == sorted(ids)


@pytest.fixture
def areas(options: Options) -> Options:
    """Every area of a city; each may publish what it likes."""
    admin(options, "PUT", "/tenants/city", {"adminRoles": [], "allowedClusters": ["standalone"]})
    admin(options, "PUT", "/namespaces/city/areas")
    rest = {name: value for name, value in options.items() if name != "topic"}
    pattern = "persistent://city/areas/.*"
    return {**rest, "topicsPattern": pattern, "allowDifferentTopicSchemas": "true"}


def test_a_city_is_read_whole_while_areas_come_and_go(
    spark: SparkSession, client: pulsar.Client, areas: Options, tmp_path: Path
) -> None:
    prefix = "persistent://city/areas/"
    readings = [Reading(name=f"n{number}", level=number) for number in range(30)]
    ids = publish(client, f"{prefix}north", [b"bytes %d" % number for number in range(250)])
    ids += publish(client, f"{prefix}south", readings, schema=AvroSchema(Reading), batched=True)

    def started(**more: str) -> StreamingQuery:
        writer = source(spark, areas, **more).writeStream.format("parquet")
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer = writer.option("path", str(tmp_path / "out"))
        return writer.trigger(processingTime="200 milliseconds").start()

    query = started()
    try:
        query.processAllAvailable()
        ids += publish(client, f"{prefix}west", [b"made later %d" % n for n in range(20)])
        ids += publish(client, f"{prefix}north", [b"more"] * 5)
        query.processAllAvailable()
        assert archived(spark, tmp_path) == sorted(ids)
        admin(areas, "DELETE", path_of(f"{prefix}north") + "?force=true")
        with pytest.raises(
            Exception, match=r"city/areas/north was deleted, or is not.* Some data may"
        ):
            query.awaitTermination(TIMEOUT_SECONDS)
    finally:
        query.stop()
    query = started(failOnDataLoss="false")
    try:
        ids += publish(client, f"{prefix}south", readings, schema=AvroSchema(Reading))
        query.processAllAvailable()
        admin(areas, "DELETE", path_of(f"{prefix}west") + "?force=true")
        ids += publish(client, f"{prefix}south", readings, schema=AvroSchema(Reading))
        query.processAllAvailable()
    finally:
        query.stop()

    assert archived(spark, tmp_path) == sorted(ids)


class Reading(Record):
    name = String()
    level = Integer()


def _changed(**fields: Any) -> Any:
    return type("Reading", (Record,), fields)


def test_a_running_stream_keeps_its_columns_when_the_schema_grows(
    spark: SparkSession, client: pulsar.Client, options: Options, topic: str, tmp_path: Path
) -> None:
    publish(client, topic, [Reading(name="old", level=1)], schema=AvroSchema(Reading))
    query = (
        source(spark, options)
        .writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .option("path", str(tmp_path / "out"))
        .trigger(processingTime="1 second")
        .start()
    )
    try:
        query.processAllAvailable()
        wider = _changed(name=String(), level=Integer(), unit=String(required_default=True))
        publish(client, topic, [wider(name="new", level=2, unit="m")], schema=AvroSchema(wider))
        query.processAllAvailable()
    finally:
        query.stop()
    other = _changed(name=String(), level=String())
    with pytest.raises(pulsar.IncompatibleSchema):
        client.create_producer(topic, schema=AvroSchema(other))

    written = spark.read.parquet(str(tmp_path / "out"))
    assert "unit" not in written.columns
    assert sorted((row["name"], row["level"]) for row in written.collect()) == [
        ("new", 2),
        ("old", 1),
    ]
    run(source(spark, options), tmp_path / "again")
    again = spark.read.parquet(str(tmp_path / "again" / "out")).collect()
    assert sorted((row["name"], row["level"], row["unit"]) for row in again) == [
        ("new", 2, "m"),
        ("old", 1, None),
    ]


@pytest.fixture
def trimmed(options: Options, topic: str) -> Options:
    """A topic whose namespace keeps nothing that no subscription wants."""
    namespace = f"public/{topic.rpartition('/')[2]}"
    admin(options, "PUT", f"/namespaces/{namespace}")
    none = {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}
    admin(options, "POST", f"/namespaces/{namespace}/retention", none)
    # The cursor of deduplication would keep messages, too.
    admin(options, "POST", f"/namespaces/{namespace}/deduplication", False)
    held = {**options, "topic": f"persistent://{namespace}/t"}
    admin(options, "PUT", path_of(held["topic"]))
    return held


def hold(options: Options, name: str) -> None:
    """A subscription that wants everything there is and comes."""
    path = f"{path_of(options['topic'])}/subscription/{name}"
    admin(options, "PUT", path, {"ledgerId": -1, "entryId": -1, "partitionIndex": -1})


def let_go(options: Options, name: str) -> None:
    """Remove it; what only it wanted may be deleted now."""
    admin(options, "DELETE", f"{path_of(options['topic'])}/subscription/{name}")


def ledgers(options: Options) -> list[int]:
    stats = admin(options, "GET", path_of(options["topic"]) + "/internalStats")
    return [row["ledgerId"] for row in stats["ledgers"]]


def wait_until_deleted(options: Options, ledger: int) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while ledger in ledgers(options):
        assert time.monotonic() < deadline, f"ledger {ledger} was not deleted"
        time.sleep(0.05)


def test_retention_waits_for_a_stream_and_takes_what_it_has_committed(
    spark: SparkSession, client: pulsar.Client, trimmed: Options, tmp_path: Path
) -> None:
    hold(trimmed, "first-reader")
    ids = publish(client, trimmed["topic"], [b"x"] * 250)
    first = ledgers(trimmed)[0]
    run(source(spark, trimmed), tmp_path)
    let_go(trimmed, "first-reader")
    ids += publish(client, trimmed["topic"], [b"y"] * 250)
    assert ledgers(trimmed)[0] == first

    run(source(spark, trimmed), tmp_path)
    wait_until_deleted(trimmed, first)
    ids += publish(client, trimmed["topic"], [b"z"] * 10)
    run(source(spark, trimmed), tmp_path)

    assert archived(spark, tmp_path) == sorted(ids)


def test_a_topic_deleted_and_made_again_while_a_stream_runs_is_data_loss_until_it_is_allowed(
    client: pulsar.Client, options: Options, topic: str
) -> None:
    def planner(loss: str = "true") -> StreamPlanner:
        given = {**options, "startingOffsets": "earliest", "failOnDataLoss": loss}
        return StreamPlanner(source_options(given, streaming=True))

    publish(client, topic, [b"read"] * 10)
    running = planner()
    start = running.initial()
    end = running.latest(start, limited=False)
    publish(client, topic, [b"lost"] * 5)
    admin(options, "DELETE", f"{path_of(topic)}?force=true")
    publish(client, topic, [b"new"] * 5)

    with pytest.raises(DataLost, match="is no longer held"):
        running.commit(end)
    for _ in range(2):
        with pytest.raises(DataLost, match="is no longer held"):
            planner().latest(end, limited=False)
    allowed = planner("false")
    after = allowed.latest(end, limited=False)
    assert sum(part.entries for task in allowed.tasks(end, after) for part in task) == 5
    allowed.commit(after)


def test_a_stream_without_anchor_tells_of_what_retention_took_and_goes_on_behind_it(
    spark: SparkSession, client: pulsar.Client, trimmed: Options, tmp_path: Path
) -> None:
    free = {"retentionAnchor": "none"}
    hold(trimmed, "first-reader")
    ids = publish(client, trimmed["topic"], [b"x"] * 250)
    run(source(spark, trimmed, **free), tmp_path)
    last = ledgers(trimmed)[-1]
    publish(client, trimmed["topic"], [b"y"] * 250)
    let_go(trimmed, "first-reader")
    wait_until_deleted(trimmed, last)
    hold(trimmed, "next-reader")
    publish(client, trimmed["topic"], [b"z"] * 20)
    reader = client.create_reader(trimmed["topic"], pulsar.MessageId.earliest)
    while reader.has_message_available():
        ids.append(reader.read_next(20_000).message_id().serialize())
    reader.close()
    first_survivor = ids[250]
    assert 270 <= len(ids) < 520

    with pytest.raises(Exception, match=r"is no longer held\. Some data may have been lost"):
        run(source(spark, trimmed, **free), tmp_path)
    run(source(spark, trimmed, **free, failOnDataLoss="false"), tmp_path)

    assert first_survivor in archived(spark, tmp_path)
    assert archived(spark, tmp_path) == sorted(ids)
