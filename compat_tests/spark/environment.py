"""Requirements of the connector's jobs: an environment of their own, and the connector's jar.

Invariants: both stand in `.oracle/spark/`, made once for the versions pinned here; the jar counts
as fetched when its checksum is the pinned one. pyspark 3.4 needs packages of its own, so it never
shares Vela's environment.
"""

from __future__ import annotations

import fcntl
from pathlib import Path

from compat_tests.clients.driver import ClientAbsent
from compat_tests.oracle.distribution import ORACLE_DIRECTORY, OracleAbsent, require_java
from compat_tests.oracle.environments import NotInstalled, python_of
from compat_tests.oracle.maven import NotFetched, fetched

CONNECTOR_VERSION = "3.1.1.4"
SPARK_VERSION = "3.4.4"
JAR_NAME = f"pulsar-spark-connector_2.12-{CONNECTOR_VERSION}.jar"
JAR_SHA512 = (
    "04622a3f1ef2c81ce4cfa6b230806bf1a1c1199fa13a6fbe8831fcdb3aa5addd"
    "0a3502d8e853f6d4552c2cd0f9f411e30d6b36a02c8ccc726f8854c03de37a9e"
)
MAVEN_ARTIFACT = f"io.streamnative.connectors:pulsar-spark-connector_2.12:{CONNECTOR_VERSION}:jar"
REQUIREMENTS = Path(__file__).resolve().parent / "requirements.lock"
DIRECTORY = ORACLE_DIRECTORY / "spark"


def spark_command() -> list[str]:
    """The command of the program that runs Spark scenarios; sets up what it needs first.

    Raises: ClientAbsent: Java, Maven or a package cannot be had.
    """
    try:
        require_java()
    except OracleAbsent as absent:
        raise ClientAbsent(str(absent)) from None
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    with open(DIRECTORY / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two runs at once set it up once
        jar, python = _jar(), _python()
    return [str(python), "-m", "compat_tests.spark.program", str(jar)]


def _jar() -> Path:
    try:
        return fetched(MAVEN_ARTIFACT, DIRECTORY / JAR_NAME, JAR_SHA512)
    except NotFetched as error:
        raise ClientAbsent(str(error)) from None


def _python() -> Path:
    try:
        return python_of(DIRECTORY / "venv", REQUIREMENTS)
    except NotInstalled as error:
        raise ClientAbsent(str(error)) from None
