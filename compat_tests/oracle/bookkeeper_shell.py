"""`bin/bookkeeper` of the distribution: shell, autorecovery and bookie, with little memory."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

from compat_tests.oracle.distribution import pulsar_home

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

HEAP = "-Xms64m -Xmx256m -XX:MaxDirectMemorySize=256m -XX:TieredStopAtLevel=1"
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


class Tool:
    """`bin/bookkeeper` with a configuration in a directory of its own."""

    def __init__(self, directory: Path, configuration: Mapping[str, object]) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        configuration_path = directory / "bookkeeper.conf"
        configuration_path.write_text(
            "".join(f"{key}={value}\n" for key, value in configuration.items())
        )
        log_configuration_path = directory / "log4j2.yaml"
        log_configuration_path.write_text(_LOG4J)
        self.program = str(pulsar_home() / "bin" / "bookkeeper")
        self.environment = small_jvm(directory) | {
            "BOOKIE_CONF": str(configuration_path),
            "BOOKIE_LOG_CONF": str(log_configuration_path),
        }


class BookKeeperShell(Tool):
    """Commands on one cluster, or on the files of one bookie."""

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Output and error output together in `stdout`; any exit code."""
        return subprocess.run(
            [self.program, "shell", *arguments],
            cwd=self.directory,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )


class Daemon(Tool):
    """A process of BookKeeper's: `autorecovery` or `bookie`."""

    @contextmanager
    def running(self, command: str) -> Iterator[subprocess.Popen[bytes]]:
        """For the duration of a block, unless it is ended before."""
        with open(self.directory / "server.log", "ab") as log:
            process = subprocess.Popen(
                [self.program, command],
                cwd=self.directory,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
