"""Writes: what Spark sends is what the stock client receives, and dedup keeps repeats out."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pulsar
import pyarrow
import pytest
from pulsar.schema import AvroSchema, Integer, Record

from pipeline.options import sink_options
from pipeline.sink import TaskIdentity, write_batches
from tests.pipeline.topics import admin, path_of, publish

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

Options = dict[str, str]


@pytest.fixture
def target(options: Options) -> Options:
    return {name: options[name] for name in ("service.url", "admin.url", "topic")}


def write(frame: DataFrame, target: Options) -> None:
    frame.write.format("vela").options(**target).mode("append").save()


def received(client: pulsar.Client, topic: str, count: int) -> list[pulsar.Message]:
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    messages = [reader.read_next(20_000) for _ in range(count)]
    assert not reader.has_message_available()
    reader.close()
    return messages


def vehicles(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(count, numPartitions=1).selectExpr(
        "concat('v', id % 3) AS vehicle",
        "id AS number",
        "named_struct('lat', 1.5D, 'lon', CAST(NULL AS DOUBLE)) AS place",
        "CAST(concat('v', id % 3) AS BINARY) AS __key",
        "1700000000000 + id AS __eventTime",
        "map('n', CAST(id AS STRING)) AS __messageProperties",
    )


def test_records_are_written_with_one_schema_and_read_back(
    spark: SparkSession, client: pulsar.Client, target: Options, topic: str
) -> None:
    for _ in range(2):
        write(vehicles(spark, 20), target)

    messages = received(client, topic, 40)
    rows = spark.read.format("vela").options(**target).load().collect()
    name = topic.rpartition("/")[2]
    schema = admin(target, "GET", f"/schemas/public/default/{name}/schema")

    assert (schema["type"], schema["version"]) == ("AVRO", 0)
    assert '"topLevelRecord"' in schema["data"]
    assert [each.partition_key() for each in messages[:20]] == [f"v{n % 3}" for n in range(20)]
    assert [each.event_timestamp() for each in messages[:3]] == [
        1_700_000_000_000,
        1_700_000_000_001,
        1_700_000_000_002,
    ]
    assert [each.properties() for each in messages[:2]] == [{"n": "0"}, {"n": "1"}]
    assert [(row["vehicle"], row["number"], row["place"]["lon"]) for row in rows[:2]] == [
        ("v0", 0, None),
        ("v1", 1, None),
    ]


def test_each_row_may_name_its_topic(
    spark: SparkSession, client: pulsar.Client, target: Options, topic: str
) -> None:
    del target["topic"]
    frame = spark.range(10, numPartitions=2).selectExpr(
        "CAST(id AS STRING) AS value", f"concat('{topic}-', id % 2) AS __topic"
    )

    write(frame, target)

    for index in range(2):
        found = {each.data() for each in received(client, f"{topic}-{index}", 5)}
        assert found == {b"%d" % number for number in range(index, 10, 2)}


def test_times_are_milliseconds(
    spark: SparkSession, client: pulsar.Client, target: Options, topic: str
) -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
    frame = spark.createDataFrame([("a", moment)], "value STRING, __eventTime TIMESTAMP")

    write(frame, target)

    assert received(client, topic, 1)[0].event_timestamp() == round(moment.timestamp() * 1000)


class Other(Record):
    vehicle = Integer(required=True)


def test_columns_that_do_not_fit_are_refused_before_anything_is_sent(
    spark: SparkSession, client: pulsar.Client, target: Options, topic: str
) -> None:
    publish(client, topic, [Other(vehicle=1)], schema=AvroSchema(Other))

    with pytest.raises(Exception, match="no field number"):
        write(vehicles(spark, 5), target)
    with pytest.raises(Exception, match="a row does not fit the schema AVRO"):
        write(spark.sql("SELECT 'text' AS vehicle, 1 AS __eventTime").drop("__eventTime"), target)
    with pytest.raises(Exception, match="did you mean 'topic'"):
        write(vehicles(spark, 5), {**target, "topicc": "a"})

    received(client, topic, 1)


def test_a_repeated_micro_batch_is_dropped_with_dedup_and_doubled_without(
    client: pulsar.Client, target: Options, topic: str
) -> None:
    batch = pyarrow.record_batch({"value": [f"{number}" for number in range(20)]})
    for mode, count in (("dedup", 40), ("at-least-once", 60)):
        given = {**target, "topic": f"{topic}-{mode}", "sinkMode": mode, "producerName": "q"}
        for micro_batch in (0, 0, 1):
            identity = TaskIdentity("q", 0, micro_batch)
            # The boundaries of Arrow batches may differ at the repetition.
            parts = [batch.slice(0, 7), batch.slice(7)] if micro_batch else [batch]
            written = write_batches(iter(parts), sink_options(given), identity)
            assert sum(written.rows.values()) == 20
        received(client, f"{topic}-{mode}", count)


def test_a_stream_is_copied_from_topic_to_topic(
    spark: SparkSession, client: pulsar.Client, target: Options, topic: str, tmp_path: Path
) -> None:
    publish(client, topic, [b"%d" % number for number in range(50)], keys=["k"] * 50)
    source = spark.readStream.format("vela").options(**target, startingOffsets="earliest").load()
    copy = {**target, "topic": f"{topic}-copy", "sinkMode": "dedup"}

    query = (
        source.select("value", "__key", "__messageProperties")
        .writeStream.format("vela")
        .options(**copy)
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )

    assert query.awaitTermination(120)
    assert [each.data() for each in received(client, f"{topic}-copy", 50)] == [
        b"%d" % number for number in range(50)
    ]
    assert admin(target, "GET", path_of(f"{topic}-copy") + "/stats")["msgInCounter"] == 50


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["dedup", "at-least-once"])
def test_a_micro_batch_that_died_before_its_commit_is_written_again(
    spark: SparkSession,
    client: pulsar.Client,
    options: Options,
    target: Options,
    tmp_path: Path,
    mode: str,
) -> None:
    values = [b"%d" % number for number in range(60)]
    publish(client, target["topic"], values)
    copy = {**target, "topic": f"{target['topic']}-copy", "sinkMode": mode}

    def copied() -> None:
        source = spark.readStream.format("vela").options(**options, startingOffsets="earliest")
        writer = source.option("maxRowsPerTrigger", "20").load().select("value").writeStream
        writer = writer.format("vela").options(**copy).trigger(availableNow=True)
        assert writer.option("checkpointLocation", str(tmp_path)).start().awaitTermination(120)

    copied()
    commits = tmp_path / "commits"
    assert sorted(each.name for each in commits.iterdir() if each.name.isdigit()) == ["0", "1", "2"]
    for each in commits.glob("*2*"):
        each.unlink()
    copied()

    repeated = [] if mode == "dedup" else values[40:]
    count = 60 + len(repeated)
    found = [each.data() for each in received(client, copy["topic"], count)]
    assert found == values + repeated
    assert (commits / "2").exists()
