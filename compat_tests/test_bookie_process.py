"""Bookies of Vela in a cluster of real ZooKeeper: the stock `bookkeeper shell` on their port, their
nodes in ZooKeeper and their files, and what becomes of them when something is lost."""

import re
import subprocess
import sys
from contextlib import contextmanager
from functools import partial

import pytest

from compat_tests.bookie_requests import (
    ENTRIES,
    add,
    ask,
    fill,
    in_zookeeper,
    initialize,
    is_registered,
    read,
    refusal,
    shell_of,
    stock_keys,
    until,
)
from compat_tests.oracle.bookkeeper_shell import Daemon, small_jvm
from compat_tests.oracle.distribution import TREE, pulsar_home
from compat_tests.oracle.vela_bookie import VelaBookie
from compat_tests.oracle.zookeeper_server import ZooKeeperServer
from metadata.store import MUST_NOT_EXIST
from protocol.bookkeeper import messages as m
from protocol.bookkeeper.ledger_metadata import (
    LedgerMetadata,
    LedgerState,
    decode_ledger_metadata,
    encode_ledger_metadata,
)
from protocol.bookkeeper.paths import available_path, ledger_path

LEDGER_ID = 4711


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory):
    server = ZooKeeperServer(tmp_path_factory.mktemp("zookeeper"))
    server.start()
    yield server
    server.kill()


@pytest.fixture(scope="module")
def bookies(zookeeper, tmp_path_factory):
    directory = tmp_path_factory.mktemp("bookies")
    second = directory / "bookie-1"
    several = {
        "bookieId": "shelf.2",
        "journalDirectories": f"{second}/journal-0,{second}/journal-1",
        "ledgerDirectories": f"{second}/ledgers-0,{second}/ledgers-1",
    }
    three = [
        VelaBookie(directory / f"bookie-{n}", zookeeper.hosts, several if n == 1 else None)
        for n in range(3)
    ]
    made = shell_of(directory / "shell", three[0]).run("initnewcluster")
    assert made.returncode == 0, made.stdout
    for bookie in three:
        bookie.start()
    yield three
    for bookie in three:
        bookie.kill()


@pytest.fixture(scope="module")
def shell(bookies, tmp_path_factory):
    """Runs a command that must succeed. Returns what it printed."""
    stock = shell_of(tmp_path_factory.mktemp("shell"), bookies[0])

    def run(*arguments):
        done = stock.run(*arguments)
        assert done.returncode == 0, done.stdout
        return done.stdout

    return run


def test_the_shell_finds_writes_and_reads(bookies, shell):
    listed = shell("listbookies", "-rw")
    assert all(f"BookieID:{bookie.bookie_id}, IP:127.0.0.1" in listed for bookie in bookies)
    quorums = ("-ensemble", "3", "-writeQuorum", "2", "-ackQuorum", "2")
    written = shell("simpletest", *quorums, "-numEntries", "100")
    assert "100 entries written to ledger" in written
    assert "Bookie sanity test succeeded" in shell("bookiesanity")
    space = shell("bookieinfo")
    assert space.count("Free: ") == 3
    cookie = shell("cookie_get", bookies[0].bookie_id)
    assert f'bookieHost: "{bookies[0].bookie_id}"' in cookie


def test_the_shell_recovers_and_reads_a_ledger_that_was_left_open(zookeeper, bookies, shell):
    fill(bookies, LEDGER_ID)
    metadata = LedgerMetadata(
        ensemble_size=3,
        write_quorum_size=3,
        ack_quorum_size=2,
        ensembles={0: tuple(bookie.bookie_id for bookie in bookies)},
        ctime_ms=1_700_000_000_000,
    )
    record = encode_ledger_metadata(metadata)
    path = ledger_path(LEDGER_ID)
    in_zookeeper(zookeeper, lambda store: store.put(path, record, MUST_NOT_EXIST))
    printed = shell("readledger", "-ledgerid", str(LEDGER_ID), "-msg", "-r")
    assert f"entry: {ENTRIES - 1}" in printed or f"Eid={ENTRIES - 1}," in printed
    assert f"payload of {ENTRIES - 1}" in printed
    stored, _version = in_zookeeper(zookeeper, lambda store: store.get(path))
    closed = decode_ledger_metadata(stored)
    assert (closed.state, closed.last_entry_id) == (LedgerState.CLOSED, ENTRIES - 1)
    told = shell("ledgermetadata", "-ledgerid", str(LEDGER_ID))
    assert "state=CLOSED" in told
    assert f"lastEntryId={ENTRIES - 1}" in told
    # The recovery fenced the ledger on every bookie.
    [late] = ask(bookies[0].port, add(LEDGER_ID, ENTRIES))
    assert late.status == m.FENCED


