"""Requirements of the connector's jobs: an environment of their own, and the connector's jar.

Invariants: both stand in `.oracle/spark/`, made once for the versions pinned here; an environment
counts as made when the stamp with the lock file's checksum is written, a jar when its checksum is
the pinned one. pyspark 3.4 needs packages of its own, so it never shares Vela's environment.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from compat_tests.clients.driver import ClientAbsent
from compat_tests.oracle.distribution import ORACLE_DIRECTORY, OracleAbsent, require_java
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
INSTALL_TIMEOUT_SECONDS = 1200


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
    environment = DIRECTORY / "venv"
    python = environment / "bin" / "python"
    stamp = environment / "made-from"
    wanted = hashlib.sha512(REQUIREMENTS.read_bytes()).hexdigest()
    if stamp.is_file() and stamp.read_text() == wanted:
        return python
    shutil.rmtree(environment, ignore_errors=True)
    told = _run(sys.executable, "-m", "venv", str(environment))
    if not told:
        install = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        told = _run(str(python), *install, "--require-hashes", "-r", str(REQUIREMENTS))
    if told:
        raise ClientAbsent(f"the packages of {REQUIREMENTS.name} could not be installed: {told}")
    stamp.write_text(wanted)
    return python


def _run(*command: str) -> str:
    """The end of what the command printed when it failed, else nothing."""
    ran = subprocess.run(
        command,
        cwd=DIRECTORY,
        capture_output=True,
        text=True,
        timeout=INSTALL_TIMEOUT_SECONDS,
        check=False,
    )
    return (ran.stdout + ran.stderr).strip()[-2000:] if ran.returncode else ""
