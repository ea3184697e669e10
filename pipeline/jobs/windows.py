"""`windows`: count, mean, minimum and maximum of a field per key and event-time window, to a topic.

A window is published when the watermark has passed its end, once: micro-batches are sorted, and
written with deduplication, so one that is repeated after a crash adds nothing. Messages later than
the watermark are left out. The event time is the producer's, else the time of publishing.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from pipeline.jobs.command import add_server, add_source, parser, run
from pipeline.jobs.publishing import publish_results

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
    add_server(made)
    add_source(made)
    made.add_argument("--name", required=True, help="of this use of the job; keep it at a restart")
    made.add_argument("--to", required=True, help="the topic for the windows")
    made.add_argument("--checkpoint", required=True, help="directory or URL")
    made.add_argument("--key", default="__key", help="column to group by [default: %(default)s]")
    made.add_argument("--field", required=True, help="column to aggregate, a number")
    made.add_argument("--window-seconds", type=int, default=10)
    made.add_argument("--watermark-seconds", type=int, default=10)
    made.add_argument("--start", default="earliest", help="earliest, latest, or ids as JSON")
    made.add_argument("--max-bytes-per-trigger", type=int)
    made.add_argument("--follow-seconds", type=int, help="go on, a micro-batch every so often")
    made.add_argument(
        "--at-least-once", action="store_true", help="for a namespace without deduplication"
    )
    return made.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(run(NAME, main, sys.argv[1:]))
