"""Real Pulsar in one process, of either release, without stream storage and functions worker.

Everything it writes (metadata, ledgers, logs, its generated configuration) stays below its own
directory, so several can run beside each other on what was fetched once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compat_tests.oracle.releases import FIRST, Release
from compat_tests.oracle.server_process import ServerProcess
from runtime.testing.ports import free_ports

if TYPE_CHECKING:
    from pathlib import Path

# Printed whenever the broker sees the set of bookies change: two to four times at a start. After
# kill -9 it may see its only bookie come and go up to a hundred times a second, for a minute and
# more: one ledger is created then, and the next is refused ("Failed to find 1 bookies").
BOOKIES_CHANGED = "Failed to resolve network location"
BOOKIE_CHANGES_MAX = 20


class PulsarServer(ServerProcess):
    """`small` limits the heap for comparisons; a benchmark leaves the distribution's defaults."""

    is_oracle = True
    start_attempts = 4

    def __init__(
        self,
        directory: Path,
        configuration: dict[str, str] | None = None,
        small: bool = True,
        release: Release = FIRST,
        name: str = "pulsar",
    ) -> None:
        """`name`: tells it apart from a server of another release beside it."""
        release.fetch()
        broker_port, web_port, self.bookie_port = free_ports(3)
        super().__init__(directory, broker_port, web_port, configuration)
        self.name = name
        self.release = release
        self._small = small
        self._configuration_path = directory / "standalone.conf"
        self._configuration_path.write_text(self._configuration_text())

    def command(self) -> list[str]:
        arguments = [
            *("--config", str(self._configuration_path)),
            *("--advertised-address", "127.0.0.1"),
            *("--bookkeeper-port", str(self.bookie_port)),
            *("--bookkeeper-dir", str(self.directory / "bookkeeper")),
            *("--metadata-dir", str(self.directory / "metadata")),
        ]
        return self.release.standalone_command(arguments, self._small)

    def environment(self) -> dict[str, str]:
        return self.release.standalone_environment(
            self._configuration_path, self.directory / "logs", self._small
        )

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
        return self.release.configuration(wanted)
