"""The cluster that suffers: two or three brokers, three or four bookies behind proxies, real
ZooKeeper.

Each bookie has a loopback address of its own. A proxy listens there, at the bookie's port; the
bookie itself listens at 127.0.0.1 and advertises the other address. So all connections of brokers
go through the proxy. Apache's bookies listen where they advertise, so they have no proxy.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, final

from kazoo.client import KazooClient

from compat_tests.oracle.apache_bookie import ApacheBookie
from compat_tests.oracle.shadows import make_shadow, spread_bundles, topic_on
from compat_tests.oracle.vela_bookie import VelaBookie
from compat_tests.oracle.vela_cluster import VelaCluster
from tests.cluster_faults.file_systems import mount_small, unmount, used_share
from tests.cluster_faults.load import wait_until
from tests.cluster_faults.plan import FOLLOWED, TOPICS

if TYPE_CHECKING:
    from pathlib import Path

    from compat_tests.oracle.server_process import ServerProcess
    from compat_tests.oracle.vela_broker import VelaBroker
    from compat_tests.oracle.zookeeper_server import ZooKeeperServer
    from tests.cluster_faults.plan import Times
    from tests.cluster_faults.proxy import Proxies, Proxy

NAMESPACES: Final = {"public/default": False, "public/deduplicated": True}
"""Whether they have deduplication."""
_DEFAULT: Final = "persistent://public/default"
FULL_SHARE: Final = 0.5
"""Of a bookie's file system. Then the cluster is replaced by an empty one."""
_USAGE_THRESHOLD: Final = 0.93
_HEADROOM_BYTES: Final = 1 << 20
_TRACEBACK: Final = re.compile(
    r"^[ |+]*(?:Exception Group )?Traceback \(most recent call last\):\n(?:[ |].*\n)*(.*)$",
    re.MULTILINE,
)


def topics_of(kind: str, seed: int) -> dict[str, bool]:
    """Full names of the topics of a round -> whether they have deduplication."""
    if kind in FOLLOWED:
        return {f"{_DEFAULT}/{kind}-{seed}-0": False}
    namespaces = list(NAMESPACES.items())
    chosen = (namespaces[number % len(namespaces)] for number in range(TOPICS))
    return {
        f"persistent://{namespace}/{kind}-{seed}-{number}": has_deduplication
        for number, (namespace, has_deduplication) in enumerate(chosen)
    }


def rest_of(topic: str) -> str:
    """The path of a topic in the admin API."""
    return topic.replace("://", "/")


@final
class Member:
    """A bookie, with its proxy and its file system where it has them."""

    def __init__(
        self, server: VelaBookie | ApacheBookie, proxy: Proxy | None, data: Path | None
    ) -> None:
        self.server = server
        self.proxy = proxy
        self.data = data
        """Where its small file system is."""

    @property
    def bookie_id(self) -> str:
        """As brokers know it."""
        return self.server.bookie_id


