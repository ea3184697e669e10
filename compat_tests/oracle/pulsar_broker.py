"""A broker of the Pulsar distribution (`bin/pulsar broker`) on ZooKeeper and bookies that run."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING
from uuid import uuid4

from compat_tests.oracle.bookkeeper_shell import small_jvm
from compat_tests.oracle.configuration import properties, with_keys
from compat_tests.oracle.distribution import pulsar_home
from compat_tests.oracle.redirects import ask
from compat_tests.oracle.server_process import ServerProcess
from runtime.testing.ports import free_ports

if TYPE_CHECKING:
    from pathlib import Path

CLUSTER: str = "vela-test"
MEMORY = {
    "PULSAR_MEM": "-Xms128m -Xmx768m -XX:MaxDirectMemorySize=256m",
    "PULSAR_GC": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
}
STOCK_MEMORY = {"PULSAR_MEM": "-Xms64m -Xmx512m -XX:MaxDirectMemorySize=512m"}
INITIALISE_SECONDS_MAX = 300.0


def initialise_cluster(directory: Path, zookeeper: str, cluster: str = CLUSTER, *more: str) -> None:
    """`bin/pulsar initialize-cluster-metadata`: before the first bookie starts.

    `more`: further options of the command.
    """
    store = f"zk:{zookeeper}"
    done = subprocess.run(
        [
            str(pulsar_home() / "bin" / "pulsar"),
            "initialize-cluster-metadata",
            "--cluster",
            cluster,
            "--metadata-store",
            store,
            "--configuration-metadata-store",
            store,
            "--web-service-url",
            "http://127.0.0.1:1",
            "--broker-service-url",
            "pulsar://127.0.0.1:1",
            *more,
        ],
        cwd=directory,
        env=small_jvm(directory),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=INITIALISE_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stdout


class PulsarBroker(ServerProcess):
    """One broker of a cluster that is initialised and has a bookie, with one copy of each entry.

    `small` starts fast; a benchmark leaves the distribution's file and collector, and a gigabyte.
    """

    name = "pulsar-broker"
    is_oracle = True
    start_attempts = 2

    def __init__(
        self,
        directory: Path,
        zookeeper: str,
        configuration: dict[str, str] | None = None,
        small: bool = True,
        ports: tuple[int, int] | None = None,
    ) -> None:
        """`ports`: of the broker and of its web service; any free ones without."""
        broker_port, web_port = ports or free_ports(2)
        super().__init__(directory, broker_port, web_port, configuration)
        self.home = pulsar_home()
        self._memory = MEMORY if small else STOCK_MEMORY
        keys: dict[str, object] = {
            "metadataStoreUrl": f"zk:{zookeeper}",
            "configurationMetadataStoreUrl": f"zk:{zookeeper}",
            "clusterName": CLUSTER,
            "brokerServicePort": broker_port,
            "webServicePort": web_port,
            "bindAddress": "127.0.0.1",
            "advertisedAddress": "127.0.0.1",
            "numHttpServerThreads": 8,
            "managedLedgerDefaultEnsembleSize": 1,
            "managedLedgerDefaultWriteQuorum": 1,
            "managedLedgerDefaultAckQuorum": 1,
            "bookkeeperClientRegionawarePolicyEnabled": "false",
            "loadBalancerEnabled": "true",
            "systemTopicEnabled": "false",
            "topicLevelPoliciesEnabled": "false",
            "webSocketServiceEnabled": "false",
        }
        keys |= self.configuration
        self.broker_id = f"127.0.0.1:{web_port}"
        self._configuration_path = directory / "broker.conf"
        stock = self.home / "conf" / "broker.conf"
        self._configuration_path.write_text(properties(keys) if small else with_keys(stock, keys))

    def _can_make_a_topic(self) -> bool:
        """Another broker of the cluster may own it."""
        path = f"/admin/v2/persistent/public/default/ready-{self.web_port}-{uuid4().hex}"
        status, _ = ask(self, "PUT", path)
        if status >= 300:
            return False
        ask(self, "DELETE", path + "?force=true")
        return True

    def command(self) -> list[str]:
        return [str(self.home / "bin" / "pulsar"), "broker"]

    def environment(self) -> dict[str, str]:
        own = {
            "PULSAR_BROKER_CONF": str(self._configuration_path),
            "PULSAR_LOG_DIR": str(self.directory / "logs"),
            "PULSAR_LOG_LEVEL": "warn",
        }
        own |= self._memory
        if "JAVA_HOME" in os.environ:
            own["JAVA_HOME"] = os.environ["JAVA_HOME"]
        return own

    def working_directory(self) -> Path:
        return self.directory
