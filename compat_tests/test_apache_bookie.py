"""What the tests need of a bookie of BookKeeper beside what it does by itself."""

from pathlib import Path

import pytest
from kazoo.client import KazooClient

from compat_tests.oracle.apache_bookie import COOKIES, ApacheBookie
from compat_tests.oracle.bookkeeper_shell import BookKeeperShell
from compat_tests.oracle.zookeeper_server import ZooKeeperServer


def test_a_bookie_that_left_nothing_but_a_cookie_is_started_again(tmp_path: Path):
    zookeeper = ZooKeeperServer(tmp_path / "zookeeper")
    bookie = ApacheBookie(tmp_path / "bookie", zookeeper.hosts)
    uri = f"zk+hierarchical://{zookeeper.hosts}/ledgers"
    shell = BookKeeperShell(tmp_path / "shell", {"metadataServiceUri": uri})
    try:
        zookeeper.start()
        assert shell.run("initnewcluster").returncode == 0
        client = KazooClient(zookeeper.hosts)
        client.start()
        client.create(f"{COOKIES}/{bookie.bookie_id}", b"5\n", makepath=True)
        client.stop()
        client.close()

        with pytest.warns(RuntimeWarning, match="Cookie"):
            bookie.start()
        assert bookie.is_running()
    finally:
        bookie.kill()
        zookeeper.kill()
