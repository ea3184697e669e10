"""`replay`: an archive, or a time range of a topic, published again; order and keys kept.

Messages of one source topic (partition) are published by one producer in the order they had there.
With `--dedup NAME` on a namespace with deduplication a repeated run adds nothing. A producer's name
holds `NAME`, the source topic, its first message and the range of time, and its sequence ids count
the messages from there. So an archive that has grown goes on where it ended, and other data under
the same `NAME` is published as such.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from pipeline.admin import Admin
from pipeline.jobs import delta
from pipeline.jobs.command import (
    JobError,
    add_read_engine,
    add_server,
    check_times,
    connection,
    finish,
    parser,
    progress,
    publish,
    read_engine_options,
    run,
    server_options,
    spark_session,
    tell_dropped,
    time_range,
)
from pipeline.jobs.places import PLACE, with_place
from pipeline.jobs.schemas import same_definition, schemas_of
from pipeline.sink import PRODUCER_COLUMN
from protocol.errors import InvalidTopicName
from protocol.topic_name import TopicName

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from pipeline.jobs.schemas import SchemaAnswer

NAME = "replay"
TOPICS_NAMED_MAX = 10
LABEL_DIGITS = 16
_NOT_WRITTEN = ("__messageId", "__publishTime", "date", "hour")


def main(arguments: Sequence[str]) -> int:
    """Run the job; prints its summary."""
    given = _arguments(arguments)
    if given.topic and given.source_topic:
        raise JobError("--source-topic chooses from an archive: it goes with --input")
    check_times(given.start_time_ms, given.end_time_ms)
    with spark_session(NAME, given) as spark:
        admin = Admin(connection(given))
        if given.input:
            frame = _archived(spark, given)
            schema = admin.schema(given.schema_of) if given.schema_of else _kept(spark, given)
        else:
            schema = admin.schema(given.schema_of or given.topic)
            frame = _from_topic(spark, given, admin)
        if schema is not None and admin.schema(given.to) is None:
            admin.register_schema(given.to, schema["type"], schema["data"], schema["properties"])
        ordered = _in_order(frame, given).drop(*_NOT_WRITTEN, PLACE, "__topic")
        options = server_options(given) | {"topic": given.to}
        if given.dedup:
            options |= {"sinkMode": "dedup", "producerName": given.dedup}
        progress(f"{NAME}: publishing to {given.to}")
        published = publish(ordered, options)
    tell_dropped(NAME, published, f"--dedup {given.dedup}")
    summary = {"job": NAME, "to": given.to, "rows": published.rows, **published.summary()}
    return finish(given, summary)


def _arguments(arguments: Sequence[str]) -> argparse.Namespace:
    made = parser(NAME, __doc__ or "")
    add_server(made)
    source = made.add_mutually_exclusive_group(required=True)
    source.add_argument("--input", help="what `archive` wrote, in either format")
    source.add_argument("--topic", help="a topic, for a time range of it")
    made.add_argument("--start-time-ms", type=int, help="published at or after, since 1970")
    made.add_argument("--end-time-ms", type=int, help="published before, since 1970")
    made.add_argument(
        "--source-topic",
        help="of an archive: the messages of one topic only, with all its partitions, or of one "
        "partition",
    )
    made.add_argument("--to", required=True, help="the topic to publish to")
    made.add_argument(
        "--schema-of",
        help="give the target this topic's schema [default: that of the source]",
    )
    add_read_engine(made)
    made.add_argument("--dedup", help="producer name: a repeated run adds nothing")
    return made.parse_args(arguments)


def _archived(spark: SparkSession, given: argparse.Namespace) -> DataFrame:
    if delta.is_table(spark, given.input):
        delta.require(spark)
        frame = spark.read.format(delta.FORMAT).load(given.input)
    else:
        frame = spark.read.parquet(given.input)
    if "__messageId" not in frame.columns:
        raise JobError(f"{given.input} has no column __messageId: it is not what archive writes")
    times = [each for each in (given.start_time_ms, given.end_time_ms) if each is not None]
    if given.start_time_ms is not None:
        frame = frame.where(f"__publishTime >= timestamp_millis({given.start_time_ms}L)")
    if given.end_time_ms is not None:
        frame = frame.where(f"__publishTime < timestamp_millis({given.end_time_ms}L)")
    if given.source_topic:
        wanted = _topic_name(given.source_topic)
        topics = sorted(row[0] for row in frame.select("__topic").distinct().collect())
        chosen = [each for each in topics if is_of(each, wanted)]
        if not chosen:
            raise JobError(
                f"{given.input} has no messages of {wanted}"
                + (" in that time" if len(times) else "")
                + f": it has those of {', '.join(topics[:TOPICS_NAMED_MAX]) or 'no topic'}"
            )
        frame = frame.where(frame["__topic"].isin(chosen))
    return frame


def is_of(topic: str, wanted: TopicName) -> bool:
    """Whether a topic of an archive is the one that was asked for, or a partition of it."""
    name = TopicName.parse(topic)
    return wanted.full in (name.full, name.partitioned_base.full)


def _topic_name(text: str) -> TopicName:
    try:
        return TopicName.parse(text)
    except InvalidTopicName as error:
        raise JobError(f"--source-topic: {error}") from None


def _kept(spark: SparkSession, given: argparse.Namespace) -> SchemaAnswer | None:
    """The schema of the archived messages; None when they have none.

    Raises: JobError.
    """
    kept = schemas_of(spark, given.input)
    if given.source_topic:
        base = _topic_name(given.source_topic).partitioned_base.full
        kept = {topic: schema for topic, schema in kept.items() if topic == base}
    if not kept:
        progress(
            f"{NAME}: {given.input} does not tell the schema of its messages: --schema-of gives "
            "the target one"
        )
        return None
    first = next(iter(kept.values()))
    for topic, schema in kept.items():
        if not same_definition(schema, first):
            raise JobError(
                f"{given.input} has messages of topics with different schemas ({', '.join(kept)}): "
                f"choose one with --source-topic, for instance {topic}"
            )
    if first is not None and first["raw"] and first["versions"] > 1:
        raise JobError(
            f"{given.input} holds payloads of {first['versions']} versions of a schema, and does "
            "not tell which message has which: archive without --raw"
        )
    return first


def _from_topic(spark: SparkSession, given: argparse.Namespace, admin: Admin) -> DataFrame:
    # Payloads go as they are, unless they were written with several versions of the schema: the
    # version of a message is lost on the way, so then all are written with the newest.
    options = server_options(given) | {
        "topic": given.topic,
        "rawValues": str(admin.schema_version_count(given.topic) <= 1).lower(),
        "failOnDataLoss": "true",
        **read_engine_options(given),
        **time_range(given),
    }
    return spark.read.format("vela").options(**options).load()


def _in_order(frame: DataFrame, given: argparse.Namespace) -> DataFrame:
    """The messages of a topic in one task, in their order; with `--dedup` with their producer."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    ordered = with_place(frame).repartition("__topic")
    if given.dedup:
        of_topic = Window.partitionBy("__topic").orderBy(PLACE)
        origin = f.concat_ws(
            "|",
            "__topic",
            f.hex(f.first("__messageId").over(of_topic)),
            f.lit(f"{given.start_time_ms}-{given.end_time_ms}"),
        )
        label = f.substring(f.sha2(origin, 256), 1, LABEL_DIGITS)
        ordered = ordered.withColumn(PRODUCER_COLUMN, label)
    return ordered.sortWithinPartitions("__topic", PLACE)


if __name__ == "__main__":
    sys.exit(run(NAME, main, sys.argv[1:]))
