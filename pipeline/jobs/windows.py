"""`windows`: count, mean, minimum and maximum of a field per key and event-time window, to a topic.

A window is published when the watermark has passed its end, once: micro-batches are sorted, and
written with deduplication, so one that is repeated after a crash adds nothing. Messages later than
the watermark are left out. The event time is the producer's, else the time of publishing.

With a time range the windows of what was published in it are computed again, in one batch: the same
ones where no message was late and the range ends between two windows.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from pipeline.jobs.command import parser, run
from pipeline.jobs.publishing import add_results, publish_results

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

NAME = "windows"


def main(arguments: Sequence[str]) -> int:
    """Run the job; prints its summary."""
    return publish_results(
        _arguments(arguments), NAME, "windows", aggregated, "window_start", "key"
    )


def aggregated(frame: DataFrame, given: argparse.Namespace) -> DataFrame:
    """One row per key and window."""
    from pyspark.sql import functions as f

    time = f.coalesce(f.col("__eventTime"), f.col("__publishTime"))
    key = f.col(given.key).cast("string")
    rows = frame.select(time.alias("time"), key.alias("key"), f.col(given.field).alias("field"))
    size = f"{given.window_seconds} seconds"
    grouped = rows.withWatermark("time", f"{given.watermark_seconds} seconds").groupBy(
        f.window("time", size), "key"
    )
    figures = grouped.agg(
        f.count("field").alias("count"),
        f.avg("field").alias("mean"),
        f.min(f.col("field").cast("double")).alias("minimum"),
        f.max(f.col("field").cast("double")).alias("maximum"),
    )
    start = f.unix_millis(f.col("window.start"))
    return figures.select(
        start.alias("window_start"),
        f.unix_millis(f.col("window.end")).alias("window_end"),
        "key",
        "count",
        "mean",
        "minimum",
        "maximum",
        f.col("key").alias("__key"),
        start.alias("__eventTime"),
    )


def _arguments(arguments: Sequence[str]) -> argparse.Namespace:
    made = parser(NAME, __doc__ or "")
    add_results(made, "windows")
    made.add_argument("--key", default="__key", help="column to group by [default: %(default)s]")
    made.add_argument("--field", required=True, help="column to aggregate, a number")
    made.add_argument("--window-seconds", type=int, default=10)
    made.add_argument("--watermark-seconds", type=int, default=10)
    return made.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(run(NAME, main, sys.argv[1:]))
