"""Autorecovery of Vela and of BookKeeper on five bookies of Vela and one of BookKeeper, with real
ZooKeeper: each finishes what the other began, and the tools of BookKeeper's shell steer both."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import urllib.request

import pytest
import trio

from autorecovery.fragments import bookies_of
from autorecovery.marks import Marks
from compat_tests.ledger_writing import ENTRIES, a_side, until_auditor_is
from compat_tests.oracle.apache_bookie import ApacheBookie
from compat_tests.oracle.bookkeeper_shell import BookKeeperShell, Daemon
from compat_tests.oracle.distribution import TREE
from compat_tests.oracle.vela_autorecovery import VelaAutorecovery
from compat_tests.oracle.vela_bookie import VelaBookie
from compat_tests.oracle.zookeeper_server import ZooKeeperServer
from runtime.testing.ports import free_ports

BOOKIES = 5
LEDGERS = 6
OURS, THEIRS = "vela-recovery:1", "127.0.0.1:18181"
_FAMILY = re.compile(r"^# TYPE (\S+) ", re.MULTILINE)


class Cluster:
    def __init__(self, directory):
        self.directory = directory
        (directory / "zookeeper").mkdir()
        self.zookeeper = ZooKeeperServer(directory / "zookeeper")
        self.zookeeper.start()
        hosts = self.zookeeper.hosts
        self.shell = BookKeeperShell(
            directory / "shell", {"metadataServiceUri": f"zk+hierarchical://{hosts}/ledgers"}
        )
        self.bookies = [VelaBookie(directory / f"bookie-{n}", hosts) for n in range(BOOKIES)]
        self.apache = ApacheBookie(directory / "apache", hosts)
        self.our_port, self.their_port = free_ports(2)
        http = {"httpServerEnabled": "true", "httpServerPort": str(self.our_port)}
        self.ours = VelaAutorecovery(directory / "ours", OURS, hosts, http)
        self.theirs = Daemon(
            directory / "theirs",
            {
                "metadataServiceUri": f"zk+hierarchical://{hosts}/ledgers",
                "bookieId": THEIRS,
                "bookiePort": 18181,
                "allowLoopback": "true",
                "zkTimeout": 5_000,
                "openLedgerRereplicationGracePeriod": 1_000,
                "rwRereplicateBackoffMs": 500,
                "useV2WireProtocol": "true",
                "httpServerEnabled": "false",
                "statsProviderClass": (
                    "org.apache.bookkeeper.stats.prometheus.PrometheusMetricsProvider"
                ),
                "prometheusStatsHttpPort": self.their_port,
            },
        )

    def told(self, *arguments):
        done = self.shell.run(*arguments)
        assert done.returncode == 0, done.stdout
        return done.stdout

    def kill(self):
        for server in (*self.bookies, self.apache, self.ours, self.zookeeper):
            server.kill()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    cluster = Cluster(tmp_path_factory.mktemp("autorecovery"))
    try:
        cluster.told("initnewcluster")
        for bookie in (*cluster.bookies, cluster.apache):
            bookie.start()
        yield cluster
    finally:
        cluster.kill()


async def some_ledgers(side):
    """Closed ones and one that is open."""
    closed = [await side.a_ledger() for _ in range(LEDGERS)]
    closed.append(await side.a_ledger(sizes=(3, 3, 2)))
    return closed, await side.a_ledger(close=False)


def page(port, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
        return answer.read().decode()


def test_a_lost_bookie_is_replaced_and_the_shell_sees_who_does_it(cluster):
    cluster.ours.start()
    until_auditor_is(cluster.zookeeper.hosts, OURS)
    assert f"Auditor: {OURS}" in cluster.told("whoisauditor").replace("Auditor Bookie", "Auditor")
    lost = cluster.bookies[0]

    async def lose():
        async with a_side(cluster.zookeeper.hosts) as side:
            closed, still_open = await some_ledgers(side)
            lost.kill()
            await side.until_complete(closed, lost.bookie_id)
            metadata = await side.metadata(still_open)
            if metadata.is_closed:  # it named the lost bookie
                assert await side.is_complete(still_open, lost.bookie_id)
            return closed

    closed = trio.run(lose)
    told = cluster.told("ledgermetadata", "-ledgerid", str(closed[0]))
    assert lost.bookie_id not in told
    assert "state=CLOSED" in told
    printed = cluster.told("readledger", "-ledgerid", str(closed[0]), "-msg")
    assert f"payload of {ENTRIES - 1}" in printed
    assert "MissingReplica" not in cluster.told("listunderreplicated", "-printmissingreplica")
    api = "/api/v1/autorecovery"
    assert page(cluster.our_port, f"{api}/who_is_auditor") == f"Auditor: {OURS}"
    assert json.loads(page(cluster.our_port, f"{api}/status")) == {"enabled": True}
    written = re.search(
        r"^replication_worker_NUM_ENTRIES_WRITTEN (\d+)$",
        page(cluster.our_port, "/metrics"),
        re.MULTILINE,
    )
    assert int(written[1]) > 0


@pytest.mark.slow
def test_the_shell_switches_replication_off_and_bookkeeper_finishes_what_vela_marked(cluster):
    assert "disable" in cluster.told("autorecovery", "-disable").lower()
    lost = cluster.bookies[1]

    async def lose():
        async with a_side(cluster.zookeeper.hosts) as side:
            closed = [await side.a_ledger() for _ in range(LEDGERS)]
            for ledger_id in closed:
                if lost.bookie_id in bookies_of(await side.metadata(ledger_id)):
                    await Marks(side.store, "test").add(ledger_id, [lost.bookie_id], 1)
            lost.kill()
            return closed

    closed = trio.run(lose)
    listed = cluster.told("listunderreplicated", "-printmissingreplica")
    assert f"MissingReplica : {lost.bookie_id}" in listed
    assert cluster.ours.stop() == 0
    with cluster.theirs.running("autorecovery"):
        until_auditor_is(cluster.zookeeper.hosts, THEIRS)
        cluster.told("autorecovery", "-enable")

        async def complete():
            async with a_side(cluster.zookeeper.hosts) as side:
                await side.until_complete(closed, lost.bookie_id)

        trio.run(complete)
        theirs = set(_FAMILY.findall(page(cluster.their_port, "/metrics")))
        # Ours stands behind theirs, and takes over.
        cluster.ours.start()
        until_auditor_is(cluster.zookeeper.hosts, THEIRS)
        ours = set(_FAMILY.findall(page(cluster.our_port, "/metrics")))
        assert {name for name in ours if not name.startswith("vela_")} <= theirs
    until_auditor_is(cluster.zookeeper.hosts, OURS)


def decommission(cluster, bookie, *more):
    return subprocess.run(
        [
            *(sys.executable, "-m", "cli", "bookie-decommission"),
            *("--config", str(bookie.configuration_path), *more),
        ],
        cwd=TREE,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.slow
def test_a_bookie_leaves(cluster):
    """Bookies 0 and 1 are lost already. The shell's command, with our auditor; then ours."""
    leaving = cluster.bookies[0].bookie_id
    cluster.told("decommissionbookie", "-bookieid", leaving)
    assert cluster.shell.run("cookie_get", leaving).returncode != 0

    async def write():
        async with a_side(cluster.zookeeper.hosts) as side:
            return [await side.a_ledger(sizes=(2, 2, 2)) for _ in range(LEDGERS)]

    closed = trio.run(write)
    bookie = cluster.bookies[2]
    done = decommission(cluster, bookie)
    assert done.returncode == 1
    assert "is running: stop it first" in done.stderr
    assert len([line for line in done.stderr.splitlines() if line.startswith("vela: ")]) == 1
    assert bookie.stop() == 0
    done = decommission(cluster, bookie)
    assert done.returncode == 0, done.stderr
    assert "has left" in done.stdout
    assert cluster.shell.run("cookie_get", bookie.bookie_id).returncode != 0

    async def complete():
        async with a_side(cluster.zookeeper.hosts) as side:
            for ledger_id in closed:
                assert await side.is_complete(ledger_id, bookie.bookie_id)

    trio.run(complete)
    assert decommission(cluster, bookie).returncode == 1  # there is no such bookie


def test_zookeeper_that_is_out_of_reach_is_one_line(cluster, tmp_path):
    stray = VelaAutorecovery(tmp_path / "stray", "stray:1", f"{cluster.zookeeper.hosts}/none")
    begun = time.monotonic()
    done = subprocess.run(
        stray.command(), cwd=TREE, capture_output=True, text=True, timeout=300, check=False
    )
    assert time.monotonic() - begun < 120
    [line] = [each for each in done.stderr.splitlines() if each.startswith("vela: ")]
    assert "is not that of a cluster" in line
