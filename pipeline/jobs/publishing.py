"""Publishes the results of a streaming query, micro-batch by micro-batch, each result once.

`publish_results` is the whole of a job that makes results of a topic and publishes them to another;
with a time range it computes them of what was published in it, in one batch and without checkpoint.
A repeated run over the same range adds nothing, as long as nothing was published in it meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from pipeline.jobs.command import (
    JobError,
    Published,
    add_server,
    add_source,
    finish,
    progress,
    publish,
    server_options,
    source_options,
    spark_session,
    started,
    tell_dropped,
    time_range,
    watch,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame, SparkSession

    Results = Callable[[DataFrame, argparse.Namespace], DataFrame]


@final
class Publisher:
    """For `foreachBatch`. The rows of a micro-batch leave in one order, so that one which is
    repeated after a crash carries the same numbers and is dropped by deduplication."""

    def __init__(self, sink: Mapping[str, str], *order: str) -> None:
        self._sink = dict(sink)
        self._order = order
        self.rows = 0
        self.duplicates = 0

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        rows = batch.coalesce(1).sortWithinPartitions(*self._order)
        published = publish(rows, self._sink | {"dedupBatch": str(batch_id)})
        self.rows += published.rows
        self.duplicates += published.duplicates


def add_results(made: argparse.ArgumentParser, kind: str) -> None:
    """What `publish_results` needs besides the server; `kind` are the results."""
    add_server(made)
    add_source(made)
    made.add_argument("--name", required=True, help="of this use of the job; keep it at a restart")
    made.add_argument("--to", required=True, help=f"the topic for the {kind}")
    made.add_argument("--checkpoint", help="directory or URL; needed without a time range")
    made.add_argument(
        "--start-time-ms",
        type=int,
        help=f"the {kind} of what was published at or after, since 1970, in one batch: late "
        "messages count, and what is unfinished at the end is published, too",
    )
    made.add_argument("--end-time-ms", type=int, help="published before, since 1970")
    made.add_argument("--start", default="earliest", help="earliest, latest, or ids as JSON")
    made.add_argument("--max-bytes-per-trigger", type=int)
    made.add_argument("--follow-seconds", type=int, help="go on, a micro-batch every so often")
    made.add_argument(
        "--at-least-once", action="store_true", help="for a namespace without deduplication"
    )


def publish_results(
    given: argparse.Namespace, job: str, kind: str, results: Results, *order: str
) -> int:
    """Run `job`: the rows of `results`, in `order` in a micro-batch, to the topic `given.to`.

    `kind` is what the rows are called in the summary and in the name of their producer. Returns the
    exit code. Raises: JobError.
    """
    times = time_range(given)
    if len(times) == 1 or bool(times) == bool(given.checkpoint):
        raise JobError("give either --checkpoint, or both --start-time-ms and --end-time-ms")
    sink = server_options(given) | {"topic": given.to}
    if not given.at_least_once:
        # Each range has a producer of its own: two of them number their rows alike.
        producer = "-".join([kind, given.name, *times.values()])
        sink |= {"sinkMode": "dedup", "producerName": producer}
    publisher = Publisher(sink, *order)
    with spark_session(job, given) as spark:
        progress(f"{job}: publishing to {given.to}")
        if times:
            options = source_options(given) | times
            frame = spark.read.format("vela").options(**options).load()
            publisher(results(frame, given), 0)
            summary = {}
        else:
            frame = results(_stream(spark, given), given)
            writer = frame.writeStream.outputMode("append").foreachBatch(publisher)
            writer = writer.option("checkpointLocation", given.checkpoint)
            summary = watch(started(writer, given.follow_seconds), job)
    published = Published(publisher.rows, publisher.duplicates)
    tell_dropped(job, published, f"--name {given.name}")
    summary |= published.summary()
    return finish(given, {"job": job, "to": given.to, kind: published.rows, **summary})


def _stream(spark: SparkSession, given: argparse.Namespace) -> DataFrame:
    options = source_options(given) | {"startingOffsets": given.start}
    if given.max_bytes_per_trigger:
        options["maxBytesPerTrigger"] = str(given.max_bytes_per_trigger)
    return spark.readStream.format("vela").options(**options).load()
