"""BookKeeper's own autorecovery on bookies of Vela: it copies what a lost one had, and the tools of
both find every copy. Nothing but ZooKeeper and the shell is BookKeeper's beside it."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import trio

from autorecovery.fragments import bookies_of
from compat_tests.ledger_writing import ENTRIES, a_side, until_auditor_is
from compat_tests.oracle.bookkeeper_shell import BookKeeperShell, Daemon
from compat_tests.oracle.distribution import TREE
from compat_tests.oracle.vela_bookie import VelaBookie
from compat_tests.oracle.zookeeper_server import ZooKeeperServer
from runtime.testing.ports import free_ports

pytestmark = pytest.mark.slow

BOOKIES = 3
LEDGERS = 3
"""That name the lost bookie. All three bookies are named by each pair of others."""
TRIES_MAX = 100


class Cluster:
    def __init__(self, directory):
        self.zookeeper = ZooKeeperServer(directory / "zookeeper")
        self.zookeeper.start()
        self.hosts = self.zookeeper.hosts
        self.uri = f"zk+hierarchical://{self.hosts}/ledgers"
        self.shell = BookKeeperShell(directory / "shell", {"metadataServiceUri": self.uri})
        self.bookies = [VelaBookie(directory / f"bookie-{n}", self.hosts) for n in range(BOOKIES)]
        (port,) = free_ports(1)
        self.name = f"127.0.0.1:{port}"
        self.recovery = Daemon(
            directory / "recovery",
            {
                "metadataServiceUri": self.uri,
                "bookieId": self.name,
                "bookiePort": port,
                "allowLoopback": "true",
                "zkTimeout": 5_000,
                "rwRereplicateBackoffMs": 500,
                "useV2WireProtocol": "true",
                "httpServerEnabled": "false",
            },
        )

    def told(self, *arguments):
        done = self.shell.run(*arguments)
        assert done.returncode == 0, done.stdout
        return done.stdout

    def kill(self):
        for server in (*self.bookies, self.zookeeper):
            server.kill()


@pytest.fixture
def cluster(tmp_path):
    cluster = Cluster(tmp_path)
    try:
        cluster.told("initnewcluster")
        with ThreadPoolExecutor() as pool:
            list(pool.map(VelaBookie.start, cluster.bookies))
        yield cluster
    finally:
        cluster.kill()


def vela_ledger(cluster, *arguments):
    """The lines of `vela ledger`, decoded."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "cli", "ledger", *arguments),
            *("--json", "--metadata-store", f"zk:{cluster.hosts}"),
        ],
        cwd=TREE,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


async def ledgers_of(cluster, lost):
    """Closed ledgers with two copies, so many of them with one on the bookie."""
    async with a_side(cluster.hosts) as side:
        named = []
        for _ in range(TRIES_MAX):
            ledger_id = await side.a_ledger(sizes=(2, 2, 2))
            if lost in bookies_of(await side.metadata(ledger_id)):
                named.append(ledger_id)
            if len(named) == LEDGERS:
                return named
    raise AssertionError("new ledgers do not use all bookies")


def test_bookkeeper_copies_what_a_lost_bookie_of_vela_had_and_both_find_all_copies(cluster):
    lost = cluster.bookies[0]
    ledger_ids = trio.run(ledgers_of, cluster, lost.bookie_id)
    with cluster.recovery.running("autorecovery"):
        until_auditor_is(cluster.hosts, cluster.name)
        lost.kill()

        async def complete():
            async with a_side(cluster.hosts) as side:
                await side.until_complete(ledger_ids, lost.bookie_id)

        trio.run(complete)
        assert cluster.name in cluster.told("whoisauditor")
    left = {bookie.bookie_id for bookie in cluster.bookies[1:]}
    payloads = [(b"payload of %d" % each).hex() for each in range(ENTRIES)]
    for ledger_id in ledger_ids:
        (metadata,) = vela_ledger(cluster, "metadata", str(ledger_id))
        assert {bookie for each in metadata["ensembles"].values() for bookie in each} == left
        assert metadata["state"] == "CLOSED"
    for bookie_id in left:
        arguments = ("--bookie", bookie_id, "--payload", "hex")
        rows = vela_ledger(cluster, "entries", str(ledger_ids[0]), *arguments)
        assert [row["payload"] for row in rows] == payloads
    assert "MissingReplica" not in cluster.told("listunderreplicated", "-printmissingreplica")