@pytest.mark.slow
def test_the_shell_reads_the_files(bookies, shell):
    bookie = bookies[0]
    fill([bookie], LEDGER_ID + 1)
    assert "LastLogMark : Journal Id" in shell("lastmark")
    assert bookie.stop() == 0
    marked = re.search(r"Journal Id - (\d+)\(", shell("lastmark"))[1]
    journals = sorted((bookie.directory / "journal" / "current").glob("*.txn"))
    assert int(journals[-1].stem, 16) == int(marked)
    printed = shell("readjournal", "-msg", str(int(journals[0].stem, 16)))
    assert f"Lid={LEDGER_ID + 1}, Eid={ENTRIES - 1}," in printed
    assert f"payload of {ENTRIES - 1}" in printed
    logs = sorted((bookie.directory / "ledgers" / "current").glob("*.log"))
    printed = "".join(shell("readlog", "-msg", each.stem) for each in logs)
    assert f"Lid={LEDGER_ID + 1}, Eid={ENTRIES - 1}," in printed
    assert f"payload of {ENTRIES - 1}" in printed
    assert f"Lid={LEDGER_ID + 1}, TotalSizeOfEntriesOfLedger" in shell(
        "readlogmetadata", logs[-1].stem
    )
    assert f"entry {ENTRIES - 1}\t" in shell("ledger", str(LEDGER_ID + 1))
    assert "Check passed" in shell("localconsistencycheck")
    # BookKeeper's RocksDB had our databases open, and this is still our directory.
    bookie.start()
    [answer] = ask(bookie.port, read(LEDGER_ID + 1, ENTRIES - 1))
    assert answer.body.endswith(b"payload of %d" % (ENTRIES - 1))


