"""`hazard-broadcast`: camera events become alerts for all vehicles in the area of the event.

Events carry a road; a static table says which areas a road touches. Each alert goes to the topic of
its area, `<prefix><area>`, where any number of vehicles listen through one broadcast subscription
(property `vela.broadcast=true`). Rows of one camera stay in order, and with deduplication a
micro-batch that is repeated after a crash does not alert a vehicle twice.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from pipeline.jobs.command import (
    JobError,
    Published,
    add_server,
    add_source,
    finish,
    parser,
    progress,
    publish,
    run,
    server_options,
    source_options,
    spark_session,
    started,
    tell_dropped,
    watch,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

NAME = "hazard-broadcast"


def main(arguments: Sequence[str]) -> int:
    """Run the job; prints its summary."""
    given = _arguments(arguments)
    with spark_session(NAME, given) as spark:
        areas = read_areas(spark, given.areas).persist()
        options = source_options(given) | {"startingOffsets": given.start}
        events = spark.readStream.format("vela").options(**options).load()
        sink = server_options(given)
        if not given.at_least_once:
            sink |= {"sinkMode": "dedup", "producerName": f"hazards-{given.name}"}
        sent: dict[str, int] = {}

        dropped: list[int] = []

        def write(batch: DataFrame, batch_id: int) -> None:
            # One task: alerts of an area leave in the order of the events.
            rows = (
                alerts(batch, areas, given)
                .coalesce(1)
                .sortWithinPartitions("event_time", "__order")
            )
            rows = rows.drop("__order").persist()
            for row in rows.groupBy("area").count().collect():
                sent[row["area"]] = sent.get(row["area"], 0) + row["count"]
            dropped.append(publish(rows, sink | {"dedupBatch": str(batch_id)}).duplicates)
            rows.unpersist()

        writer = events.writeStream.foreachBatch(write)
        writer = writer.option("checkpointLocation", given.checkpoint)
        progress(f"{NAME}: publishing to {given.prefix}<area>")
        summary = watch(started(writer, given.follow_seconds), NAME)
    published = Published(sum(sent.values()), sum(dropped))
    tell_dropped(NAME, published, f"--name {given.name}")
    summary |= published.summary()
    return finish(given, {"job": NAME, "alerts": published.rows, "alerts_by_area": sent, **summary})


def read_areas(spark: SparkSession, path: str) -> DataFrame:
    """Road and area, from CSV with a heading or from Parquet. Raises: JobError."""
    is_csv = path.endswith(".csv")
    table = spark.read.option("header", "true").csv(path) if is_csv else spark.read.parquet(path)
    if not {"road_id", "area"} <= set(table.columns):
        raise JobError(f"{path} must have the columns road_id and area, it has {table.columns}")
    return table.selectExpr("CAST(road_id AS STRING) AS road_id", "CAST(area AS STRING) AS area")


def alerts(events: DataFrame, areas: DataFrame, given: argparse.Namespace) -> DataFrame:
    """One row per event and area it concerns, with the columns of the sink."""
    from pyspark.sql import functions as f

    names = [given.camera, given.road, given.hazard]
    missing = [name for name in names if name not in events.columns]
    if missing:
        raise JobError(
            f"the events have no field {', '.join(missing)}; they have {', '.join(events.columns)}"
        )
    rows = events.select(
        f.col(given.camera).cast("string").alias("camera_id"),
        f.col(given.road).cast("string").alias("road_id"),
        f.col(given.hazard).cast("string").alias("hazard"),
        f.unix_millis(f.coalesce("__eventTime", "__publishTime")).alias("event_time"),
        f.monotonically_increasing_id().alias("__order"),
    )
    return rows.join(f.broadcast(areas), "road_id").select(
        "camera_id",
        "road_id",
        "area",
        "hazard",
        "event_time",
        f.concat(f.lit(given.prefix), f.col("area")).alias("__topic"),
        f.col("camera_id").alias("__key"),
        f.col("event_time").alias("__eventTime"),
        "__order",
    )


def _arguments(arguments: Sequence[str]) -> argparse.Namespace:
    made = parser(NAME, __doc__ or "")
    add_server(made)
    add_source(made)
    made.add_argument("--name", required=True, help="of this use of the job; keep it at a restart")
    made.add_argument("--areas", required=True, help="CSV or Parquet with road_id and area")
    made.add_argument("--prefix", required=True, help="of the areas' topics")
    made.add_argument("--checkpoint", required=True, help="directory or URL")
    made.add_argument("--camera", default="camera_id", help="field with the camera")
    made.add_argument("--road", default="road_id", help="field with the road")
    made.add_argument("--hazard", default="hazard", help="field that says what it is")
    made.add_argument("--start", default="earliest", help="earliest, latest, or ids as JSON")
    made.add_argument("--follow-seconds", type=int, help="go on, a micro-batch every so often")
    made.add_argument(
        "--at-least-once", action="store_true", help="for a namespace without deduplication"
    )
    return made.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(run(NAME, main, sys.argv[1:]))
