"""More of the stock `bookkeeper shell` on three bookies of Vela: what it says of the cluster and of
each bookie, ledgers that are deleted and restored, single copies, and the files of one bookie.

`test_bookie_process.py` has the commands that every operator uses, `test_autorecovery.py` those of
autorecovery.
"""

import re

import pytest

from compat_tests.bookie_requests import ENTRIES, ask, fill, in_zookeeper, read, shell_of
from compat_tests.oracle.vela_bookie import VelaBookie
from compat_tests.oracle.zookeeper_server import ZooKeeperServer
from metadata.store import MUST_NOT_EXIST
from protocol.bookkeeper import messages as m
from protocol.bookkeeper.ledger_metadata import LedgerMetadata, encode_ledger_metadata
from protocol.bookkeeper.paths import ledger_path

pytestmark = pytest.mark.slow

LEDGER_ID = 815


class Cluster:
    def __init__(self, directory):
        self.directory = directory
        self.zookeeper = ZooKeeperServer(directory / "zookeeper")
        self.bookies = [
            VelaBookie(directory / f"bookie-{number}", self.zookeeper.hosts) for number in range(3)
        ]
        self._shell = shell_of(directory / "shell", self.bookies[0])

    def start(self):
        self.zookeeper.start()
        self.told("initnewcluster")
        for bookie in self.bookies:
            bookie.start()

    def told(self, *arguments):
        """What a command printed that must succeed."""
        done = self._shell.run(*arguments)
        assert done.returncode == 0, done.stdout
        return done.stdout

    def add_ledger(self, ledger_id):
        """A closed ledger, with a copy of each entry on every bookie."""
        fill(self.bookies, ledger_id)
        length = sum(len(b"payload of %d" % entry_id) for entry_id in range(ENTRIES))
        opened = LedgerMetadata(
            ensemble_size=3,
            write_quorum_size=3,
            ack_quorum_size=2,
            ensembles={0: tuple(bookie.bookie_id for bookie in self.bookies)},
        )
        record = encode_ledger_metadata(opened.closed(ENTRIES - 1, length))
        path = ledger_path(ledger_id)
        in_zookeeper(self.zookeeper, lambda store: store.put(path, record, MUST_NOT_EXIST))

    def kill(self):
        for server in (*self.bookies, self.zookeeper):
            server.kill()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    made = Cluster(tmp_path_factory.mktemp("tools"))
    try:
        made.start()
        yield made
    finally:
        made.kill()


def test_the_shell_knows_where_a_bookie_listens_and_how_many_there_are(cluster):
    bookie = cluster.bookies[0]
    printed = cluster.told("endpointinfo", "-b", bookie.bookie_id)
    assert f"Address: 127.0.0.1 : {bookie.port}" in printed
    assert "Protocol: bookie-rpc" in printed
    assert f"Address: 127.0.0.1 : {bookie.web_port}" in printed
    counted = re.sub(r"\s", "", cluster.told("clusterinfo"))
    for count in ('"totalBookiesCount":3', '"writableBookiesCount":3', '"readonlyBookiesCount":0'):
        assert count in counted
    listed = cluster.told("listbookies", "-ro")
    assert not any(each.bookie_id in listed for each in cluster.bookies)


def test_every_copy_of_a_ledger_is_read_by_itself(cluster):
    cluster.add_ledger(LEDGER_ID)
    # Of one bookie, the shell of 4.17 leaves out the last entry that it is told.
    asked = ("-ledgerid", str(LEDGER_ID), "-firstentryid", "0", "-lastentryid", str(ENTRIES))
    for bookie in cluster.bookies:
        printed = cluster.told("readledger", "-msg", *asked, "-bookie", bookie.bookie_id)
        found = re.findall(rf"Lid={LEDGER_ID}, Eid=(\d+) ", printed)
        assert found == [str(entry_id) for entry_id in range(ENTRIES)]


def test_a_ledger_that_was_deleted_is_restored_from_its_metadata(cluster):
    ledger_id = LEDGER_ID + 1
    cluster.add_ledger(ledger_id)
    kept = str(cluster.directory / "metadata-of-the-ledger")
    name = ("-ledgerid", str(ledger_id))
    cluster.told("ledgermetadata", *name, "-dumptofile", kept)
    cluster.told("deleteledger", *name, "-force")
    assert f"ledgerID: {ledger_id}" not in cluster.told("listledgers")
    cluster.told("ledgermetadata", *name, "-restorefromfile", kept)
    listed = cluster.told("listledgers", "-bookieid", cluster.bookies[1].bookie_id)
    assert f"ledgerID: {ledger_id}" in listed
    # No bookie has collected it meanwhile: they compare with ZooKeeper at intervals.
    printed = cluster.told("readledger", *name, "-firstentryid", "3", "-lastentryid", "7")
    assert re.findall(rf"Lid={ledger_id}, Eid=(\d+),", printed) == ["3", "4", "5", "6", "7"]


def test_single_entries_and_indexes_are_found_in_the_files(cluster):
    bookie = cluster.bookies[0]
    known, unknown = LEDGER_ID + 2, LEDGER_ID + 3
    cluster.add_ledger(known)
    fill([bookie], unknown)
    assert bookie.stop() == 0
    listed = cluster.told("listfilesondisc", "-txn", "-log")
    journals = sorted((bookie.directory / "journal" / "current").glob("*.txn"))
    logs = sorted((bookie.directory / "ledgers" / "current").glob("*.log"))
    assert all(str(path) in listed for path in (*journals, *logs))
    log = logs[-1].stem
    one = ("-ledgerid", str(known), "-entryid", "7")
    printed = cluster.told("readlog", "-msg", *one, log)
    assert re.findall(rf"Lid={known}, Eid=(\d+),", printed) == ["7"]
    assert "payload of 7" in printed
    # Those of its ledgers that ZooKeeper knows.
    active = cluster.told("activeledgers", "-logId", str(int(log, 16)), "-timeout", "30000")
    numbers = set(re.findall(r"- (\d+) *$", active, re.MULTILINE))
    assert str(known) in numbers
    assert str(unknown) not in numbers
    assert "ERROR" not in cluster.told("check-db-ledgers-index")
    bookie.start()
    [answer] = ask(bookie.port, read(unknown, 7))
    assert answer.status == m.OK
