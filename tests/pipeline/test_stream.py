"""Streams: stopped, restarted, limited; every message once, and retention held until the commit."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.pipeline.topics import admin, path_of, publish

if TYPE_CHECKING:
    from pathlib import Path

    import pulsar
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
