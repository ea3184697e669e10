"""`last-position`: the newest message of each key of a topic, to Parquet.

The newest is the one with the latest event time (of publishing, where a message has none); of
several with the same time the last one published. The topic is only read: nothing stays on it.
`--map` draws where they are, of `POINTS_MAX` keys at most.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pipeline.jobs.command import (
    JobError,
    add_server,
    add_source,
    as_directory,
    finish,
    parser,
    progress,
    run,
    source_options,
    spark_session,
)
from pipeline.jobs.places import PLACE, with_place

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

NAME = "last-position"
POINTS_MAX: Final = 20_000


def main(arguments: Sequence[str]) -> int:
    """Run the job; prints its summary."""
    given = _arguments(arguments)
    as_directory(given.output, "--output")
    with spark_session(NAME, given) as spark:
        frame = spark.read.format("vela").options(**source_options(given)).load()
        missing = {given.longitude, given.latitude} - set(frame.columns)
        if given.map and missing:
            raise JobError(
                f"no column {', '.join(sorted(missing))} for the map: --longitude and --latitude "
                f"name one of {', '.join(frame.columns)}"
            )
        progress(f"{NAME}: reading into {given.output}")
        newest_of(frame, given.key).write.mode("overwrite").parquet(given.output)
        positions = spark.read.parquet(given.output)
        summary = {"job": NAME, "output": given.output, "keys": positions.count()}
        if given.map:
            summary |= {"points": draw(positions, given), "map": str(given.map)}
    return finish(given, summary)


def newest_of(frame: DataFrame, key: str) -> DataFrame:
    """One row per key, with all columns of the source. Messages without a key are left out."""
    from pyspark.sql import functions as f

    columns = f.struct(*frame.columns)
    # Partitions have ledgers of their own; a key is in one partition.
    order = f.struct(f.coalesce("__eventTime", "__publishTime"), PLACE)
    keyed = with_place(frame.where(f.col(key).isNotNull()))
    newest = keyed.groupBy(f.col(key).alias("__group")).agg(f.max_by(columns, order).alias("row"))
    return newest.select("row.*")


def draw(positions: DataFrame, given: argparse.Namespace) -> int:
    """A point for each key that has a place, north up; how many."""
    from matplotlib.figure import Figure

    columns = (f"CAST(`{name}` AS DOUBLE)" for name in (given.longitude, given.latitude))
    points = positions.selectExpr(*columns).dropna().limit(POINTS_MAX).collect()
    figure = Figure(figsize=(8, 8), layout="constrained")
    axes = figure.subplots()
    axes.scatter([point[0] for point in points], [point[1] for point in points], s=6)
    axes.set_title(f"{given.topic or given.topics or given.topics_pattern}: last positions")
    axes.set_xlabel(given.longitude)
    axes.set_ylabel(given.latitude)
    axes.grid(alpha=0.3)
    given.map.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(given.map, dpi=120)
    return len(points)


def _arguments(arguments: Sequence[str]) -> argparse.Namespace:
    made = parser(NAME, __doc__ or "")
    add_server(made)
    add_source(made)
    made.add_argument("--output", required=True, help="directory or URL; replaced")
    made.add_argument("--key", default="__key", help="column to group by [default: %(default)s]")
    made.add_argument("--map", type=Path, metavar="FILE.png", help="draw a map of the positions")
    made.add_argument("--longitude", default="lon", help="column, for the map [%(default)s]")
    made.add_argument("--latitude", default="lat", help="column, for the map [%(default)s]")
    return made.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(run(NAME, main, sys.argv[1:]))
