"""The metadata of a new cluster, made by Vela and by real Pulsar: equal trees, and brokers of each
on what the other made."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import trio

from compat_tests.oracle.distribution import TREE
from compat_tests.oracle.pulsar_broker import CLUSTER, PulsarBroker, initialise_cluster
from compat_tests.oracle.vela_bookie import VelaBookie
from compat_tests.oracle.vela_broker import VelaBroker
from compat_tests.oracle.zookeeper_server import ZooKeeperServer
from metadata.zookeeper_address import zookeeper_address
from metadata.zookeeper_store import ZooKeeperStore

FUNCTIONS = ("/pulsar", "/stream")
"""Of BookKeeper's stream storage: made by Pulsar only."""
BY_THE_FIRST_BOOKIE = ("/ledgers/LAYOUT", "/ledgers/cookies")
RANDOM = ("/ledgers/INSTANCEID",)


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory):
    server = ZooKeeperServer(tmp_path_factory.mktemp("zookeeper"))
    server.start()
    yield server
    server.kill()


def initialize(hosts, *more, cluster=CLUSTER):
    store = f"zk:{hosts}"
    return subprocess.run(
        [
            *(sys.executable, "-m", "cli", "initialize-cluster-metadata"),
            *("--cluster", cluster, "--metadata-store", store),
            *("--configuration-metadata-store", store),
            *("--web-service-url", "http://127.0.0.1:1"),
            *("--broker-service-url", "pulsar://127.0.0.1:1", *more),
        ],
        cwd=TREE,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def nodes(hosts):
    """Path -> value of every node; JSON is parsed."""

    async def read():
        store = await ZooKeeperStore.open(zookeeper_address(hosts, 30.0))
        found = {}
        try:
            pending = ["/"]
            while pending:
                path = pending.pop()
                stored = await store.get(path)
                if stored is not None:
                    found[path] = stored[0]
                names = await store.children(path)
                pending += [f"{path.rstrip('/')}/{name}" for name in names]
        finally:
            await store.aclose()
        return found

    return {
        path: json.loads(value) if value.startswith(b"{") else value
        for path, value in trio.run(read).items()
        if not path.startswith(FUNCTIONS)
    }


@pytest.fixture(scope="module")
def by_pulsar(zookeeper, tmp_path_factory):
    hosts = f"{zookeeper.hosts}/by-pulsar"
    initialise_cluster(tmp_path_factory.mktemp("by-pulsar"), hosts)
    return hosts


@pytest.fixture(scope="module")
def by_vela(zookeeper):
    hosts = f"{zookeeper.hosts}/by-vela"
    done = initialize(hosts)
    assert (done.returncode, done.stdout) == (0, "initialized\n"), done.stderr
    return hosts


def test_both_make_the_same(by_pulsar, by_vela):
    theirs, ours = nodes(by_pulsar), nodes(by_vela)
    # ZooKeeper has no difference between a parent and a node without content.
    theirs = {path: value for path, value in theirs.items() if value or path in ours}
    assert set(ours) - set(BY_THE_FIRST_BOOKIE) == set(theirs)
    for path in set(theirs) - set(RANDOM):
        assert ours[path] == theirs[path], path


def test_what_is_there_stays(by_pulsar, by_vela):
    before = nodes(by_pulsar), nodes(by_vela)
    assert "was initialized before" in initialize(by_vela).stdout
    done = initialize(by_pulsar)
    assert done.returncode == 0, done.stderr
    added = set(nodes(by_pulsar)) - set(before[0])
    assert added <= set(BY_THE_FIRST_BOOKIE)
    assert nodes(by_vela) == before[1]
    initialise_done = nodes(by_pulsar)
    assert {path: initialise_done[path] for path in before[0]} == before[0]


def test_another_cluster_is_one_line(by_vela):
    before = nodes(by_vela)
    done = initialize(by_vela, cluster="another")
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert f"that of another cluster ({CLUSTER})" in line
    assert nodes(by_vela) == before


def has_topic(broker):
    path = "/admin/v2/persistent/public/default/topic"
    status, body = broker.http("PUT", path)
    assert status < 300, body
    status, topics = broker.http("GET", "/admin/v2/persistent/public/default")
    return status == 200 and "persistent://public/default/topic" in topics


def test_a_broker_of_pulsar_starts_on_what_vela_made(by_vela, tmp_path):
    bookie = VelaBookie(tmp_path / "bookie", by_vela)
    broker = PulsarBroker(tmp_path / "broker", by_vela)
    try:
        bookie.start()
        broker.start()
        assert has_topic(broker)
        assert broker.http("GET", "/admin/v2/clusters")[1] == [CLUSTER]
    finally:
        broker.kill()
        bookie.kill()


def test_a_broker_of_vela_starts_on_what_pulsar_made(by_pulsar, tmp_path):
    bookie = VelaBookie(tmp_path / "bookie", by_pulsar)
    broker = VelaBroker(
        tmp_path / "broker",
        by_pulsar,
        {
            "clusterName": CLUSTER,
            "managedLedgerDefaultEnsembleSize": 1,
            "managedLedgerDefaultWriteQuorum": 1,
            "managedLedgerDefaultAckQuorum": 1,
        },
    )
    try:
        bookie.start()
        broker.start()
        assert has_topic(broker)
        assert broker.http("GET", "/admin/v2/clusters")[1] == [CLUSTER]
    finally:
        broker.kill()
        bookie.kill()
