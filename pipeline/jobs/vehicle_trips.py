"""`vehicle-trips`: the drives of each vehicle, found by its silences, to a topic, each trip once.

A trip ends when its vehicle was silent for `--silence-seconds` of event time, and is published when
the watermark has passed that: the clock is that of the events, so the last trips before all
vehicles fall silent are published when any of them reports again. The state holds one row per trip
under way.
The event time is the producer's, else the time of publishing. Messages without a key are of no
vehicle and left out.

With a time range the trips of what was published in it are computed again, in one batch: those it
begins or ends within are cut off there.
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

NAME = "vehicle-trips"


def main(arguments: Sequence[str]) -> int:
    """Run the job; prints its summary."""
    return publish_results(_arguments(arguments), NAME, "trips", trips, "trip_start", "vehicle_id")


def trips(frame: DataFrame, given: argparse.Namespace) -> DataFrame:
    """One row per trip. Its times are those of its first and last reading, in ms since 1970."""
    from pyspark.sql import functions as f

    rows = frame.where(f.col(given.key).isNotNull()).select(
        f.coalesce(f.col("__eventTime"), f.col("__publishTime")).alias("time"),
        f.col(given.key).cast("string").alias("vehicle_id"),
        f.col(given.latitude).cast("double").alias("lat"),
        f.col(given.longitude).cast("double").alias("lon"),
        f.col(given.speed).cast("double").alias("speed"),
    )
    grouped = rows.withWatermark("time", f"{given.watermark_seconds} seconds").groupBy(
        f.session_window("time", f"{given.silence_seconds} seconds"), "vehicle_id"
    )
    figures = grouped.agg(
        f.unix_millis(f.min("time")).alias("trip_start"),
        f.unix_millis(f.max("time")).alias("trip_end"),
        f.count("time").alias("readings"),
        *(
            which(name, "time").alias(f"{end}_{name}")
            for end, which in (("first", f.min_by), ("last", f.max_by))
            for name in ("lat", "lon")
        ),
        f.avg("speed").alias("speed_mean"),
        f.max("speed").alias("speed_max"),
    )
    return figures.drop("session_window").select(
        "*", f.col("vehicle_id").alias("__key"), f.col("trip_start").alias("__eventTime")
    )


def _arguments(arguments: Sequence[str]) -> argparse.Namespace:
    made = parser(NAME, __doc__ or "")
    add_results(made, "trips")
    made.add_argument("--key", default="__key", help="column with the vehicle [%(default)s]")
    made.add_argument("--latitude", default="lat", help="column [%(default)s]")
    made.add_argument("--longitude", default="lon", help="column [%(default)s]")
    made.add_argument("--speed", default="speed", help="column [%(default)s]")
    made.add_argument("--silence-seconds", type=int, default=30)
    made.add_argument("--watermark-seconds", type=int, default=10)
    return made.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(run(NAME, main, sys.argv[1:]))
