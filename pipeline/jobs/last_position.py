"""`last-position`: the newest message of each key of a topic, to Parquet.

The newest is the one with the latest event time (of publishing, where a message has none); of
several with the same time the last one published. The topic is only read: nothing stays on it.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from pipeline.jobs.command import (
    add_server,
    add_source,
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


def main(arguments: Sequence[str]) -> int:
    """Run the job; prints its summary."""
    given = _arguments(arguments)
    with spark_session(NAME, given) as spark:
        frame = spark.read.format("vela").options(**source_options(given)).load()
        progress(f"{NAME}: reading into {given.output}")
        newest_of(frame, given.key).write.mode("overwrite").parquet(given.output)
        keys = spark.read.parquet(given.output).count()
    return finish(given, {"job": NAME, "output": given.output, "keys": keys})


def newest_of(frame: DataFrame, key: str) -> DataFrame:
    """One row per key, with all columns of the source. Messages without a key are left out."""
    from pyspark.sql import functions as f

    columns = f.struct(*frame.columns)
    # Partitions have ledgers of their own; a key is in one partition.
    order = f.struct(f.coalesce("__eventTime", "__publishTime"), PLACE)
    keyed = with_place(frame.where(f.col(key).isNotNull()))
    newest = keyed.groupBy(f.col(key).alias("__group")).agg(f.max_by(columns, order).alias("row"))
    return newest.select("row.*")


def _arguments(arguments: Sequence[str]) -> argparse.Namespace:
    made = parser(NAME, __doc__ or "")
    add_server(made)
    add_source(made)
    made.add_argument("--output", required=True, help="directory or URL; is written anew")
    made.add_argument("--key", default="__key", help="column to group by [default: %(default)s]")
    return made.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(run(NAME, main, sys.argv[1:]))
