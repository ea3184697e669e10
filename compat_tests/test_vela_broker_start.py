"""Starts of a broker that cannot be: each is refused in one line."""

import subprocess
import sys

import pytest

from compat_tests.oracle.distribution import TREE
from compat_tests.oracle.vela_broker import VelaBroker
from compat_tests.oracle.vela_cluster import VelaCluster
from compat_tests.oracle.zookeeper_server import ZooKeeperServer


@pytest.fixture
def zookeeper(tmp_path):
    server = ZooKeeperServer(tmp_path / "zookeeper")
    server.start()
    yield server
    server.kill()


def refusal_of(broker):
    """The one line of a broker that does not start."""
    done = subprocess.run(
        broker.command(), cwd=TREE, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    return done.stderr.strip().splitlines()[-1]


@pytest.mark.slow
def test_a_wrong_cluster_is_refused_in_one_line(zookeeper, tmp_path):
    cluster = VelaCluster(tmp_path, zookeeper)

    def refused(**keys):
        return refusal_of(VelaBroker(tmp_path / str(len(keys)), cluster.hosts, cluster.keys | keys))

    assert "it is not that of a cluster" in refused()
    cluster.initialize()
    line = refused(clusterName="other")
    assert "clusterName=other" in line
    assert "(test)" in line
    assert "no ZooKeeper answered" in refused(
        metadataStoreUrl="zk:127.0.0.1:1", clusterName="test", brokerServicePort=0
    )


def test_the_command_is_in_the_help():
    done = subprocess.run(
        [sys.executable, "-m", "cli", "broker", "--help"],
        cwd=TREE,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "--config" in done.stdout
