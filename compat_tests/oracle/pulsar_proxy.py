"""A proxy of the Pulsar distribution (`bin/pulsar proxy`) in front of one server."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

from compat_tests.oracle.configuration import with_keys
from compat_tests.oracle.distribution import pulsar_home
from compat_tests.oracle.pulsar_broker import MEMORY
from compat_tests.oracle.server_process import ServerProcess
from runtime.testing.ports import free_ports

if TYPE_CHECKING:
    from pathlib import Path


class PulsarProxy(ServerProcess):
    """Ready when it takes connections, and answers an administrator as its server does."""

    name = "pulsar-proxy"
    is_oracle = True
    start_attempts = 2

    def __init__(
        self, directory: Path, behind: ServerProcess, configuration: dict[str, str]
    ) -> None:
        broker_port, web_port = free_ports(2)
        super().__init__(directory, broker_port, web_port, configuration)
        self._configuration_path = directory / "proxy.conf"
        keys: dict[str, object] = {
            "brokerServiceURL": behind.service_url,
            "brokerWebServiceURL": behind.web_url,
            "servicePort": broker_port,
            "webServicePort": web_port,
            "bindAddress": "127.0.0.1",
            "advertisedAddress": "127.0.0.1",
            "clusterName": "standalone",
            # By default no address of this machine is one to which a client may be connected.
            "brokerProxyAllowedTargetPorts": "*",
            "brokerProxyAllowedHostNames": "*",
            "brokerProxyAllowedIPAddresses": "*",
            **configuration,
        }
        stock = pulsar_home() / "conf" / "proxy.conf"
        self._configuration_path.write_text(with_keys(stock, keys))

    def is_ready(self) -> bool:
        """See the class."""
        try:
            with socket.create_connection(("127.0.0.1", self.broker_port), 1.0):
                pass
            status, _ = self.http("GET", "/admin/v2/clusters", timeout_seconds=2.0)
        except (OSError, ValueError):
            return False
        return status == 200

    def command(self) -> list[str]:
        """The command line."""
        return [str(pulsar_home() / "bin" / "pulsar"), "proxy"]

    def environment(self) -> dict[str, str]:
        """In addition to ours."""
        own = {
            "PULSAR_PROXY_CONF": str(self._configuration_path),
            "PULSAR_LOG_DIR": str(self.directory / "logs"),
            "PULSAR_LOG_LEVEL": "warn",
        }
        if "JAVA_HOME" in os.environ:
            own["JAVA_HOME"] = os.environ["JAVA_HOME"]
        return own | MEMORY

    def working_directory(self) -> Path:
        """Where the command runs."""
        return self.directory
