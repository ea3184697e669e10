"""A bookie of Vela from this tree: `python -m cli bookie`, on a bookkeeper.conf of its own."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from compat_tests.oracle.distribution import TREE
from compat_tests.oracle.server_process import ServerProcess
from runtime.testing.ports import free_ports

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

READY_LINE = "vela bookie ready:"


class VelaBookie(ServerProcess):
    """Ready when it has printed its ready line: it is registered then."""

    name = "vela-bookie"

    def __init__(
        self,
        directory: Path,
        zookeeper: str,
        configuration: Mapping[str, object] | None = None,
        port: int | None = None,
    ) -> None:
        """`port`: that of another bookie whose place it takes; any free one without."""
        free_port, http_port = free_ports(2)
        self.port = port or free_port
        super().__init__(directory, self.port, http_port)
        keys: dict[str, object] = {
            "bookiePort": self.port,
            "advertisedAddress": "127.0.0.1",
            "allowLoopback": "true",
            "zkServers": zookeeper,
            "zkTimeout": 5_000,
            "journalDirectories": directory / "journal",
            "ledgerDirectories": directory / "ledgers",
            "httpServerEnabled": "true",
            "httpServerPort": http_port,
            "journalPreAllocSizeMB": 1,
            # The disk of a machine that runs tests may be rather full.
            "diskUsageThreshold": 0.999,
            "diskUsageWarnThreshold": 0.999,
        }
        keys |= configuration or {}
        self.bookie_id = str(keys.get("bookieId", f"{keys['advertisedAddress']}:{self.port}"))
        self.configuration_path = directory / "bookkeeper.conf"
        self.configuration_path.write_text(
            "".join(f"{key}={value}\n" for key, value in keys.items())
        )

    def is_ready(self) -> bool:
        return READY_LINE in self.log_of_start()

    def command(self) -> list[str]:
        return [
            sys.executable,
            "-m",
            "cli",
            "bookie",
            "--config",
            str(self.configuration_path),
        ]

    def environment(self) -> dict[str, str]:
        return {}

    def working_directory(self) -> Path:
        return TREE
