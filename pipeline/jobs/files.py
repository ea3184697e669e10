"""The files of a directory, in any file system, and the one query that may add to them."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any, Final

from pipeline.jobs.command import JobError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILE_LIST: Final = "_spark_metadata"
"""Where Spark's file sink lists the files that count, by micro-batch."""
OWNER: Final = "_archive_query"
"""The id of the one query that adds to an archive."""


def names_in(spark: SparkSession, directory: str) -> frozenset[str]:
    """The files and directories in it; none if there is no such directory."""
    files, place = _file_system(spark, directory)
    if not files.exists(place):
        return frozenset()
    return frozenset(str(found.getPath().getName()) for found in files.listStatus(place))


def claim(spark: SparkSession, output: str, checkpoint: str) -> None:
    """See that the query of the checkpoint is the one that adds to this directory of files.

    The list of files goes by numbers of micro-batches alone. Spark silently leaves out files that
    another query, or this one with a new checkpoint, writes under a number that is in the list.

    Raises: JobError.
    """
    query = _kept(spark, f"{checkpoint}/metadata", json.dumps({"id": str(uuid.uuid4())}))
    query_id = str(json.loads(query)["id"])
    listed = _newest(names_in(spark, f"{output}/{FILE_LIST}"))
    known = _newest(names_in(spark, f"{checkpoint}/offsets"))
    if listed > known or _kept(spark, f"{output}/{OWNER}", query_id) != query_id:
        raise JobError(
            f"{output} was begun with another checkpoint than {checkpoint}: give that one, or "
            "another --output and another --checkpoint"
        )


def _newest(names: frozenset[str]) -> int:
    """The number of the newest micro-batch in one of Spark's logs, -1 when there is none."""
    numbers = [name.removesuffix(".compact") for name in names]
    return max((int(number) for number in numbers if number.isdigit()), default=-1)


def _kept(spark: SparkSession, path: str, text: str) -> str:
    """The content of the file, which gets this text if it was not there."""
    files, place = _file_system(spark, path)
    if not files.exists(place):
        write_text(spark, path, text)
    return read_text(spark, path)


def read_text(spark: SparkSession, path: str) -> str:
    """The content of a file."""
    files, place = _file_system(spark, path)
    read = files.open(place)
    content = bytes(read.readAllBytes())
    read.close()
    return content.decode()


def write_text(spark: SparkSession, path: str, text: str) -> None:
    """Write a file, in place of one that may be there."""
    files, place = _file_system(spark, path)
    written = files.create(place, True)
    written.write(bytearray(text.encode()))
    written.close()


def _file_system(spark: SparkSession, path: str) -> tuple[Any, Any]:
    place = spark.sparkContext._jvm.org.apache.hadoop.fs.Path(path)
    return place.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration()), place
