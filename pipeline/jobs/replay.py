"""`replay`: an archive, or a time range of a topic, published again; order and keys kept.

Messages of one source topic (partition) are published by one producer in the order they had there.
With `--dedup NAME` on a namespace with deduplication a repeated run adds nothing: producers and
sequence ids are the same every time, as long as the input is.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from pipeline.admin import Admin
from pipeline.jobs import delta
from pipeline.jobs.command import (
    JobError,
    add_server,
    finish,
    parser,
    progress,
    publish,
    run,
    server_options,
    spark_session,
    time_range,
)
from pipeline.jobs.places import PLACE, with_place
from pipeline.options import source_options as checked_options

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

NAME = "replay"
_NOT_WRITTEN = ("__messageId", "__publishTime", "date", "hour")


def main(arguments: Sequence[str]) -> int:
    """Run the job; prints its summary."""
    given = _arguments(arguments)
    with spark_session(NAME, given) as spark:
        frame = _archived(spark, given) if given.input else _from_topic(spark, given)
        _copy_schema(given)
        ordered = _in_order(frame).drop(*_NOT_WRITTEN, PLACE, "__topic")
        options = server_options(given) | {"topic": given.to}
        if given.dedup:
            options |= {"sinkMode": "dedup", "producerName": given.dedup}
        progress(f"{NAME}: publishing to {given.to}")
        rows = publish(ordered, options)
    return finish(given, {"job": NAME, "to": given.to, "rows": rows})


def _arguments(arguments: Sequence[str]) -> argparse.Namespace:
    made = parser(NAME, __doc__ or "")
    add_server(made)
    source = made.add_mutually_exclusive_group(required=True)
    source.add_argument("--input", help="what `archive` wrote, in either format")
    source.add_argument("--topic", help="a topic, for a time range of it")
    made.add_argument("--start-time-ms", type=int, help="published at or after, since 1970")
    made.add_argument("--end-time-ms", type=int, help="published before, since 1970")
    made.add_argument("--source-topic", help="of an archive: the messages of one topic only")
    made.add_argument("--to", required=True, help="the topic to publish to")
    made.add_argument("--schema-of", help="give the target this topic's schema [default: --topic]")
    made.add_argument("--read-engine", default="broker", choices=("auto", "broker", "bookie"))
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
    if given.start_time_ms is not None:
        frame = frame.where(f"__publishTime >= timestamp_millis({given.start_time_ms}L)")
    if given.end_time_ms is not None:
        frame = frame.where(f"__publishTime < timestamp_millis({given.end_time_ms}L)")
    if given.source_topic:
        frame = frame.where(frame["__topic"].startswith(given.source_topic))
    return frame


def _from_topic(spark: SparkSession, given: argparse.Namespace) -> DataFrame:
    options = server_options(given) | {
        "topic": given.topic,
        "rawValues": "true",
        "failOnDataLoss": "true",
        "readEngine": given.read_engine,
        **time_range(given),
    }
    return spark.read.format("vela").options(**options).load()


def _copy_schema(given: argparse.Namespace) -> None:
    """Bytes are published as they were; the target must know how to read them."""
    origin = given.schema_of or given.topic
    if not origin:
        return
    connection = checked_options(
        server_options(given) | {"topic": given.to}, streaming=None
    ).connection
    admin = Admin(connection)
    schema = admin.schema(origin)
    if schema is not None and admin.schema(given.to) is None:
        admin.register_schema(given.to, schema["type"], schema["data"], schema["properties"])


def _in_order(frame: DataFrame) -> DataFrame:
    return with_place(frame).repartition("__topic").sortWithinPartitions("__topic", PLACE)


if __name__ == "__main__":
    sys.exit(run(NAME, main, sys.argv[1:]))
