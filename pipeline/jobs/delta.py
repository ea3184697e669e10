"""Archives that are Delta Lake tables: what they need, and how a micro-batch gets into one once.

Delta keeps, in the table's log, the number of the last transaction of each application and skips a
write whose number is not above it. The application is the streaming query, whose id is in its
checkpoint, and the number is the micro-batch's: a restarted run that repeats the micro-batch which
was cut off adds nothing if the killed one had got it in. Files that no version names are left to
Delta's VACUUM: until then an older version, or another writer, may need them.
https://docs.delta.io/latest/delta-streaming.html, "Idempotent table writes in foreachBatch"
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, final

from pipeline.jobs.command import JobError
from pipeline.jobs.files import names_in
from pipeline.session import DELTA_SETTINGS, has_delta

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMAT: Final = "delta"
PACKAGE: Final = "io.delta:delta-spark_4.2_2.13:4.4.0"
_LOG: Final = "_delta_log"
_COMMIT: Final = re.compile(r"([0-9]{20})\.json")
_QUERY_ID: Final = "sql.streaming.queryId"


def require(spark: SparkSession) -> None:
    """Raise JobError unless this session can read and write Delta tables."""
    if not has_delta(spark.sparkContext._jvm):
        raise JobError(
            f"Delta Lake is not on Spark's class path: pass --conf spark.jars.packages={PACKAGE}, "
            "or --conf spark.jars=FILES; to spark-submit, --packages or --jars"
        )
    for name, wanted in DELTA_SETTINGS.items():
        if wanted not in spark.conf.get(name, "").split(","):
            raise JobError(f"the Spark session is set up without Delta Lake: {name} needs {wanted}")


def is_table(spark: SparkSession, path: str) -> bool:
    """Whether there is a Delta table; needs no Delta."""
    return _LOG in names_in(spark, path)


@final
class TableWriter:
    """For `foreachBatch`: appends micro-batches to the table at `path`, each once."""

    def __init__(self, path: str, *partitions: str) -> None:
        self._path = path
        self._partitions = partitions

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Raises: JobError."""
        from pyspark.errors import AnalysisException

        query_id = batch.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
        if not query_id:
            raise JobError("Spark does not tell the query's id: unset PYSPARK_PIN_THREAD")
        writer = batch.write.format(FORMAT).mode("append").partitionBy(*self._partitions)
        writer = writer.option("txnAppId", query_id).option("txnVersion", batch_id)
        # A topic's newer schema has more fields; the rows before have nulls there.
        writer = writer.option("mergeSchema", "true")
        try:
            writer.save(self._path)
        except AnalysisException as error:
            told = " ".join(str(error).split())
            raise JobError(f"the table {self._path} does not take the rows: {told}") from None


def table_state(spark: SparkSession, path: str) -> dict[str, Any]:
    """How many files its newest version has, and the version's number, which names its commit."""
    if not is_table(spark, path):
        return {"files": 0}
    files = spark.read.format(FORMAT).load(path).inputFiles()
    commits = map(_COMMIT.fullmatch, names_in(spark, f"{path}/{_LOG}"))
    return {"files": len(files), "table_version": max(int(each[1]) for each in commits if each)}
