"""Publishes the results of a streaming query, micro-batch by micro-batch, each result once.

`publish_results` is the whole of a job that makes results of a topic and publishes them to another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from pipeline.jobs.command import (
    finish,
    progress,
    server_options,
    source_options,
    spark_session,
    started,
    watch,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame


@final
class Publisher:
    """For `foreachBatch`. The rows of a micro-batch leave in one order, so that one which is
    repeated after a crash carries the same numbers and is dropped by deduplication."""

    def __init__(self, sink: Mapping[str, str], *order: str) -> None:
        self._sink = dict(sink)
        self._order = order
        self.rows = 0

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        rows = batch.coalesce(1).sortWithinPartitions(*self._order).persist()
        self.rows += rows.count()
        options = self._sink | {"dedupBatch": str(batch_id)}
        rows.write.format("vela").options(**options).mode("append").save()
        rows.unpersist()


def publish_results(
    given: argparse.Namespace,
    job: str,
    kind: str,
    results: Callable[[DataFrame, argparse.Namespace], DataFrame],
    *order: str,
) -> int:
    """Run `job`: the rows of `results`, in `order` in a micro-batch, to the topic `given.to`.

    `kind` is what the rows are called in the summary and in the name of their producer. Returns the
    exit code. Raises: JobError.
    """
    with spark_session(job, given) as spark:
        options = source_options(given) | {"startingOffsets": given.start}
        if given.max_bytes_per_trigger:
            options["maxBytesPerTrigger"] = str(given.max_bytes_per_trigger)
        frame = spark.readStream.format("vela").options(**options).load()
        sink = server_options(given) | {"topic": given.to}
        if not given.at_least_once:
            sink |= {"sinkMode": "dedup", "producerName": f"{kind}-{given.name}"}
        publish = Publisher(sink, *order)
        writer = results(frame, given).writeStream.outputMode("append").foreachBatch(publish)
        writer = writer.option("checkpointLocation", given.checkpoint)
        progress(f"{job}: publishing to {given.to}")
        summary = watch(started(writer, given.follow_seconds), job)
    return finish(given, {"job": job, "to": given.to, kind: publish.rows, **summary})
