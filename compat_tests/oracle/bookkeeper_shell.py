"""`bin/bookkeeper shell` of the distribution, with a small heap, on a configuration of ours."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

from compat_tests.oracle.distribution import pulsar_home

if TYPE_CHECKING:
    from pathlib import Path

HEAP = "-Xms64m -Xmx256m -XX:TieredStopAtLevel=1"
COLLECTOR = "-XX:+UseSerialGC"
SECONDS_MAX = 300.0
_LOG4J = """
Configuration:
  Appenders:
    Console:
      name: Console
      target: SYSTEM_OUT
      PatternLayout:
        Pattern: "%-5level %c{1} - %m%n"
  Loggers:
    Root:
      level: info
      AppenderRef:
        - ref: Console
    Logger:
      - name: org.apache.zookeeper
        level: warn
"""


def small_jvm(log_directory: Path) -> dict[str, str]:
    """The environment of a tool of the distribution that needs little memory."""
    return dict(os.environ) | {
        "BOOKIE_LOG_DIR": str(log_directory / "logs"),
        "PULSAR_LOG_DIR": str(log_directory / "logs"),
        "BOOKIE_MEM": HEAP,
        "PULSAR_MEM": HEAP,
        "BOOKIE_GC": COLLECTOR,
        "PULSAR_GC": COLLECTOR,
    }


class BookKeeperShell:
    """Commands on one cluster, or on the files of one bookie."""

    def __init__(self, directory: Path, configuration: dict[str, object]) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._configuration_path = directory / "shell.conf"
        self._configuration_path.write_text(
            "".join(f"{key}={value}\n" for key, value in configuration.items())
        )
        self._log_configuration_path = directory / "log4j2.yaml"
        self._log_configuration_path.write_text(_LOG4J)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Output and error output together in `stdout`; any exit code."""
        environment = small_jvm(self._directory) | {
            "BOOKIE_CONF": str(self._configuration_path),
            "BOOKIE_LOG_CONF": str(self._log_configuration_path),
        }
        return subprocess.run(
            [str(pulsar_home() / "bin" / "bookkeeper"), "shell", *arguments],
            cwd=self._directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
