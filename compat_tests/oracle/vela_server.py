"""Vela from this tree: `python -m cli standalone`, with the Python that runs the comparison."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from compat_tests.oracle.distribution import TREE
from compat_tests.oracle.server_process import ServerProcess
from runtime.testing.ports import free_ports

if TYPE_CHECKING:
    from pathlib import Path

READY_LINE = "vela standalone ready:"


class VelaServer(ServerProcess):
    """Ready when it has printed its ready line, and a client can use it, as for real Pulsar."""

    name = "vela"

    def __init__(self, directory: Path, configuration: dict[str, str] | None = None) -> None:
        broker_port, web_port = free_ports(2)
        super().__init__(directory, broker_port, web_port, configuration)

    def is_ready(self) -> bool:
        return READY_LINE in self.log_of_start() and super().is_ready()

    def command(self) -> list[str]:
        return [
            sys.executable,
            "-m",
            "cli",
            "standalone",
            "--data-dir",
            str(self.directory / "data"),
            "--broker-port",
            str(self.broker_port),
            "--web-port",
            str(self.web_port),
        ]

    def environment(self) -> dict[str, str]:
        return {f"PULSAR_PREFIX_{key}": value for key, value in self.configuration.items()}

    def working_directory(self) -> Path:
        return TREE
