"""What tests of bookies in a cluster ask them, the stock shell and ZooKeeper."""

import socket
import subprocess
import sys
import time

import trio

from compat_tests.oracle.bookkeeper_shell import BookKeeperShell
from compat_tests.oracle.distribution import TREE
from metadata.zookeeper_address import zookeeper_address
from metadata.zookeeper_store import ZooKeeperStore
from protocol.bookkeeper import messages as m
from protocol.bookkeeper import v2
from protocol.bookkeeper.digests import Digest, DigestType, master_key
from protocol.bookkeeper.packets import ResponseDecoder
from protocol.bookkeeper.paths import available_path

ENTRIES = 30
WAIT_SECONDS_MAX = 60.0
KEY = master_key(b"")
DIGEST = Digest(DigestType.CRC32C)


def stock_keys(bookie):
    """The configuration of a bookie of ours, for BookKeeper."""
    keys = dict(line.split("=", 1) for line in bookie.configuration_path.read_text().splitlines())
    keys |= {
        "ledgerStorageClass": "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage",
        "dbStorage_writeCacheMaxSizeMb": "16",
        "dbStorage_readAheadCacheMaxSizeMb": "16",
        "dbStorage_rocksDB_blockCacheSize": "1000000",
    }
    return keys


def shell_of(directory, bookie):
    """The stock shell with the configuration of a bookie of ours."""
    return BookKeeperShell(directory, stock_keys(bookie))


def ask(port, *requests):
    """Answers of a bookie, as version 2."""
    decoder, answers = ResponseDecoder(2), []
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(b"".join(requests))
        while len(answers) < len(requests):
            answers += decoder.feed(connection.recv(65536))
    return answers


def add(ledger_id, entry_id):
    payload = b"payload of %d" % entry_id
    length = sum(len(b"payload of %d" % each) for each in range(entry_id + 1))
    body = DIGEST.head(ledger_id, entry_id, entry_id - 1, length, payload) + payload
    return v2.encode_add_request_head(len(body), KEY) + body


def read(ledger_id, entry_id):
    return v2.encode_read_request(ledger_id, entry_id)


def fill(bookies, ledger_id, count=ENTRIES):
    for bookie in bookies:
        answers = ask(bookie.port, *(add(ledger_id, entry_id) for entry_id in range(count)))
        assert {answer.status for answer in answers} == {m.OK}


def in_zookeeper(zookeeper, call):
    """The result of a coroutine function that is given a store."""

    async def main():
        store = await ZooKeeperStore.open(zookeeper_address(zookeeper.hosts, 30.0))
        try:
            return await call(store)
        finally:
            await store.aclose()

    return trio.run(main)


def until(condition):
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def is_registered(zookeeper, bookie):
    return in_zookeeper(zookeeper, lambda store: store.exists(available_path(bookie.bookie_id)))


def refusal(bookie):
    """The line with which a bookie refuses to start."""
    done = subprocess.run(
        bookie.command(), cwd=TREE, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 1, done
    [line] = [each for each in done.stderr.splitlines() if each.startswith("vela: ")]
    assert "Traceback" not in done.stderr
    return line


def initialize(zookeeper, chroot):
    """Make a cluster by our own command. Returns what it printed."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "cli", "initialize-cluster-metadata"),
            *("--metadata-store", f"zk:{zookeeper.hosts}{chroot}"),
        ],
        cwd=TREE,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout
