"""`vela autorecovery` and `vela bookie-decommission` on bookies of BookKeeper: lost ones are
replaced and retired ones leave, told by BookKeeper's shell or by our command."""

import re
import subprocess
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest
import trio

from autorecovery.fragments import bookies_of
from compat_tests.ledger_writing import WAIT_SECONDS_MAX, a_side, until_auditor_is
from compat_tests.oracle.apache_bookie import ApacheBookie
from compat_tests.oracle.bookkeeper_shell import BookKeeperShell
from compat_tests.oracle.distribution import TREE
from compat_tests.oracle.vela_autorecovery import VelaAutorecovery
from compat_tests.oracle.zookeeper_server import ZooKeeperServer
from runtime.testing.ports import free_ports

pytestmark = pytest.mark.slow

BOOKIES = 5
LEDGERS = 3
"""That name a bookie that goes."""
TRIES_MAX = 200
OURS = "vela-recovery:1"
DELAY_SECONDS = 3_600


class Cluster:
    def __init__(self, directory):
        self.zookeeper = ZooKeeperServer(directory / "zookeeper")
        self.zookeeper.start()
        self.hosts = self.zookeeper.hosts
        self.uri = f"zk+hierarchical://{self.hosts}/ledgers"
        self.shell = BookKeeperShell(
            directory / "shell", {"metadataServiceUri": self.uri, "useV2WireProtocol": "true"}
        )
        keys = {"zkTimeout": "5000"}
        self.bookies = [
            ApacheBookie(directory / f"bookie-{n}", self.hosts, keys) for n in range(BOOKIES)
        ]
        (self.web_port,) = free_ports(1)
        http = {"httpServerEnabled": "true", "httpServerPort": str(self.web_port)}
        self.ours = VelaAutorecovery(directory / "ours", OURS, self.hosts, http)

    def told(self, *arguments):
        done = self.shell.run(*arguments)
        assert done.returncode == 0, done.stdout
        return done.stdout

    def kill(self):
        for server in (*self.bookies, self.ours, self.zookeeper):
            server.kill()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    cluster = Cluster(tmp_path_factory.mktemp("recovery"))
    try:
        cluster.told("initnewcluster")
        with ThreadPoolExecutor() as pool:
            list(pool.map(ApacheBookie.start, cluster.bookies))
        cluster.ours.start()
        until_auditor_is(cluster.hosts, OURS)
        yield cluster
    finally:
        cluster.kill()


def ledgers_on(cluster, bookie):
    """Closed ledgers with two copies, so many of them with one on the bookie."""

    async def write():
        async with a_side(cluster.hosts) as side:
            named = []
            for _ in range(TRIES_MAX):
                ledger_id = await side.a_ledger(sizes=(2, 2, 2))
                if bookie.bookie_id in bookies_of(await side.metadata(ledger_id)):
                    named.append(ledger_id)
                if len(named) == LEDGERS:
                    return named
        raise AssertionError("new ledgers do not use all bookies")

    return trio.run(write)


def until_complete(cluster, ledger_ids, without):
    async def complete():
        async with a_side(cluster.hosts) as side:
            await side.until_complete(ledger_ids, without.bookie_id)

    trio.run(complete)


def are_complete(cluster, ledger_ids, without):
    """Whether every copy of each is there now, and none on the bookie."""

    async def look():
        async with a_side(cluster.hosts) as side:
            return all([await side.is_complete(each, without.bookie_id) for each in ledger_ids])

    return trio.run(look)


def until_audits_wait(cluster, count):
    """Until the auditor has put off so many audits."""

    def delayed():
        url = f"http://127.0.0.1:{cluster.web_port}/metrics"
        with urllib.request.urlopen(url, timeout=10) as answer:
            page = answer.read().decode()
        found = re.search(r"^auditor_NUM_BOOKIE_AUDITS_DELAYED (\d+)$", page, re.MULTILINE)
        return int(found[1])

    async def wait():
        with trio.fail_after(WAIT_SECONDS_MAX):
            while delayed() < count:  # noqa: ASYNC110
                await trio.sleep(0.2)

    trio.run(wait)


def has_cookie(cluster, bookie):
    return cluster.shell.run("cookie_get", bookie.bookie_id).returncode == 0


def vela_decommission(cluster, bookie):
    return subprocess.run(
        [
            *(sys.executable, "-m", "cli", "bookie-decommission"),
            *("--config", str(cluster.ours.configuration_path), "--bookie-id", bookie.bookie_id),
        ],
        cwd=TREE,
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS_MAX,
        check=False,
    )


def test_vela_copies_what_a_lost_bookie_of_bookkeeper_had_and_the_shell_lists_nothing(cluster):
    lost = cluster.bookies[0]
    ledger_ids = ledgers_on(cluster, lost)
    lost.kill()
    until_complete(cluster, ledger_ids, lost)
    told = cluster.told("listunderreplicated", "-printmissingreplica")
    assert "MissingReplica" not in told
    assert not re.search(rf"^\s*({'|'.join(map(str, ledger_ids))})\s*$", told, re.MULTILINE)


def test_the_shell_gives_a_bookie_time_to_come_back_and_retires_it_with_velas_auditor(cluster):
    cluster.told("lostbookierecoverydelay", "-set", str(DELAY_SECONDS))
    assert str(DELAY_SECONDS) in cluster.told("lostbookierecoverydelay", "-get")
    leaving = cluster.bookies[1]
    ledger_ids = ledgers_on(cluster, leaving)
    assert leaving.stop() is not None
    until_audits_wait(cluster, 1)
    assert not are_complete(cluster, ledger_ids, leaving)
    cluster.told("decommissionbookie", "-bookieid", leaving.bookie_id)
    assert are_complete(cluster, ledger_ids, leaving)
    assert not has_cookie(cluster, leaving)


def test_vela_retires_a_bookie_of_bookkeeper_when_the_shell_has_switched_replication_on(cluster):
    cluster.told("autorecovery", "-disable")
    leaving = cluster.bookies[2]
    ledger_ids = ledgers_on(cluster, leaving)
    done = vela_decommission(cluster, leaving)
    assert "is running: stop it first" in done.stderr
    assert leaving.stop() is not None
    done = vela_decommission(cluster, leaving)
    assert done.returncode == 1
    assert "replication is switched off" in done.stderr
    assert has_cookie(cluster, leaving)
    cluster.told("autorecovery", "-enable")
    done = vela_decommission(cluster, leaving)
    assert done.returncode == 0, done.stderr
    assert "has left" in done.stdout
    assert are_complete(cluster, ledger_ids, leaving)
    assert not has_cookie(cluster, leaving)
