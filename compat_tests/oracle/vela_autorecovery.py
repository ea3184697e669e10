"""Autorecovery of Vela from this tree: `python -m cli autorecovery`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from compat_tests.oracle.distribution import TREE
from compat_tests.oracle.server_process import ServerProcess

if TYPE_CHECKING:
    from pathlib import Path

READY_LINE = "vela autorecovery ready:"


class VelaAutorecovery(ServerProcess):
    """Ready when it has printed its ready line."""

    name = "vela-autorecovery"

    def __init__(
        self,
        directory: Path,
        name: str,
        zookeeper: str,
        configuration: dict[str, str] | None = None,
    ) -> None:
        super().__init__(directory, 0, 0)
        keys = {
            "bookieId": name,
            "allowLoopback": "true",
            "zkServers": zookeeper,
            "zkTimeout": 5_000,
            "openLedgerRereplicationGracePeriod": 1_000,
            **(configuration or {}),
        }
        self.configuration_path = directory / "bookkeeper.conf"
        self.configuration_path.write_text(
            "".join(f"{key}={value}\n" for key, value in keys.items())
        )

    def is_ready(self) -> bool:
        return READY_LINE in self.log_of_start()

    def command(self) -> list[str]:
        return [
            *(sys.executable, "-m", "cli", "autorecovery"),
            *("--config", str(self.configuration_path)),
        ]

    def environment(self) -> dict[str, str]:
        return {}

    def working_directory(self) -> Path:
        return TREE
