"""The clusters on which the scenarios of clients run, by the names of `--cluster`.

Every one has real ZooKeeper and three bookies. Each process has a limit of memory: 256 MB for
ZooKeeper, 512 MB of heap and as much beside it for a bookie in Java, 1 GB for a broker in Java.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from compat_tests.oracle.apache_bookie import ApacheBookie
from compat_tests.oracle.cluster_server import ClusterServer
from compat_tests.oracle.distribution import TREE
from compat_tests.oracle.pulsar_broker import PulsarBroker, initialise_cluster
from compat_tests.oracle.server_process import SHARED_CONFIGURATION
from compat_tests.oracle.vela_bookie import VelaBookie
from compat_tests.oracle.vela_broker import VelaBroker
from compat_tests.oracle.zookeeper_server import ZooKeeperServer

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

BOOKIES: Final = 3
CLUSTER: Final = "standalone"
"""As in the configuration of standalone servers: answers may name it."""
BUNDLES: Final = "4"
"""Of public/default, as a standalone server makes it."""
SESSION_MS: Final = 15_000
"""Of brokers and bookies: one that was killed starts again only after its session has ended."""

AS_STANDALONE: Final[Mapping[str, object]] = {
    # What standalone.conf of the distribution has, and what PulsarBroker leaves out otherwise.
    "systemTopicEnabled": "true",
    "topicLevelPoliciesEnabled": "true",
    "backlogQuotaDefaultLimitGB": 10,
}


@dataclass(frozen=True)
class Layout:
    """Who serves what, and how many copies there are of an entry."""

    title: str
    broker: type[VelaBroker] | type[PulsarBroker]
    bookie: type[VelaBookie] | type[ApacheBookie]
    quorums: tuple[int, int, int]
    """Ensemble, write quorum, ack quorum."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Scenarios that are not for a cluster: name -> why."""

    @property
    def has_vela_broker(self) -> bool:
        """Whether its broker serves broadcast subscriptions."""
        return self.broker is VelaBroker

    def server(self, directory: Path, configuration: Mapping[str, str] | None) -> ClusterServer:
        """A cluster that has not started. Raises: OracleAbsent: the distribution is not here."""
        zookeeper = ZooKeeperServer(directory / "zookeeper")
        sessions = {"zkTimeout": str(SESSION_MS)}
        bookies = [
            self.bookie(directory / f"bookie-{number}", zookeeper.hosts, sessions)
            for number in range(BOOKIES)
        ]
        ensemble, write, ack = map(str, self.quorums)
        keys = {
            "clusterName": CLUSTER,
            "metadataStoreSessionTimeoutMillis": str(SESSION_MS),
            "managedLedgerDefaultEnsembleSize": ensemble,
            "managedLedgerDefaultWriteQuorum": write,
            "managedLedgerDefaultAckQuorum": ack,
        }
        keys |= SHARED_CONFIGURATION | dict(configuration or {})
        if not self.has_vela_broker:
            keys |= {key: str(value) for key, value in AS_STANDALONE.items()}
        broker = self.broker(directory / "broker", zookeeper.hosts, keys)

        def initialise() -> None:
            if self.has_vela_broker and self.bookie is VelaBookie:
                _initialise_by_vela(zookeeper.hosts)
            else:
                initialise_cluster(
                    directory,
                    zookeeper.hosts,
                    CLUSTER,
                    *("--default-namespace-bundle-number", BUNDLES),
                )

        return ClusterServer(directory, zookeeper, bookies, broker, initialise)


def _initialise_by_vela(zookeeper: str) -> None:
    subprocess.run(
        [
            *(sys.executable, "-m", "cli", "initialize-cluster-metadata"),
            *("--cluster", CLUSTER, "--metadata-store", f"zk:{zookeeper}"),
            *("--web-service-url", "http://127.0.0.1:1"),
            *("--broker-service-url", "pulsar://127.0.0.1:1"),
            *("--default-namespace-bundle-number", BUNDLES),
        ],
        cwd=TREE,
        check=True,
        capture_output=True,
    )


LAYOUTS: Final[Mapping[str, Layout]] = {
    "apache-bookies-3-2-2": Layout(
        "broker of Vela, bookies of BookKeeper, 3/2/2", VelaBroker, ApacheBookie, (3, 2, 2)
    ),
    "apache-bookies-3-3-2": Layout(
        "broker of Vela, bookies of BookKeeper, 3/3/2", VelaBroker, ApacheBookie, (3, 3, 2)
    ),
    "pulsar-broker-3-2-2": Layout(
        "broker of Pulsar, bookies of Vela, 3/2/2", PulsarBroker, VelaBookie, (3, 2, 2)
    ),
    "vela-3-2-2": Layout("broker and bookies of Vela, 3/2/2", VelaBroker, VelaBookie, (3, 2, 2)),
}
"""By the name that `--cluster` takes."""
