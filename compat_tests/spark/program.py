"""Plays Spark scenarios, one request per line; see clients/driver.py for the dialogue.

Runs in the environment of `environment.py`; its argument is the connector's jar. One session in
one JVM runs all scenarios of one server, because a JVM takes half a minute to get warm.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from compat_tests.spark.scenarios import SCENARIOS
from compat_tests.spark.stage import Stage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DRIVER_MEMORY = "1g"


def session(jar: str, directory: str) -> SparkSession:
    """A small local session with the connector."""
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    settings = {
        "spark.jars": jar,
        "spark.driver.memory": DRIVER_MEMORY,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-XX:TieredStopAtLevel=1 -Dderby.system.home={directory}",
        "spark.local.dir": directory,
        "spark.sql.warehouse.dir": f"{directory}/warehouse",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.stopTimeout": "30000",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master("local[2]").appName("compat")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def answers_only() -> TextIO:
    """The stream of answers; whatever else is written, by the JVM too, goes to the log."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return answers


def main(jar: str) -> None:
    """Answer requests until there are no more."""
    answers = answers_only()
    requests = os.fdopen(os.dup(sys.stdin.fileno()), encoding="utf-8")

    def tell(value: Any) -> None:
        answers.write(json.dumps(value) + "\n")

    def ask(whatever: str) -> None:
        tell({"ask": whatever})
        answer = requests.readline().strip()
        if answer != "done":
            raise RuntimeError(f"the driver answered {answer!r}")

    with tempfile.TemporaryDirectory(prefix="vela-compat-spark-") as directory:
        spark = session(jar, directory)
        for line in requests:
            request = json.loads(line)
            name = request["scenario"]
            own = Path(directory) / request["topic"].rpartition("/")[2]
            own.mkdir()
            stage = Stage(
                spark=spark,
                jar=jar,
                service_url=request["service_url"],
                web_url=request["web_url"],
                topic_base=request["topic"],
                directory=own,
                tell=tell,
                ask_of_server=ask,
            )
            try:
                try:
                    SCENARIOS[name].play(stage)
                finally:
                    stage.close()
            except Exception:
                tell({"end": "failed", "why": traceback.format_exc(limit=-6)[-3000:]})
            else:
                tell({"end": "ok"})


if __name__ == "__main__":
    main(sys.argv[1])
