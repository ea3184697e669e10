"""One cluster of both makes: a real ZooKeeper, bookies and brokers of the distribution and of Vela.

A member has a place: the ports of a broker, the port and directories of a bookie. Another member of
either make can take it after the first has stopped, as in an upgrade of one machine.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from compat_tests.oracle.apache_bookie import ApacheBookie
from compat_tests.oracle.pulsar_broker import CLUSTER, PulsarBroker, initialise_cluster
from compat_tests.oracle.vela_bookie import VelaBookie
from compat_tests.oracle.vela_broker import VelaBroker
from compat_tests.oracle.zookeeper_server import ZooKeeperServer
from runtime.testing.ports import free_ports

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from compat_tests.oracle.server_process import ServerProcess

Make = Literal["pulsar", "vela"]
Broker = PulsarBroker | VelaBroker
Bookie = ApacheBookie | VelaBookie


class SharedCluster:
    """Members are started one by one. `kill` ends what runs."""

    def __init__(self, directory: Path, keys: dict[str, str], quorums: str) -> None:
        """`keys`: of brokers of either make. `quorums`: ensemble, write and ack quorum."""
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.zookeeper = ZooKeeperServer(directory / "zookeeper")
        ensemble, write, ack = quorums.split("/")
        self.keys = {
            "managedLedgerDefaultEnsembleSize": ensemble,
            "managedLedgerDefaultWriteQuorum": write,
            "managedLedgerDefaultAckQuorum": ack,
        } | keys
        self.places = [(place[0], place[1]) for place in (free_ports(2), free_ports(2))]
        """Two places for brokers. Clients know both from the beginning."""
        self._bookie_ports: list[int] = []
        self.bookies: list[Bookie] = []
        """By place."""
        self.brokers: dict[int, Broker] = {}
        """By place: the one that was there last."""

    @property
    def service_url(self) -> str:
        """Both places, for clients."""
        return "pulsar://" + ",".join(f"127.0.0.1:{port}" for port, _web_port in self.places)

    @property
    def running(self) -> list[Broker]:
        """Brokers that run."""
        return [broker for broker in self.brokers.values() if broker.is_running()]

    def start_storage(self, bookies: Sequence[Make]) -> None:
        """ZooKeeper, the metadata of the cluster as Pulsar makes it, and these bookies."""
        self.zookeeper.start()
        initialise_cluster(self.directory, self.zookeeper.hosts)
        self._bookie_ports = free_ports(len(bookies))
        self.bookies = [self._bookie(make, place) for place, make in enumerate(bookies)]
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda bookie: bookie.start(), self.bookies))

    def _bookie(self, make: Make, place: int) -> Bookie:
        kind = VelaBookie if make == "vela" else ApacheBookie
        return kind(
            self.directory / f"bookie-{place}",
            self.zookeeper.hosts,
            port=self._bookie_ports[place],
        )

    def replace_bookie(self, place: int, make: Make) -> Bookie:
        """Stop the bookie in a place, and start one of this make on its directories and port."""
        self.bookies[place].stop()
        self.bookies[place] = self._bookie(make, place)
        self.bookies[place].start()
        return self.bookies[place]

    def add_bookie(self, make: Make) -> Bookie:
        """Start one more, on directories of its own."""
        self._bookie_ports += free_ports(1)
        self.bookies.append(self._bookie(make, len(self.bookies)))
        self.bookies[-1].start()
        return self.bookies[-1]

    def start_broker(self, make: Make, place: int = 0, **keys: str) -> Broker:
        """Start a broker of this make in a place that is free."""
        before = self.brokers.get(place)
        assert before is None or not before.is_running(), "the place is taken"
        broker: Broker
        keys = self.keys | keys
        directory = self.directory / f"broker-{place}-{make}"
        hosts, ports = self.zookeeper.hosts, self.places[place]
        if make == "vela":
            broker = VelaBroker(directory, hosts, {"clusterName": CLUSTER, **keys}, ports=ports)
        else:
            broker = PulsarBroker(directory, hosts, keys, ports=ports)
        self.brokers[place] = broker
        broker.start()
        return broker

    def broker_at(self, url: str) -> Broker:
        """The running broker with this URL of either kind."""
        (found,) = (each for each in self.running if url in (each.service_url, each.web_url))
        return found

    def kill(self) -> None:
        """End what runs."""
        servers: list[ServerProcess] = [*self.brokers.values(), *self.bookies, self.zookeeper]
        for server in servers:
            server.kill()


@contextmanager
def shared_cluster(
    directory: Path, keys: dict[str, str], *, bookies: Sequence[Make], quorums: str
) -> Iterator[SharedCluster]:
    """A cluster with storage and without brokers."""
    cluster = SharedCluster(directory, keys, quorums)
    try:
        cluster.start_storage(bookies)
        yield cluster
    finally:
        cluster.kill()
