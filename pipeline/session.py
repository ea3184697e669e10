"""The Spark session of jobs and tests: small by default, and any cluster by `--master`.

Everything set here is a default: what `spark-submit` says, or `settings`, wins. When Delta Lake is
on the class path, the session knows its tables: the names of DELTA_SETTINGS are Delta's own.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

from py4j.java_gateway import JavaClass
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from pipeline.source import register

if TYPE_CHECKING:
    from collections.abc import Mapping

    from py4j.java_gateway import JVMView

MASTER_DEFAULT: Final = "local[2]"
_DEFAULTS: Final = {
    "spark.driver.memory": "1g",
    "spark.ui.enabled": "false",
    # Rows come from Python's workers over Unix sockets, which costs less than TCP.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "WARN",
}
_LOCAL_ONLY: Final = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
DELTA_SETTINGS: Final = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
# As few as the shuffle has: a table's log is read in so many tasks at every commit.
_DELTA_DEFAULTS: Final = {"spark.databricks.delta.snapshotPartitions": "2"}
_STARTED_BY_SPARK_SUBMIT: Final = "PYSPARK_GATEWAY_PORT"


def session(
    app_name: str, master: str = "", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """A session that knows the format `vela`."""
    # Local workers must find the packages of this environment, not those of the first python3.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if _STARTED_BY_SPARK_SUBMIT in os.environ:
        # What it was told is known to its JVM only; without one, `SparkConf` is empty.
        SparkContext._ensure_initialized()
    conf = SparkConf()
    chosen = master or conf.get("spark.master", MASTER_DEFAULT)
    defaults = _DEFAULTS | (_LOCAL_ONLY if str(chosen).startswith("local") else {})
    for name, value in defaults.items():
        conf.setIfMissing(name, value)
    for name, value in (settings or {}).items():
        conf.set(name, value)
    conf.setMaster(str(chosen)).setAppName(app_name)
    # The JVM comes first: only it can tell what is on the class path, and the extensions of a
    # session are settled when it begins.
    SparkContext._ensure_initialized(conf=conf)
    if has_delta(SparkContext._jvm):
        for name, value in (DELTA_SETTINGS | _DELTA_DEFAULTS).items():
            conf.setIfMissing(name, value)
    spark: SparkSession = SparkSession.builder.config(conf=conf).getOrCreate()
    register(spark)
    return spark


def has_delta(jvm: JVMView) -> bool:
    """Whether Delta Lake is on the class path of this JVM."""
    found = jvm
    for name in DELTA_SETTINGS["spark.sql.extensions"].split("."):
        found = getattr(found, name)
    return isinstance(found, JavaClass)
