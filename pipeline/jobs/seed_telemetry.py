"""`seed-telemetry`: telemetry of simulated vehicles to a topic, as an AVRO record.

The key is the vehicle, the event time the time of the reading. The readings of a vehicle are
published in order; vehicles are spread over `--tasks` producers. Runs that follow each other in
time continue the same drives: see `pipeline.telemetry`.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Final

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
    tell_dropped,
)
from pipeline.telemetry import Fleet, Reading

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator, Sequence

NAME = "seed-telemetry"
COUNTS: Final = ("vehicles", "seconds", "interval_seconds", "drive_seconds", "roads", "tasks")
READING_DDL: Final = (
    "vehicle_id STRING, ts BIGINT, lat DOUBLE, lon DOUBLE, speed DOUBLE, heading DOUBLE, "
    "road_id STRING, battery DOUBLE"
)


def main(arguments: Sequence[str]) -> int:
    """Run the job; prints its summary."""
    given = _arguments(arguments)
    for name in COUNTS:
        if getattr(given, name) < 1:
            raise JobError(f"--{name.replace('_', '-')} must be at least 1")
    fleet = Fleet(given.interval_seconds, given.drive_seconds, given.pause_seconds, given.roads)
    with spark_session(NAME, given) as spark:
        # Without Arrow: Spark's Arrow functions would need pandas for nothing.
        vehicles = spark.sparkContext.parallelize(range(given.vehicles), given.tasks)
        rows = vehicles.mapPartitions(
            partial(readings_of, fleet, given.start_ms // 1000, given.seconds)
        )
        readings = spark.createDataFrame(rows, READING_DDL, verifySchema=False).selectExpr(
            "*", "CAST(vehicle_id AS BINARY) AS __key", "ts AS __eventTime"
        )
        options = server_options(given) | {"topic": given.topic}
        if given.dedup:
            options |= {"sinkMode": "dedup", "producerName": given.dedup}
        progress(f"{NAME}: {given.vehicles} vehicles to {given.topic}")
        published = publish(readings, options)
    tell_dropped(NAME, published, f"--dedup {given.dedup}")
    summary = {"topic": given.topic, "vehicles": given.vehicles, "rows": published.rows}
    return finish(given, {"job": NAME, **summary, **published.summary()})


def readings_of(
    fleet: Fleet, first_second: int, seconds: int, vehicles: Iterable[int]
) -> Iterator[Reading]:
    """The readings of the vehicles of a task, in the order of time; runs on executors."""
    return fleet.readings(list(vehicles), first_second, seconds)


def _arguments(arguments: Sequence[str]) -> argparse.Namespace:
    made = parser(NAME, __doc__ or "")
    add_server(made)
    made.add_argument("--topic", required=True, help="the topic to publish to")
    made.add_argument("--vehicles", type=int, default=1000, help="[default: %(default)s]")
    made.add_argument("--start-ms", type=int, required=True, help="the first reading, since 1970")
    made.add_argument("--seconds", type=int, default=600, help="that pass [default: %(default)s]")
    made.add_argument("--interval-seconds", type=int, default=5, help="between two readings")
    made.add_argument("--drive-seconds", type=int, default=300, help="length of a drive")
    made.add_argument("--pause-seconds", type=int, default=120, help="of silence after it")
    made.add_argument("--roads", type=int, default=50)
    made.add_argument("--tasks", type=int, default=2, help="producers [default: %(default)s]")
    made.add_argument("--dedup", help="producer name: a repeated run adds nothing")
    return made.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(run(NAME, main, sys.argv[1:]))