@final
class FaultCluster:
    """See the module docstring. Use `start`, then `end`."""

    def __init__(
        self,
        directory: Path,
        zookeeper: ZooKeeperServer,
        proxies: Proxies,
        times: Times,
        *,
        quorums: str,
        bookies: int,
        brokers: int,
        has_small_disks: bool,
        has_apache_bookies: bool,
    ) -> None:
        self.zookeeper = zookeeper
        self.times = times
        self.directory = directory
        self._cluster = VelaCluster(directory, zookeeper, quorums)
        self._proxies = proxies
        self._count = bookies
        self._broker_count = brokers
        self._has_apache_bookies = has_apache_bookies
        self.has_small_disks = has_small_disks and not has_apache_bookies
        self.members: list[Member] = []
        self._cluster.keys |= {
            "metadataStoreSessionTimeoutMillis": int(1_000 * times.broker_session_seconds),
            "bookkeeperClientTimeoutInSeconds": times.add_timeout_seconds,
            "bookkeeperNumberOfChannelsPerBookie": 2,
            "bookkeeperClientHealthCheckQuarantineTimeInSeconds": times.quarantine_seconds,
            "managedLedgerMaxEntriesPerLedger": times.entries_per_ledger,
            "managedLedgerMinLedgerRolloverTimeMinutes": 0,
        }

    # --- start and end ------------------------------------------------------------------

    def start(self) -> None:
        """Return when topics can be served."""
        self._cluster.initialize()
        with ThreadPoolExecutor(self._count) as pool:
            self.members = [self._new_member(number) for number in range(self._count)]
            list(pool.map(lambda member: member.server.start(), self.members))
        for _ in range(self._broker_count):
            self._cluster.add_broker()
        for namespace, has_deduplication in NAMESPACES.items():
            path = f"/admin/v2/namespaces/{namespace}"
            if self.ask("GET", path)[0] == 404:
                self._must("PUT", path)
            if has_deduplication:
                self._must("POST", f"{path}/deduplication", body=True)
        self.wait_whole()

    def _new_member(self, number: int) -> Member:
        directory = self.directory / f"bookie-{number}"
        directory.mkdir(parents=True)
        if self._has_apache_bookies:
            return Member(ApacheBookie(directory, self._cluster.hosts), None, None)
        host = f"127.0.1.{1 + number}"
        check_ms = int(1_000 * self.times.disk_check_seconds)
        keys: dict[str, Any] = {
            "advertisedAddress": host,
            "bindAddress": "127.0.0.1",
            "zkTimeout": int(1_000 * self.times.bookie_session_seconds),
            "flushInterval": 1_000,
            "journalMaxSizeMB": 8,
            "journalMaxBackups": 0,
            "diskCheckInterval": check_ms,
        }
        data = directory / "data"
        if self.has_small_disks:
            mount_small(data)
            keys |= {
                "journalDirectories": data / "journal",
                "ledgerDirectories": data / "ledgers",
                "diskUsageThreshold": _USAGE_THRESHOLD,
                "diskUsageWarnThreshold": _USAGE_THRESHOLD,
                "minUsableSizeForHighPriorityWrites": _HEADROOM_BYTES,
            }
        server = VelaBookie(directory, self._cluster.hosts, keys)
        proxy = self._proxies.add((host, server.port), ("127.0.0.1", server.port))
        return Member(server, proxy, data if self.has_small_disks else None)

    def end(self) -> None:
        """Kill everything but ZooKeeper."""
        self._cluster.kill()
        for member in self.members:
            member.server.kill()
            if member.proxy is not None:
                self._proxies.close(member.proxy)
            if member.data is not None:
                unmount(member.data)

    @property
    def is_worn(self) -> bool:
        """An empty cluster should take its place."""
        return any(
            used_share(member.data) > FULL_SHARE
            for member in self.members
            if member.data is not None
        )

    # --- state --------------------------------------------------------------------------

    @property
    def brokers(self) -> list[VelaBroker]:
        """All of them, also those that are down."""
        return self._cluster.brokers

    @property
    def service_url(self) -> str:
        """Of all brokers, for clients."""
        return self._cluster.service_url

    @property
    def hosts(self) -> str:
        """Of the cluster's metadata in ZooKeeper."""
        return self._cluster.hosts

    def ask(
        self, method: str, path: str, body: object = None, *, of: VelaBroker | None = None
    ) -> tuple[int, Any]:
        """An administrative request to a broker, by default to one that runs."""
        broker = of or next(each for each in self.brokers if each.is_running())
        return broker.http(method, path, body, timeout_seconds=60.0)

    def _must(self, method: str, path: str, body: object = None) -> None:
        status, answer = self.ask(method, path, body)
        assert status < 300, (method, path, status, answer)

    def owner_of(self, topic: str) -> VelaBroker:
        """The broker that owns a topic."""
        status, answer = self.ask("GET", f"/lookup/v2/topic/{rest_of(topic)}")
        assert status == 200, answer
        return self._cluster.broker_at(answer["brokerUrl"])

    def other_than(self, broker: VelaBroker) -> VelaBroker:
        """Another one."""
        return next(each for each in self.brokers if each is not broker)

    def make_shadows(self, source: str) -> list[str]:
        """A shadow of a topic on each broker that does not own it. Returns their names."""
        spread_bundles(self._cluster)
        owner = self.owner_of(source)
        status, answer = self.ask("PUT", f"/admin/v2/{rest_of(source)}", of=owner)
        assert status < 300, answer
        prefix = f"{source.rpartition('/')[2]}-shadow"
        shadows: list[str] = []
        for broker in self.brokers:
            if broker is not owner:
                shadow = topic_on(self._cluster, broker, f"{prefix}-{len(shadows)}")
                make_shadow(broker, shadow, source)
                shadows.append(shadow)
        return shadows

    def statistics_of(self, topic: str, kind: str) -> dict[str, Any]:
        """What its owner says of a topic; empty while nobody does. `kind`: stats or
        internalStats."""
        status, answer = self.ask("GET", f"/lookup/v2/topic/{rest_of(topic)}")
        if status == 200:
            owner = self._cluster.broker_at(answer["brokerUrl"])
            if owner.is_running():
                status, answer = self.ask("GET", f"/admin/v2/{rest_of(topic)}/{kind}", of=owner)
                if status == 200:
                    return dict(answer)
        return {}

    def open_ledger(self, topic: str) -> tuple[int, list[Member]]:
        """(ledger id, its ensemble) to which a topic writes now."""
        status, answer = self.ask("GET", f"/admin/v2/{rest_of(topic)}/ledgerLayouts")
        assert status == 200, answer
        newest = answer["ledgers"][-1]
        by_id = {member.bookie_id: member for member in self.members}
        return newest["ledgerId"], [by_id[each] for each in newest["ensembles"][-1]["bookies"]]

    def registered_bookies(self) -> set[str]:
        """Ids of bookies that take entries, as ZooKeeper knows them."""
        client = KazooClient(self.hosts, timeout=10.0)
        client.start(60.0)
        try:
            return set(client.get_children("/ledgers/available")) - {"readonly"}
        finally:
            client.stop()
            client.close()

    def wait_whole(self) -> None:
        """Return when every process runs and knows the others. Raises: Stuck."""
        wanted = {member.bookie_id for member in self.members}
        wait_until("registration of all bookies", lambda: wanted <= self.registered_bookies())
        ids = sorted(broker.broker_id for broker in self.brokers)
        for broker in self.brokers:
            wait_until(
                "membership of all brokers",
                lambda broker=broker: (
                    _answer(broker, "/admin/v2/brokers") == ids
                    and _answer(broker, "/admin/v2/brokers/health") == "ok"
                ),
            )

    def log_places(self) -> dict[ServerProcess, int]:
        """How much each process has logged, in bytes."""
        return {each: len(each.log_path.read_bytes()) for each in self._processes()}

    def tracebacks_since(self, places: dict[ServerProcess, int]) -> list[str]:
        """The last lines of the tracebacks that were logged since."""
        return [
            f"{process.directory.name}: {found[1]}"
            for process, place in places.items()
            for found in _TRACEBACK.finditer(
                process.log_path.read_bytes()[place:].decode(errors="replace")
            )
        ]

    def process_ids(self) -> list[int]:
        """Of all that run, ZooKeeper included."""
        return [each.pid for each in (self.zookeeper, *self._processes()) if each.is_running()]

    def ended_processes(self) -> list[ServerProcess]:
        """Those that have ended and were not killed."""
        return [each for each in self._processes() if each.how_it_ended() is not None]

    def _processes(self) -> list[ServerProcess]:
        return [*self.brokers, *(member.server for member in self.members)]


def _answer(broker: VelaBroker, path: str) -> object:
    try:
        return broker.http("GET", path, timeout_seconds=10.0)[1]
    except OSError:
        return None
