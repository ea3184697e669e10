"""`archive`: topics to Parquet or to a Delta Lake table, by date and hour of publishing.

Exactly once: Spark's checkpoint holds the message ids of every micro-batch, and a restarted run
repeats the micro-batch that was cut off under the same number.

* Parquet: Spark's file sink lists the files that count in `_spark_metadata`, by the numbers of one
  query, so no other query may write there (`pipeline.jobs.files.claim`). Files that a killed
  run left without listing them are deleted at the end, so that readers which do not know the list
  see every message once, too.
* Delta: the table's log takes each number once (`pipeline.jobs.delta`). Nothing is deleted.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from pipeline.admin import Admin
from pipeline.credentials import source_options_with_token
from pipeline.jobs import delta
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
    started,
    watch,
)
from pipeline.jobs.files import FILE_LIST, claim, names_in
from pipeline.jobs.schemas import keep_schemas

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

NAME = "archive"
PARQUET: Final = "parquet"
_IDS: Final = "__topic STRING, __messageId BINARY"
_PARTITIONS: Final = ("date", "hour")


def main(arguments: Sequence[str]) -> int:
    """Run the job; prints its summary."""
    given = _arguments(arguments)
    as_directory(given.output, "--output")
    with spark_session(NAME, given) as spark:
        _check_format(spark, given)
        frame = spark.readStream.format("vela").options(**_options(given)).load()
        options = source_options_with_token(_options(given), streaming=True)
        admin = Admin(options.connection)
        rows = frame.selectExpr(
            "*",
            "date_format(__publishTime, 'yyyy-MM-dd') AS date",
            "date_format(__publishTime, 'HH') AS hour",
        )
        progress(f"{NAME}: reading into {given.output}")
        if given.format == PARQUET:
            claim(spark, given.output, _checkpoint(given))
        keep_schemas(spark, given.output, admin, options)
        summary = watch(started(_writer(rows, given), given.follow_seconds), NAME)
        keep_schemas(spark, given.output, admin, options)
        if given.format == delta.FORMAT:
            summary |= delta.table_state(spark, given.output)
        else:
            summary |= tidy(spark, given.output)
        if given.verify:
            summary |= verify(spark, given.output, given.format)
    return finish(given, {"job": NAME, "output": given.output, **summary})


def _arguments(arguments: Sequence[str]) -> argparse.Namespace:
    made = parser(NAME, __doc__ or "")
    add_server(made)
    add_source(made)
    made.add_argument("--output", required=True, help="directory or URL")
    made.add_argument("--format", choices=(PARQUET, delta.FORMAT), default=PARQUET)
    made.add_argument("--checkpoint", help="[default: <output>/_checkpoint]")
    made.add_argument("--start", default="earliest", help="earliest, latest, or ids as JSON")
    made.add_argument("--max-bytes-per-trigger", type=int, default=256 * 1024 * 1024)
    made.add_argument("--max-rows-per-trigger", type=int)
    made.add_argument("--raw", action="store_true", help="keep values as bytes, not decoded")
    made.add_argument(
        "--follow-seconds", type=int, help="go on, a micro-batch every so often [default: end]"
    )
    made.add_argument("--verify", action="store_true", help="count the message ids at the end")
    made.add_argument("--subscription", help="an existing subscription that holds the data")
    return made.parse_args(arguments)


def _options(given: argparse.Namespace) -> dict[str, str]:
    options = source_options(given)
    options["startingOffsets"] = given.start
    options["rawValues"] = str(given.raw).lower()
    options["maxBytesPerTrigger"] = str(given.max_bytes_per_trigger)
    if given.max_rows_per_trigger:
        options["maxRowsPerTrigger"] = str(given.max_rows_per_trigger)
    if given.subscription:
        options["predefinedSubscription"] = given.subscription
    return options


def _check_format(spark: SparkSession, given: argparse.Namespace) -> None:
    """Raise JobError when the format cannot be written, or the place holds the other one.

    One format's files in the other's directory would be deleted by `tidy`, or never read.
    """
    if given.format == delta.FORMAT:
        delta.require(spark)
        if FILE_LIST in names_in(spark, given.output):
            raise JobError(
                f"{given.output} is an archive in Parquet: give another --output, "
                f"or --format {PARQUET}"
            )
    elif delta.is_table(spark, given.output):
        raise JobError(f"{given.output} is a Delta table: add --format {delta.FORMAT}")


def _checkpoint(given: argparse.Namespace) -> str:
    return given.checkpoint or f"{given.output}/_checkpoint"


def _writer(rows: DataFrame, given: argparse.Namespace) -> DataStreamWriter:
    writer = rows.writeStream.option("checkpointLocation", _checkpoint(given))
    if given.format == delta.FORMAT:
        return writer.foreachBatch(delta.TableWriter(given.output, *_PARTITIONS))
    return writer.format(PARQUET).partitionBy(*_PARTITIONS).option("path", given.output)


def tidy(spark: SparkSession, output: str) -> dict[str, Any]:
    """Delete Parquet files that the list of files does not name; how many there are of each."""
    jvm = spark.sparkContext._jvm
    hadoop = jvm.org.apache.hadoop.fs
    root = hadoop.Path(output)
    files = root.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
    if not files.exists(hadoop.Path(f"{output}/{FILE_LIST}")):
        return {"files": 0, "files_removed": 0}
    listed = {
        hadoop.Path(jvm.java.net.URI(name)).toUri().getPath()
        for name in spark.read.schema(_IDS).parquet(output).inputFiles()
    }
    removed = 0
    found = files.listFiles(root, True)
    while found.hasNext():
        path = found.next().getPath()
        name = path.toUri().getPath()
        inside = name.removeprefix(root.toUri().getPath())
        if name.endswith(".parquet") and "/_" not in inside and name not in listed:
            files.delete(path, False)
            removed += 1
    return {"files": len(listed), "files_removed": removed}


def verify(spark: SparkSession, output: str, written_as: str) -> dict[str, Any]:
    """Count rows and distinct message ids of the whole archive."""
    reader = spark.read.format(written_as)
    if written_as == PARQUET:  # There may be no file yet that says its columns.
        reader = reader.schema(_IDS)
    ids = reader.load(output).select("__topic", "__messageId")
    rows, distinct = ids.count(), ids.distinct().count()
    return {"rows_in_archive": rows, "message_ids_in_archive": distinct}


if __name__ == "__main__":
    sys.exit(run(NAME, main, sys.argv[1:]))
