"""ZooKeeper of the Pulsar distribution: one server, all data below its own directory."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

from compat_tests.oracle.distribution import pulsar_home
from compat_tests.oracle.server_process import ServerProcess
from runtime.testing.ports import free_ports

if TYPE_CHECKING:
    from pathlib import Path

HEAP = "-Xms64m -Xmx256m"
TICK_MS = 500
"""Sessions may be as short as two ticks."""
SESSION_MS_MAX = 120_000


class ZooKeeperServer(ServerProcess):
    """Ready when it answers the command `srvr` with its mode."""

    name = "zookeeper"
    is_oracle = True

    def __init__(
        self,
        directory: Path,
        session_ms_max: int = SESSION_MS_MAX,
        tls: tuple[str, str] | None = None,
    ) -> None:
        """`tls`: paths of the server's certificate with its key, and of the authorities of clients,
        who must show a certificate."""
        self.port, self.tls_port = free_ports(2)
        super().__init__(directory, self.port, 0)
        self.home = pulsar_home()
        self._configuration_path = directory / "zookeeper.conf"
        self._configuration_path.write_text(
            f"tickTime={TICK_MS}\n"
            f"maxSessionTimeout={session_ms_max}\n"
            f"dataDir={directory / 'data'}\n"
            f"clientPort={self.port}\n"
            "clientPortAddress=127.0.0.1\n"
            "maxClientCnxns=0\n"
            "admin.enableServer=false\n" + ("" if tls is None else self._tls_lines(*tls))
        )

    def _tls_lines(self, own: str, trusted: str) -> str:
        return (
            f"secureClientPort={self.tls_port}\n"
            "secureClientPortAddress=127.0.0.1\n"
            "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n"
            f"ssl.keyStore.location={own}\n"
            "ssl.keyStore.type=PEM\n"
            f"ssl.trustStore.location={trusted}\n"
            "ssl.trustStore.type=PEM\n"
            "ssl.clientAuth=need\n"
        )

    @property
    def tls_hosts(self) -> str:
        """The same, for those who have TLS."""
        return f"127.0.0.1:{self.tls_port}"

    @property
    def hosts(self) -> str:
        """For clients."""
        return f"127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        return [str(self.home / "bin" / "pulsar"), "zookeeper"]

    def environment(self) -> dict[str, str]:
        own = {
            "PULSAR_ZK_CONF": str(self._configuration_path),
            "PULSAR_LOG_DIR": str(self.directory / "logs"),
            "PULSAR_LOG_LEVEL": "warn",
            "PULSAR_MEM": HEAP,
            "PULSAR_GC": "-XX:+UseSerialGC",
        }
        if "JAVA_HOME" in os.environ:
            own["JAVA_HOME"] = os.environ["JAVA_HOME"]
        return own

    def working_directory(self) -> Path:
        return self.directory

    def is_ready(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=2.0) as connection:
                connection.sendall(b"srvr")
                return b"Mode:" in connection.recv(4096)
        except OSError:
            return False
