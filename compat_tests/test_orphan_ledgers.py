"""`vela ledger orphans` on real ZooKeeper, where a node without a value may only be a parent."""

import json
import subprocess
import sys

import pytest
import trio

from broker.managed_ledger.ledger_record import LedgerRecord, encode_ledger_record
from broker.managed_ledger.ledger_table import LedgerRow
from broker.managed_ledger.owner_of_ledger import ledger_custom_metadata
from compat_tests.oracle.distribution import TREE
from compat_tests.oracle.zookeeper_server import ZooKeeperServer
from metadata.opening import open_store
from metadata.store import MUST_NOT_EXIST
from protocol.bookkeeper.ledger_metadata import LedgerMetadata, encode_ledger_metadata
from protocol.bookkeeper.paths import ledger_path

NAME = "public/default/persistent/used"
UNUSED = "public/default/persistent/unused"
OLD_MS = 1_700_000_000_000
CLOSED = {1: NAME, 2: NAME, 3: UNUSED}
OPEN = 5


@pytest.fixture
def url(tmp_path):
    server = ZooKeeperServer(tmp_path)
    server.start()
    yield f"zk:{server.hosts}"
    server.kill()


async def fill(url):
    store = await open_store(url, 10.0)
    record = encode_ledger_record(LedgerRecord([LedgerRow(1, 1, 1, OLD_MS), LedgerRow(OPEN)]))
    await store.put(f"/managed-ledgers/{NAME}", record, MUST_NOT_EXIST)
    await store.put(f"/managed-ledgers/{UNUSED}", b"", MUST_NOT_EXIST)
    for ledger_id, name in {**CLOSED, OPEN: NAME, 6: ""}.items():
        metadata = LedgerMetadata(
            ensemble_size=1,
            write_quorum_size=1,
            ack_quorum_size=1,
            ensembles={0: ("b:3181",)},
            ctime_ms=OLD_MS,
            custom_metadata=ledger_custom_metadata(name) if name else {"application": b"else"},
        )
        stored = metadata.closed(0, 1) if ledger_id in CLOSED else metadata
        await store.put(ledger_path(ledger_id), encode_ledger_metadata(stored), MUST_NOT_EXIST)
    await store.aclose()


async def change(url, path, value):
    store = await open_store(url, 10.0)
    await store.put(path, value, None)
    await store.aclose()


def orphans(url, *arguments):
    """(kind, ledger) of the rows, and the last line of stderr if it was refused."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "cli", "ledger", "orphans", *arguments),
            *("--json", "--metadata-store", url),
        ],
        cwd=TREE,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    refusal = done.stderr.splitlines()[-1] if done.returncode else ""
    return [(row["kind"], row["ledger"]) for row in rows], refusal


def test_orphans_are_listed_and_deleted_and_nothing_else_is(url):
    trio.run(fill, url)
    left = [("unknown", 6)]
    expected = [("orphan", 2), ("orphan", 3), *left]
    assert orphans(url) == (expected, "")
    trio.run(change, url, "/managed-ledgers/public/other/persistent/t", b"\xff\xff")
    for arguments in ((), ("--delete",)):
        rows, refusal = orphans(url, *arguments)
        assert rows == []
        assert "public/other/persistent/t" in refusal
    trio.run(change, url, "/managed-ledgers/public/other/persistent/t", b"")
    assert orphans(url) == (expected, "")
    assert orphans(url, "--delete") == ([("deleted", each) for each in (2, 3)], "")
    assert orphans(url) == (left, "")
