"""Messages that their schema cannot decode: they end a query, or are passed over as it says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pulsar.schema import AvroSchema, Double, JsonSchema, Record, String

from pipeline.jobs import archive
from tests.pipeline.job_runs import run
from tests.pipeline.topics import publish, received

if TYPE_CHECKING:
    from pathlib import Path

    import pulsar
    from pyspark.sql import DataFrame, SparkSession

Options = dict[str, str]
BROKEN = b"\xff\xff\xff\xff"


class Reading(Record):
    road = String(required=True)
    speed = Double(required=True)


def readings(client: pulsar.Client, topic: str, schema: pulsar.schema.Schema) -> None:
    """Three of them, and something else between."""
    good = [schema.encode(Reading(road=f"r{n}", speed=float(n))) for n in range(3)]
    values = [good[0], BROKEN, *good[1:]]
    schema.encode = bytes  # as a faulty producer does
    publish(client, topic, values, schema=schema, keys=["a", "b", "c", "d"], batched=True)


def read(spark: SparkSession, options: Options, **more: str) -> DataFrame:
    return spark.read.format("vela").options(**options, **more).load()


@pytest.mark.parametrize("kind", [AvroSchema, JsonSchema])
def test_one_message_need_not_end_a_query(
    spark: SparkSession, client: pulsar.Client, options: Options, topic: str, kind: type
) -> None:
    readings(client, topic, kind(Reading))

    permissive = read(spark, options, mode="PERMISSIVE")
    rows = [(row.road, row["_corrupt_record"]) for row in permissive.collect()]
    assert rows == [("r0", None), (None, BROKEN), ("r1", None), ("r2", None)]
    assert permissive.where("_corrupt_record IS NOT NULL").select("__key").first()[0] == b"b"
    dropped = read(spark, options, mode="DROPMALFORMED")
    assert [row.road for row in dropped.collect()] == ["r0", "r1", "r2"]
    if kind is AvroSchema:
        with pytest.raises(Exception, match="mode=PERMISSIVE or DROPMALFORMED passes over"):
            read(spark, options).collect()


def test_dead_letters_are_the_messages_with_where_they_came_from(
    spark: SparkSession, client: pulsar.Client, options: Options, topic: str
) -> None:
    readings(client, topic, AvroSchema(Reading))
    dead = f"{topic}-dead"

    rows = read(spark, options, mode="DROPMALFORMED", deadLetterTopic=dead)

    assert [row.road for row in rows.select("road").collect()] == ["r0", "r1", "r2"]
    (letter,) = received(client, dead, 1)
    assert (letter.data(), letter.partition_key()) == (BROKEN, "b")
    properties = letter.properties()
    assert (properties["n"], properties["REAL_TOPIC"]) == ("1", topic)
    assert properties["ORIGIN_MESSAGE_ID"].endswith(":0:1")
    assert "does not fit the schema" in properties["VELA_UNDECODABLE_REASON"]


def test_a_stream_goes_on_past_a_message_that_cannot_be_decoded(
    spark: SparkSession, client: pulsar.Client, options: Options, topic: str, tmp_path: Path
) -> None:
    readings(client, topic, AvroSchema(Reading))
    given = options | {"mode": "PERMISSIVE", "startingOffsets": "earliest"}
    stream = spark.readStream.format("vela").options(**given).load()
    query = stream.writeStream.trigger(availableNow=True).format("parquet")
    query = query.option("checkpointLocation", f"{tmp_path}/checkpoint")

    query.start(f"{tmp_path}/out").awaitTermination()

    rows = spark.read.parquet(f"{tmp_path}/out").orderBy("__key").collect()
    assert [row["_corrupt_record"] for row in rows] == [None, BROKEN, None, None]


def test_an_archive_can_pass_over_messages_that_cannot_be_decoded(
    spark: SparkSession,
    client: pulsar.Client,
    topic: str,
    server_arguments: list[str],
    tmp_path: Path,
) -> None:
    readings(client, topic, AvroSchema(Reading))
    arguments = [*server_arguments, "--topic", topic, "--output", f"{tmp_path}/archive"]
    arguments += ["--mode", "DROPMALFORMED", "--dead-letter-topic", f"{topic}-dead"]

    run(archive, tmp_path, *arguments)

    assert spark.read.parquet(f"{tmp_path}/archive").count() == 3
    assert received(client, f"{topic}-dead", 1)[0].data() == BROKEN


def test_a_column_that_the_topic_does_not_have_is_refused_before_a_task_runs(
    spark: SparkSession, client: pulsar.Client, options: Options, topic: str
) -> None:
    readings(client, topic, AvroSchema(Reading))
    frame = spark.read.format("vela").options(**options).schema("road STRING, sped DOUBLE").load()

    with pytest.raises(Exception, match="no column sped: the topic's schema") as refusal:
        frame.collect()

    assert "Job aborted" not in str(refusal.value)
