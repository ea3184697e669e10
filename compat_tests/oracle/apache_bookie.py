"""A bookie of the Pulsar distribution, small enough for several on one machine, on loopback."""

from __future__ import annotations

import contextlib
import os
import socket
from typing import TYPE_CHECKING

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from compat_tests.oracle.configuration import properties, with_keys
from compat_tests.oracle.distribution import pulsar_home
from compat_tests.oracle.server_process import ServerProcess
from runtime.testing.ports import free_ports

if TYPE_CHECKING:
    from pathlib import Path

COOKIES = "/ledgers/cookies"
MEMORY = "-Xms64m -Xmx512m -XX:MaxDirectMemorySize=512m"
SMALL_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
SMALL_KEYS: dict[str, object] = {
    "zkTimeout": 10_000,
    "journalPreAllocSizeMB": 1,
    "dbStorage_writeCacheMaxSizeMb": 32,
    "dbStorage_readAheadCacheMaxSizeMb": 16,
    "dbStorage_rocksDB_blockCacheSize": 8 << 20,
    "entryLogFilePreallocationEnabled": "false",
}


class ApacheBookie(ServerProcess):
    """Ready when it accepts connections: BookKeeper registers before. The cluster must be
    initialised, with `bookkeeper shell initnewcluster` for instance.

    `small` takes little disk and starts fast; a benchmark leaves the distribution's file and
    collector. The memory is bounded in both cases.
    """

    name = "apache-bookie"
    is_oracle = True
    start_attempts = 2

    def __init__(
        self,
        directory: Path,
        zookeeper: str,
        configuration: dict[str, str] | None = None,
        small: bool = True,
        port: int | None = None,
    ) -> None:
        """`port`: that of another bookie whose place it takes; any free one without."""
        free_port, http_port = free_ports(2)
        self.port = port or free_port
        super().__init__(directory, self.port, http_port)
        self._zookeeper = zookeeper
        self.home = pulsar_home()
        self._small = small
        self.bookie_id = f"127.0.0.1:{self.port}"
        keys: dict[str, object] = {
            "bookiePort": self.port,
            "advertisedAddress": "127.0.0.1",
            "allowLoopback": "true",
            "metadataServiceUri": f"zk+hierarchical://{zookeeper}/ledgers",
            "journalDirectory": directory / "journal",
            "ledgerDirectories": directory / "ledgers",
            "ledgerStorageClass": "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage",
            "nettyMaxFrameSizeBytes": 5_253_120,
            "autoRecoveryDaemonEnabled": "false",
            "httpServerEnabled": "false",
            "prometheusStatsHttpPort": http_port,
            # The disk of a machine that runs tests may be rather full.
            "diskUsageThreshold": 0.999,
            "diskUsageWarnThreshold": 0.999,
            "minUsableSizeForIndexFileCreation": 1 << 20,
            "minUsableSizeForEntryLogCreation": 1 << 20,
        }
        if small:
            keys |= SMALL_KEYS
        keys |= configuration or {}
        self._configuration_path = directory / "bookkeeper.conf"
        stock = self.home / "conf" / "bookkeeper.conf"
        self._configuration_path.write_text(properties(keys) if small else with_keys(stock, keys))

    def command(self) -> list[str]:
        return [str(self.home / "bin" / "pulsar"), "bookie"]

    def environment(self) -> dict[str, str]:
        own = {
            "PULSAR_BOOKKEEPER_CONF": str(self._configuration_path),
            "PULSAR_LOG_DIR": str(self.directory / "logs"),
            "PULSAR_LOG_LEVEL": "warn",
            "PULSAR_MEM": MEMORY,
            "BOOKIE_MEM": MEMORY,
        }
        if self._small:
            own |= {"BOOKIE_GC": SMALL_JVM, "PULSAR_GC": SMALL_JVM}
        if "JAVA_HOME" in os.environ:
            own["JAVA_HOME"] = os.environ["JAVA_HOME"]
        return own

    def working_directory(self) -> Path:
        return self.directory

    def is_ready(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=2.0):
                return True
        except OSError:
            return False

    def prepare_another_start(self) -> None:
        """Delete the cookie of a bookie without data.

        BookKeeper creates it in ZooKeeper before it writes the copies in its directories. If the
        connection is lost at the first, it repeats the creation, and is refused for its own cookie.
        """
        if (self.directory / "journal" / "current" / "VERSION").exists():
            return
        client = KazooClient(self._zookeeper)
        client.start()
        try:
            with contextlib.suppress(NoNodeError):
                client.delete(f"{COOKIES}/{self.bookie_id}")
        finally:
            client.stop()
            client.close()