def test_the_index_of_a_process_is_built_again(bookies):
    bookie = bookies[1]
    fill([bookie], LEDGER_ID + 5)
    assert bookie.stop() == 0
    for each in range(2):
        (bookie.directory / f"ledgers-{each}" / "current" / "locations" / "CURRENT").unlink()
    assert "rebuild-index" in refusal(bookie)
    rebuild = [sys.executable, "-m", "cli", "bookie", "rebuild-index", "--config"]
    done = subprocess.run(
        [*rebuild, str(bookie.configuration_path)], cwd=TREE, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    bookie.start()
    answers = ask(bookie.port, *(read(LEDGER_ID + 5, entry_id) for entry_id in range(ENTRIES)))
    assert {answer.status for answer in answers} == {m.OK}


def test_a_bookie_that_stops_is_off_the_list_at_once(zookeeper, bookies):
    bookie = bookies[1]
    assert is_registered(zookeeper, bookie)
    assert bookie.stop() == 0
    assert not is_registered(zookeeper, bookie)
    bookie.start()
    assert is_registered(zookeeper, bookie)


def test_a_bookie_that_was_killed_waits_for_the_end_of_its_former_session(zookeeper, bookies):
    bookie = bookies[1]
    fill([bookie], LEDGER_ID + 2)
    bookie.kill()
    bookie.start()
    assert "a node of another session is waited for" in bookie.log_of_start()
    assert is_registered(zookeeper, bookie)
    answers = ask(bookie.port, *(read(LEDGER_ID + 2, entry_id) for entry_id in range(ENTRIES)))
    assert {answer.status for answer in answers} == {m.OK}


@pytest.mark.slow
def test_a_bookie_serves_without_zookeeper_and_registers_again(zookeeper, bookies):
    before = [bookie.log_of_start().count("bookie registered") for bookie in bookies]
    zookeeper.pause()
    try:
        until(lambda: all("no session with" in each.log_of_start() for each in bookies))
        fill(bookies[:1], LEDGER_ID + 3)
    finally:
        zookeeper.resume()
    for bookie, count in zip(bookies, before, strict=True):
        until(lambda b=bookie, n=count: b.log_of_start().count("bookie registered") > n)
        until(partial(is_registered, zookeeper, bookie))


def test_ledgers_that_are_deleted_in_zookeeper_are_collected(zookeeper, tmp_path):
    bookie = VelaBookie(tmp_path / "b", zookeeper.hosts, {"gcWaitTime": "500"})
    kept = encode_ledger_metadata(
        LedgerMetadata(
            ensemble_size=1,
            write_quorum_size=1,
            ack_quorum_size=1,
            ensembles={0: (bookie.bookie_id,)},
        )
    )

    async def make(store):
        for ledger_id in (8001, 8002):
            await store.put(ledger_path(ledger_id), kept, MUST_NOT_EXIST)

    in_zookeeper(zookeeper, make)
    bookie.start()
    try:
        fill([bookie], 8001, 3)
        fill([bookie], 8002, 3)
        in_zookeeper(zookeeper, lambda store: store.delete(ledger_path(8001)))
        until(lambda: ask(bookie.port, read(8001, 0))[0].status == m.NO_LEDGER)
        assert ask(bookie.port, read(8002, 0))[0].status == m.OK
    finally:
        bookie.kill()


@pytest.mark.slow
def test_bookkeepers_recovery_copies_the_ledgers_of_a_lost_bookie(zookeeper, tmp_path):
    """Two bookies are lost, one after the other: autorecovery sees to the first, `shell recover` to
    the second."""
    root = {"zkLedgersRootPath": "/recovery/ledgers"}
    bookies = [VelaBookie(tmp_path / f"b{n}", zookeeper.hosts, root) for n in range(4)]
    shell = shell_of(tmp_path / "shell", bookies[3])
    initialize(zookeeper, "/recovery")
    for bookie in bookies:
        bookie.start()
    first, second, *left = bookies
    paths = [f"/recovery{ledger_path(ledger_id)}" for ledger_id in (1, 2)]
    opened = LedgerMetadata(
        ensemble_size=2,
        write_quorum_size=2,
        ack_quorum_size=2,
        ensembles={0: (first.bookie_id, second.bookie_id)},
    )
    length = sum(len(b"payload of %d" % entry_id) for entry_id in range(ENTRIES))

    async def make(store):
        for path, metadata in zip(paths, (opened, opened.closed(ENTRIES - 1, length)), strict=True):
            await store.put(path, encode_ledger_metadata(metadata), MUST_NOT_EXIST)

    async def members(store):
        records = [decode_ledger_metadata((await store.get(path))[0]) for path in paths]
        return {
            each for record in records for bookies in record.ensembles.values() for each in bookies
        }

    try:
        for ledger_id in (1, 2):
            fill([first, second], ledger_id)
        in_zookeeper(zookeeper, make)
        keys = {
            "metadataServiceUri": f"zk+hierarchical://{zookeeper.hosts}/recovery/ledgers",
            "zkTimeout": 5_000,
            "openLedgerRereplicationGracePeriod": 1_000,
            "advertisedAddress": "127.0.0.1",
        }
        with Daemon(tmp_path / "autorecovery", keys).running("autorecovery"):
            until(lambda: "Auditor: " in shell.run("whoisauditor").stdout)
            first.kill()
            until(lambda: first.bookie_id not in in_zookeeper(zookeeper, members))
            # The worker takes the mark away only after it has changed the ensembles.
            until(lambda: "count: 0" in shell.run("listunderreplicated").stdout)
        second.kill()
        until(
            lambda: (
                not in_zookeeper(
                    zookeeper,
                    lambda store: store.exists(f"/recovery{available_path(second.bookie_id)}"),
                )
            )
        )
        done = shell.run("recover", "-force", "-deleteCookie", second.bookie_id)
        assert done.returncode == 0, done.stdout
        assert in_zookeeper(zookeeper, members) == {bookie.bookie_id for bookie in left}
        for bookie in left:
            for ledger_id in (1, 2):
                wanted = [read(ledger_id, entry_id) for entry_id in range(ENTRIES)]
                assert {answer.status for answer in ask(bookie.port, *wanted)} == {m.OK}
        assert "was decommissioned" in refusal(second)
    finally:
        for bookie in bookies:
            bookie.kill()


@contextmanager
def real_bookie(directory, bookie):
    """BookKeeper's bookie in the place of one of ours."""
    keys = stock_keys(bookie) | {"httpServerEnabled": "false"}

    def answers():
        assert process.poll() is None, (directory / "server.log").read_text()[-3000:]
        try:
            return ask(bookie.port, read(LEDGER_ID, 0))
        except OSError:
            return False

    with Daemon(directory, keys).running("bookie") as process:
        until(answers)
        yield process


@pytest.mark.slow
def test_directories_go_from_bookkeeper_to_vela_and_back(zookeeper, tmp_path):
    initialize(zookeeper, "/taken")
    bookie = VelaBookie(tmp_path / "b", zookeeper.hosts, {"zkLedgersRootPath": "/taken/ledgers"})

    def check(*ledger_ids):
        wanted = [read(ledger_id, n) for ledger_id in ledger_ids for n in range(ENTRIES)]
        assert {answer.status for answer in ask(bookie.port, *wanted)} == {m.OK}

    async def make(store):
        for ledger_id in range(1, 5):
            await store.put(f"/taken{ledger_path(ledger_id)}", b"kept", MUST_NOT_EXIST)

    in_zookeeper(zookeeper, make)
    with real_bookie(tmp_path / "real", bookie):
        fill([bookie], 1)  # and is killed
    try:
        bookie.start()
        check(1)
        fill([bookie], 2)
        assert bookie.stop() == 0
        with real_bookie(tmp_path / "real", bookie) as real:
            check(1, 2)
            fill([bookie], 3)
            real.terminate()
            real.wait(60)
        bookie.start()
        check(1, 2, 3)
        fill([bookie], 4)
        bookie.kill()
        with real_bookie(tmp_path / "real", bookie):
            check(1, 2, 3, 4)
    finally:
        bookie.kill()


@contextmanager
def changed(bookie, **keys):
    """The configuration of a bookie with other values."""
    before = bookie.configuration_path.read_text()
    more = "".join(f"{key}={value}\n" for key, value in keys.items())
    bookie.configuration_path.write_text(before + more)
    yield bookie
    bookie.configuration_path.write_text(before)


def test_what_is_wrong_is_one_line(zookeeper, bookies, tmp_path):
    stopped, running = bookies[2], bookies[1]
    stopped.stop()
    lost = stopped.directory / "ledgers" / "current"
    lost.rename(stopped.directory / "away")
    assert "ledgers/current" in refusal(stopped)
    (stopped.directory / "away").rename(lost)
    assert initialize(zookeeper, "/second") == "initialized\n"
    assert "was initialized before" in initialize(zookeeper, "/second")
    with changed(stopped, zkLedgersRootPath="/second/ledgers"):
        assert "instance id" in refusal(stopped)
    with changed(stopped, zkLedgersRootPath="/third/ledgers"):
        assert "is not that of a cluster" in refusal(stopped)
    with changed(stopped, bookieId=running.bookie_id):
        assert "belongs to another bookie" in refusal(stopped)
    twin = VelaBookie(tmp_path / "twin", zookeeper.hosts, {"bookieId": running.bookie_id})
    assert "is known already" in refusal(twin)
    with changed(running, bookiePort=twin.port, httpServerPort=twin.web_port):
        assert "in use by process" in refusal(running)
    stopped.start()


def test_a_cluster_that_pulsar_made_is_joined(zookeeper, tmp_path):
    store = f"zk:{zookeeper.hosts}/pulsar"
    made = subprocess.run(
        [
            str(pulsar_home() / "bin" / "pulsar"),
            "initialize-cluster-metadata",
            *("--cluster", "c1", "--metadata-store", store),
            *("--configuration-metadata-store", store),
            *("--web-service-url", "http://127.0.0.1:1"),
            *("--broker-service-url", "pulsar://127.0.0.1:1"),
        ],
        env=small_jvm(tmp_path),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert made.returncode == 0, made.stdout + made.stderr
    bookie = VelaBookie(
        tmp_path / "b", zookeeper.hosts, {"metadataServiceUri": f"metadata-store:{store}"}
    )
    bookie.start()
    try:
        listed = shell_of(tmp_path / "shell", bookie).run("listbookies", "-rw")
        assert f"BookieID:{bookie.bookie_id}" in listed.stdout
    finally:
        assert bookie.stop() == 0
