"""The clusters of `make bench-cluster`: ZooKeeper, three bookies and a broker, as one subject each.

All three have a real ZooKeeper of their own, E/Qw/Qa 3/2/2, synced journals and the same keys. A
cluster is stopped by SIGSTOP as a whole while another one is measured, its ZooKeeper first to go on
and last to stop. Sessions last an hour on all sides, longer than any stop: ZooKeeper counts the
time in which it was stopped, and would end all sessions when it goes on. The other way, a start for
every round, would measure JVMs that are not warm, or spend most of a run on warming them.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, final

from bench.session import DISK_CONFIGURATION
from compat_tests.oracle.apache_bookie import ApacheBookie
from compat_tests.oracle.pulsar_broker import CLUSTER, PulsarBroker, initialise_cluster
from compat_tests.oracle.server_process import SHARED_CONFIGURATION
from compat_tests.oracle.vela_bookie import VelaBookie
from compat_tests.oracle.vela_broker import VelaBroker
from compat_tests.oracle.zookeeper_server import ZooKeeperServer

if TYPE_CHECKING:
    from pathlib import Path

    from compat_tests.oracle.server_process import ServerProcess

PULSAR: Final = "pulsar"
MIXED: Final = "vela broker"
VELA: Final = "vela"
CLUSTERS: Final = (PULSAR, MIXED, VELA)
BOOKIES: Final = 3
QUORUMS: Final = "3/2/2"
SESSION_MS: Final = 3_600_000
# Current files are kept after a round, so they are small on both sides.
BOOKIE_KEYS: Final = {
    **DISK_CONFIGURATION,
    "zkTimeout": str(SESSION_MS),
    "journalSyncData": "true",
    "journalPreAllocSizeMB": "16",
    "journalMaxSizeMB": "512",
    "logSizeLimit": str(512 * 2**20),
}
BROKER_KEYS: Final = {
    **SHARED_CONFIGURATION,
    "clusterName": CLUSTER,
    "metadataStoreSessionTimeoutMillis": str(SESSION_MS),
    "managedLedgerDefaultEnsembleSize": QUORUMS.split("/")[0],
    "managedLedgerDefaultWriteQuorum": QUORUMS.split("/")[1],
    "managedLedgerDefaultAckQuorum": QUORUMS.split("/")[2],
    # No bundle is closed in the middle of a round because much goes through it.
    "loadBalancerAutoBundleSplitEnabled": "false",
    "loadBalancerSheddingEnabled": "false",
}


@final
class BenchCluster:
    """A `Subject`. CPU and memory are those of broker and bookies; ZooKeeper is counted apart."""

    def __init__(self, name: str, directory: Path) -> None:
        """`directory` is made; `name` is one of CLUSTERS."""
        assert name in CLUSTERS, name
        self.name = name
        self.perf_arguments: list[str] = []
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.zookeeper = ZooKeeperServer(directory / "zookeeper", SESSION_MS)
        hosts = self.zookeeper.hosts
        places = [directory / f"bookie-{number}" for number in range(1, BOOKIES + 1)]
        place = directory / "broker"
        self.bookies: list[ServerProcess]
        self.broker: ServerProcess
        if name == VELA:
            self.bookies = [VelaBookie(each, hosts, BOOKIE_KEYS) for each in places]
        else:
            self.bookies = [ApacheBookie(each, hosts, BOOKIE_KEYS, small=False) for each in places]
        if name == PULSAR:
            self.broker = PulsarBroker(place, hosts, BROKER_KEYS, small=False)
        else:
            self.broker = VelaBroker(place, hosts, BROKER_KEYS)

    @property
    def has_jvms(self) -> bool:
        """Whether more than its ZooKeeper has to be warm."""
        return self.name != VELA

    @property
    def parts(self) -> list[ServerProcess]:
        """See Subject. In the order of their start."""
        return [self.zookeeper, *self.bookies, self.broker]

    @property
    def process_ids(self) -> list[int]:
        """See Subject."""
        return [pid for part in self.parts for pid in part.process_ids]

    @property
    def service_url(self) -> str:
        """See Subject."""
        return self.broker.service_url

    def start(self) -> None:
        """See Subject. The bookies start together."""
        try:
            self.zookeeper.start()
            initialise_cluster(self.directory, self.zookeeper.hosts)
            with ThreadPoolExecutor(BOOKIES) as pool:
                list(pool.map(lambda bookie: bookie.start(), self.bookies))
            self.broker.start()
        except BaseException:
            self.kill()
            raise

    def kill(self) -> None:
        """See Subject."""
        for part in reversed(self.parts):
            part.kill()

    def pause(self) -> None:
        """See Subject."""
        for part in reversed(self.parts):
            part.pause()

    def resume(self) -> None:
        """See Subject."""
        for part in self.parts:
            part.resume()

    def is_running(self) -> bool:
        """See Subject."""
        return all(part.is_running() for part in self.parts)

    def how_it_ended(self) -> str | None:
        """See Subject."""
        ends = [part.how_it_ended() for part in self.parts]
        return next((end for end in ends if end is not None), None)

    def log_tail(self, size_bytes: int = 3000) -> str:
        """See Subject. Of the part that ended, or of the broker."""
        ended = [part for part in self.parts if part.how_it_ended() is not None]
        return (ended or [self.broker])[0].log_tail(size_bytes)

    def http(
        self, method: str, path: str, body: Any = None, timeout_seconds: float = 15.0
    ) -> tuple[int, Any]:
        """See Subject."""
        return self.broker.http(method, path, body, timeout_seconds)

    def cpu_seconds(self) -> float:
        """See Subject. Without ZooKeeper."""
        return self.broker.cpu_seconds() + sum(bookie.cpu_seconds() for bookie in self.bookies)

    def cpu_by_kind(self) -> dict[str, float]:
        """See Subject."""
        return {
            "broker": self.broker.cpu_seconds(),
            "bookies": sum(bookie.cpu_seconds() for bookie in self.bookies),
            "ZooKeeper": self.zookeeper.cpu_seconds(),
        }

    def resident_bytes(self) -> int:
        """See Subject. Without ZooKeeper."""
        parts = [self.broker, *self.bookies]
        return sum(part.resident_bytes() for part in parts)
