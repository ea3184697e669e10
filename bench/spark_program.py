"""One Spark session that reads topics when it is told to; runs in an environment with pyspark.

    python -m bench.spark_program CONNECTOR_JAR|- ANSWERS_FD DIRECTORY CORES

Requests are JSON lines on stdin: `{"format", "options", "check"}`; the format `pipeline.spark3` is
the function `read` of that module. Answers are JSON lines on the file descriptor: `{"seconds",
"rows"}`, with `check` also `ids` (different message ids) and `sum` (of a hash of every value); or
`{"failed"}` with the reason. Nothing is kept of what is read.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NO_JAR = "-"
SPARK3 = "pipeline.spark3"
# A sum of 64-bit numbers as a decimal: the same in every Spark, whatever it does on overflow.
CHECKS = (
    "count(1) AS rows",
    "count(DISTINCT __messageId) AS ids",
    "CAST(sum(CAST(xxhash64(value) AS DECIMAL(38, 0))) AS STRING) AS sum",
)


def session(jar: str, directory: str, cores: str) -> SparkSession:
    """The same settings with every Spark; with the connector, or with the data source `vela`."""
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    settings = {
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={directory}",
        "spark.local.dir": directory,
        # As `pipeline.session` sets it; Spark 3.4 does not know it.
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.warehouse.dir": f"{directory}/warehouse",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    if jar != NO_JAR:
        settings["spark.jars"] = jar
    builder = SparkSession.builder.master(f"local[{cores}]").appName("bench")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    if jar == NO_JAR:
        from pipeline.source import register

        register(spark)
    return spark


def read(spark: SparkSession, request: dict[str, Any]) -> dict[str, Any]:
    """Read everything the options ask for, once."""
    begun = time.monotonic()
    frame = _frame(spark, request["format"], request["options"])
    if request["check"]:
        found = frame.selectExpr(*CHECKS).first()
        assert found is not None
        answer = found.asDict()
    else:
        answer = {"rows": _read_and_forget(frame)}
    return answer | {"seconds": time.monotonic() - begun}


def _frame(spark: SparkSession, form: str, options: dict[str, str]) -> DataFrame:
    if form != SPARK3:
        return spark.read.format(form).options(**options).load()
    from pipeline import spark3

    return spark3.read(spark, **options)


def _read_and_forget(frame: DataFrame) -> int:
    """All columns of all rows into nothing; how many rows there were."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    seen = Observation()
    counted = frame.observe(seen, f.count(f.lit(1)).alias("rows"))
    counted.write.format("noop").mode("overwrite").save()
    return int(seen.get["rows"])


def main(jar: str, answers_fd: str, directory: str, cores: str) -> None:
    """Answer requests until there are no more."""
    with os.fdopen(int(answers_fd), "w", encoding="utf-8", buffering=1) as answers:
        spark = session(jar, directory, cores)
        answers.write(json.dumps({"ready": spark.version}) + "\n")
        for line in sys.stdin:
            try:
                answer = read(spark, json.loads(line))
            except Exception as error:
                answer = {"failed": f"{type(error).__name__}: {str(error)[:1000]}"}
            answers.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
