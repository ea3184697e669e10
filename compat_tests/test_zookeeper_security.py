"""Real ZooKeeper with TLS, credentials and access control lists."""

from __future__ import annotations

import pytest
import trio
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from compat_tests.cluster_certificates import ClusterCertificates
from compat_tests.oracle.zookeeper_server import ZooKeeperServer
from metadata import zookeeper_store
from metadata.opening import open_store
from metadata.store import MUST_NOT_EXIST, MetadataUnavailable

SECONDS = 10.0
NO_PERMISSION = r"no permission .*metadataStoreConfig"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return ClusterCertificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def zookeeper(certificates, tmp_path_factory):
    server = ZooKeeperServer(tmp_path_factory.mktemp("zookeeper"), tls=certificates.zookeeper_tls())
    server.start()
    yield server
    server.kill()


async def test_nodes_belong_to_the_user_who_made_them(zookeeper, certificates):
    own = certificates.zookeeper_access("vela", "sesame")
    url = f"zk:{zookeeper.tls_hosts}/tree"
    store = await open_store(url, SECONDS, own)
    stranger = certificates.zookeeper_access("eve", "guess")
    with pytest.raises(MetadataUnavailable, match=NO_PERMISSION):
        await open_store(url, SECONDS, stranger)
    other = await open_store(url.removesuffix("/tree"), SECONDS, stranger)
    seen = []
    stop = store.watch("/a", seen.append)
    try:
        await store.put("/a/b", b"1", MUST_NOT_EXIST)
        await store.put("/a/b", b"2", 0)
        assert await store.get("/a/b") == (b"2", 1)
        assert await store.next_sequence("/ids") == 0
        with trio.fail_after(10):
            while "/a/b" not in seen:  # noqa: ASYNC110
                await trio.sleep(0.01)
        for refused in (
            lambda: other.get("/tree/a/b"),
            lambda: other.put("/tree/a/b", b"3", None),
            lambda: other.delete("/tree/a/b", 1),
        ):
            with pytest.raises(MetadataUnavailable, match=NO_PERMISSION):
                await refused()
        again = await open_store(url, SECONDS, own)
        assert await again.get("/a/b") == (b"2", 1)
        await again.aclose()
    finally:
        stop()
        await store.aclose()
        await other.aclose()
    client = KazooClient(zookeeper.hosts)
    await trio.to_thread.run_sync(client.start)
    try:
        for path in ("/tree", "/tree/a", "/tree/a/b"):
            with pytest.raises(NoAuthError):
                client.get(path)
    finally:
        client.stop()
        client.close()


async def test_a_server_that_is_not_trusted_is_told(zookeeper, tmp_path_factory, monkeypatch):
    monkeypatch.setattr(zookeeper_store, "CONNECT_SECONDS_MAX", 3.0)
    stranger = ClusterCertificates(tmp_path_factory.mktemp("stranger"))
    with pytest.raises(MetadataUnavailable, match="certificate verify failed"):
        await open_store(
            f"zk:{zookeeper.tls_hosts}", SECONDS, stranger.zookeeper_access("vela", "sesame")
        )
