"""Real Pulsar: `bin/pulsar standalone` without stream storage and functions worker.

Everything it writes (metadata, ledgers, logs, its generated configuration) stays below its own
directory, so several can run beside each other on the one unpacked distribution.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from compat_tests.oracle.configuration import with_keys
from compat_tests.oracle.distribution import pulsar_home
from compat_tests.oracle.ports import free_ports
from compat_tests.oracle.server_process import ServerProcess

if TYPE_CHECKING:
    from pathlib import Path

SMALL_HEAP = {
    "PULSAR_MEM": "-Xms256m -Xmx1g -XX:MaxDirectMemorySize=1g",
    # The quick compiler alone: a start takes a third less CPU time, and no scenario lasts long.
    "PULSAR_GC": "-XX:+UseParallelGC -XX:TieredStopAtLevel=1 -XX:+PerfDisableSharedMem",
}


# Printed whenever the broker sees the set of bookies change: two to four times at a start. After
# kill -9 it may see its only bookie come and go up to a hundred times a second, for a minute and
# more: one ledger is created then, and the next is refused ("Failed to find 1 bookies").
BOOKIES_CHANGED = "Failed to resolve network location"
BOOKIE_CHANGES_MAX = 20


class PulsarServer(ServerProcess):
    """`small` limits the heap for comparisons; a benchmark leaves the distribution's defaults."""

    name = "pulsar"
    is_oracle = True
    start_attempts = 4

    def __init__(
        self, directory: Path, configuration: dict[str, str] | None = None, small: bool = True
    ) -> None:
        broker_port, web_port, self.bookie_port = free_ports(3)
        super().__init__(directory, broker_port, web_port, configuration)
        self.home = pulsar_home()
        self._small = small
        self._configuration_path = directory / "standalone.conf"
        self._configuration_path.write_text(self._configuration_text())

    def command(self) -> list[str]:
        return [
            str(self.home / "bin" / "pulsar"),
            "standalone",
            "-nss",
            "-nfw",
            "--config",
            str(self._configuration_path),
            "--advertised-address",
            "127.0.0.1",
            "--bookkeeper-port",
            str(self.bookie_port),
            "--bookkeeper-dir",
            str(self.directory / "bookkeeper"),
            "--metadata-dir",
            str(self.directory / "metadata"),
        ]

    def environment(self) -> dict[str, str]:
        own = {
            "PULSAR_STANDALONE_CONF": str(self._configuration_path),
            "PULSAR_LOG_DIR": str(self.directory / "logs"),
            "PULSAR_LOG_LEVEL": "warn",
        }
        if self._small:
            own |= SMALL_HEAP
        if "JAVA_HOME" in os.environ:
            own["JAVA_HOME"] = os.environ["JAVA_HOME"]
        return own

    def flaw_of_start(self) -> str | None:
        changes = self.log_of_start().count(BOOKIES_CHANGED)
        if changes <= BOOKIE_CHANGES_MAX:
            return None
        return f"its broker saw its bookie come and go {changes} times"

    def working_directory(self) -> Path:
        return self.directory

    def _configuration_text(self) -> str:
        wanted = self.configuration | {
            "brokerServicePort": str(self.broker_port),
            "webServicePort": str(self.web_port),
            "bindAddress": "127.0.0.1",
            "advertisedAddress": "127.0.0.1",
            "httpServerEnabled": "false",
        }
        return with_keys(self.home / "conf" / "standalone.conf", wanted)
