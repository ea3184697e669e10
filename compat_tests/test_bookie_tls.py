"""TLS between ledger clients and bookies, of Vela and of BookKeeper in any pair."""

from __future__ import annotations

import socket
from functools import partial

import pytest
import trio

from compat_tests.bookie_requests import stock_keys
from compat_tests.cluster_certificates import ClusterCertificates
from compat_tests.ledger_writing import ENTRIES, a_side
from compat_tests.oracle.apache_bookie import ApacheBookie
from compat_tests.oracle.bookkeeper_shell import BookKeeperShell
from compat_tests.oracle.vela_bookie import VelaBookie
from compat_tests.oracle.zookeeper_server import ZooKeeperServer
from ledgers.remote.start_tls import StartTls
from protocol.bookkeeper import messages as m
from protocol.bookkeeper import v2
from protocol.bookkeeper.packets import ResponseDecoder
from security.tls_client import TlsClientContexts

pytestmark = pytest.mark.slow

KEY = bytes(20)


class Cluster:
    def __init__(self, directory):
        self.zookeeper = ZooKeeperServer(directory / "zookeeper")
        self.certificates = ClusterCertificates(directory)
        keys = self.certificates.bookie_keys()
        self.vela = VelaBookie(directory / "vela", self.zookeeper.hosts, keys)
        self.apache = ApacheBookie(directory / "apache", self.zookeeper.hosts, keys)
        self.shell = BookKeeperShell(
            directory / "shell", stock_keys(self.vela) | self.certificates.tool_keys()
        )

    def start(self):
        self.zookeeper.start()
        made = self.shell.run("initnewcluster")
        assert made.returncode == 0, made.stdout
        self.vela.start()
        self.apache.start()

    def kill(self):
        for server in (self.vela, self.apache, self.zookeeper):
            server.kill()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    made = Cluster(tmp_path_factory.mktemp("tls"))
    try:
        made.start()
        yield made
    finally:
        made.kill()


async def test_velas_client_writes_to_bookies_of_both_kinds(cluster):
    contexts = TlsClientContexts(cluster.certificates.client_rules())
    async with a_side(cluster.zookeeper.hosts, partial(StartTls, contexts)) as side:
        with trio.fail_after(60):
            while len(side.pool.writable) < 2:  # noqa: ASYNC110 - processes register
                await trio.sleep(0.1)
        ledger_id = await side.a_ledger(sizes=(2, 2, 2))
        metadata = await side.metadata(ledger_id)
        assert set(metadata.ensembles[0]) == {cluster.vela.bookie_id, cluster.apache.bookie_id}
        assert await side.is_complete(ledger_id, without="")
    done = cluster.shell.run("readledger", "-ledgerid", str(ledger_id), "-msg")
    assert done.returncode == 0, done.stdout
    assert f"payload of {ENTRIES - 1}" in done.stdout


def test_bookkeepers_client_writes_to_bookies_of_both_kinds(cluster):
    done = cluster.shell.run(
        "simpletest", "-ensemble", "2", "-writeQuorum", "2", "-ackQuorum", "2", "-numEntries", "100"
    )
    assert done.returncode == 0, done.stdout
    assert "100 entries written" in done.stdout, done.stdout[-2000:]


def test_a_stranger_can_neither_add_nor_read_nor_fence(cluster):
    body = bytes(32)
    requests = (
        v2.encode_add_request_head(len(body), KEY) + body,
        v2.encode_read_request(0, 0),
        v2.encode_read_request(0, 0, flags=m.FENCING, master_key=KEY),
    )
    with socket.create_connection(("127.0.0.1", cluster.vela.port), timeout=20) as stranger:
        decoder = ResponseDecoder(2)
        for request in requests:
            stranger.sendall(request)
            answers = []
            while not answers:
                data = stranger.recv(65536)
                assert data
                answers = decoder.feed(data)
            assert [answer.status for answer in answers] == [m.UNAUTHORIZED]
