"""A cluster of this tree: brokers and bookies of Vela below one path of a real ZooKeeper."""

from __future__ import annotations

import itertools
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from compat_tests.oracle.distribution import TREE
from compat_tests.oracle.vela_bookie import VelaBookie
from compat_tests.oracle.vela_broker import VelaBroker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from compat_tests.oracle.zookeeper_server import ZooKeeperServer

SESSION_MS = 4_000
_numbers = itertools.count()


class VelaCluster:
    """Bookies and brokers that are started by `cluster_of`, or one by one."""

    def __init__(self, directory: Path, zookeeper: ZooKeeperServer, quorums: str = "1/1/1") -> None:
        """`quorums`: ensemble, write and ack quorum."""
        self.directory = directory
        self.zookeeper = zookeeper
        self.hosts = f"{zookeeper.hosts}/cluster-{next(_numbers)}"
        ensemble, write, ack = quorums.split("/")
        self.keys: dict[str, object] = {
            "metadataStoreSessionTimeoutMillis": SESSION_MS,
            "managedLedgerDefaultEnsembleSize": ensemble,
            "managedLedgerDefaultWriteQuorum": write,
            "managedLedgerDefaultAckQuorum": ack,
            "loadBalancerReportUpdateMinIntervalMillis": 500,
            # What was acknowledged is read again at the end of a test.
            "defaultRetentionTimeInMinutes": -1,
            "defaultRetentionSizeInMB": -1,
        }
        self.bookies: list[VelaBookie] = []
        self.brokers: list[VelaBroker] = []

    @property
    def service_url(self) -> str:
        """All brokers, for clients."""
        ports = ",".join(f"127.0.0.1:{broker.broker_port}" for broker in self.brokers)
        return f"pulsar://{ports}"

    def initialize(self) -> None:
        """Make the metadata of the cluster `test`."""
        subprocess.run(
            [
                *(sys.executable, "-m", "cli", "initialize-cluster-metadata"),
                *("--cluster", "test", "--metadata-store", f"zk:{self.hosts}"),
                *("--configuration-metadata-store", f"zk:{self.hosts}"),
                *("--web-service-url", "http://127.0.0.1:8080"),
                *("--default-namespace-bundle-number", "4"),
            ],
            cwd=TREE,
            check=True,
            capture_output=True,
        )

    def add_bookie(self) -> VelaBookie:
        """Start one more."""
        bookie = VelaBookie(self.directory / f"bookie-{len(self.bookies)}", self.hosts)
        self.bookies.append(bookie)
        bookie.start()
        return bookie

    def add_broker(self, **keys: object) -> VelaBroker:
        """Start one more, with other values of some keys."""
        directory = self.directory / f"broker-{len(self.brokers)}"
        broker = VelaBroker(directory, self.hosts, self.keys | keys)
        self.brokers.append(broker)
        broker.start()
        return broker

    def broker_at(self, url: str) -> VelaBroker:
        """The broker with this URL of either kind."""
        (found,) = (each for each in self.brokers if url in (each.service_url, each.web_url))
        return found

    def kill(self) -> None:
        """End what runs."""
        for server in (*self.brokers, *self.bookies):
            server.kill()


@contextmanager
def cluster_of(
    directory: Path,
    zookeeper: ZooKeeperServer,
    *,
    brokers: int,
    bookies: int = 1,
    quorums: str = "1/1/1",
) -> Iterator[VelaCluster]:
    """A running cluster."""
    cluster = VelaCluster(directory, zookeeper, quorums)
    try:
        cluster.initialize()
        for _ in range(bookies):
            cluster.add_bookie()
        for _ in range(brokers):
            cluster.add_broker()
        yield cluster
    finally:
        cluster.kill()
