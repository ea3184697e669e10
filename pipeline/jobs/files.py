"""What is in a directory, in whatever file system its URL names."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def names_in(spark: SparkSession, directory: str) -> frozenset[str]:
    """The files and directories in it; none if there is no such directory."""
    place = spark.sparkContext._jvm.org.apache.hadoop.fs.Path(directory)
    files = place.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
    if not files.exists(place):
        return frozenset()
    return frozenset(str(found.getPath().getName()) for found in files.listStatus(place))
