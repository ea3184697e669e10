"""A broker of a cluster from this tree: `python -m cli broker`, on a broker.conf of its own."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from compat_tests.oracle.distribution import TREE
from compat_tests.oracle.server_process import ServerProcess
from runtime.testing.ports import free_ports

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

READY_LINE = "vela broker ready:"


class VelaBroker(ServerProcess):
    """Ready when it has printed its ready line: it is a member of the cluster then."""

    name = "vela-broker"

    def __init__(
        self,
        directory: Path,
        zookeeper: str,
        configuration: Mapping[str, object] | None = None,
        ports: tuple[int, int] | None = None,
    ) -> None:
        """`ports`: of the broker and of its web service; any free ones without."""
        broker_port, web_port = ports or free_ports(2)
        super().__init__(directory, broker_port, web_port)
        keys: dict[str, object] = {
            "brokerServicePort": broker_port,
            "webServicePort": web_port,
            "metadataStoreUrl": f"zk:{zookeeper}",
            "clusterName": "test",
        }
        keys |= configuration or {}
        self.broker_id = f"127.0.0.1:{web_port}"
        self.configuration_path = directory / "broker.conf"
        self.configuration_path.write_text(
            "".join(f"{key}={value}\n" for key, value in keys.items())
        )

    def is_ready(self) -> bool:
        return READY_LINE in self.log_of_start()

    def command(self) -> list[str]:
        return [sys.executable, "-m", "cli", "broker", "--config", str(self.configuration_path)]

    def environment(self) -> dict[str, str]:
        return {}

    def working_directory(self) -> Path:
        return TREE
