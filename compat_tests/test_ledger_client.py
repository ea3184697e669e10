"""Our ledger client on real ZooKeeper, with Apache's bookies and Vela's in one cluster."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
import trio

from bookie.adds import NoTurn
from bookie.api import LAST_ENTRY, BookieError, Status
from compat_tests.oracle.apache_bookie import ApacheBookie
from compat_tests.oracle.bookkeeper_shell import BookKeeperShell
from compat_tests.oracle.vela_bookie import VelaBookie
from compat_tests.oracle.zookeeper_server import ZooKeeperServer
from ledgers.client import LedgerClient, LedgerClientConfig
from ledgers.placement import PlacementRules
from ledgers.remote.bookie_pool import BookiePool
from ledgers.remote.config import RemoteConfig
from metadata.zookeeper_address import ZooKeeperAddress
from metadata.zookeeper_store import ZooKeeperStore
from protocol.bookkeeper import v3
from protocol.bookkeeper.digests import Digest, DigestType, entry_metadata
from protocol.bookkeeper.messages import ReadLacRequest
from protocol.bookkeeper.packets import PacketDecoder
from runtime.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

CONFIG = RemoteConfig(add_timeout_s=10.0, read_timeout_s=10.0, back_off_max_s=0.5)
WAIT_SECONDS_MAX = 60.0


class Cluster:
    """The processes."""

    def __init__(self, directory) -> None:
        self.zookeeper = ZooKeeperServer(_made(directory / "zookeeper"))
        self.zookeeper.start()
        uri = f"zk+hierarchical://{self.zookeeper.hosts}/ledgers"
        self.shell = BookKeeperShell(directory / "shell", {"metadataServiceUri": uri})
        done = self.shell.run("initnewcluster")
        assert done.returncode == 0, done.stdout
        self.apache = ApacheBookie(_made(directory / "apache"), self.zookeeper.hosts)
        self.vela = VelaBookie(_made(directory / "vela"), self.zookeeper.hosts)
        self.spare = VelaBookie(_made(directory / "spare"), self.zookeeper.hosts)
        for server in (self.apache, self.vela):
            server.start()

    def kill(self) -> None:
        for server in (self.apache, self.vela, self.spare, self.zookeeper):
            server.kill()


def _made(directory):
    directory.mkdir()
    return directory


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("ledger-client"))
    yield cluster
    cluster.kill()


class Recorder:
    def __init__(self) -> None:
        self.confirmed = -1
        self.failures: list[int] = []
        self.changed = trio.Event()

    def on_entries_confirmed(self, writer, entry_id, length):
        assert entry_id > self.confirmed
        self.confirmed = entry_id
        self.changed.set()

    def on_writer_failed(self, writer, status):
        self.failures.append(status)
        self.changed.set()

    def on_adds_refused(self, writer, delay_s):
        raise AssertionError("nothing here fills a bookie")

    async def wait_for(self, entry_id):
        with trio.fail_after(WAIT_SECONDS_MAX):
            while self.confirmed < entry_id and not self.failures:
                self.changed = trio.Event()
                await self.changed.wait()
        assert not self.failures


class Side:
    """A client of the cluster."""

    def __init__(self, store, pool) -> None:
        self.store = store
        self.pool = pool

    def client(self, quorum, digest=DigestType.CRC32C, explicit_lac_interval_s=0.0):
        config = LedgerClientConfig(
            ensemble_size=quorum,
            write_quorum_size=quorum,
            ack_quorum_size=quorum,
            digest_type=digest,
            request_timeout_s=10.0,
            explicit_lac_interval_s=explicit_lac_interval_s,
        )
        return LedgerClient(self.store, self.pool.bookies, config, SystemClock(), self.pool)


@asynccontextmanager
async def a_side(cluster: Cluster) -> AsyncIterator[Side]:
    address = ZooKeeperAddress(
        hosts=cluster.zookeeper.hosts, chroot="", session_timeout_seconds=10.0
    )
    store = await ZooKeeperStore.open(address)
    try:
        async with trio.open_nursery() as nursery:
            rules = PlacementRules(is_rack_aware=False)
            pool = BookiePool(store, NoTurn(), CONFIG, rules)
            await nursery.start(pool.run)
            with trio.fail_after(WAIT_SECONDS_MAX):
                while len(pool.writable) < 2:  # noqa: ASYNC110 - processes register
                    await trio.sleep(0.1)
            yield Side(store, pool)
            nursery.cancel_scope.cancel()
    finally:
        await store.aclose()


def payload(number: int) -> bytes:
    return b"%d " % number * (1 + number % 50)


async def content(client, ledger_id):
    reader = await client.reader(ledger_id)
    found = []
    while len(found) <= reader.metadata.last_entry_id:
        found += await reader.read(len(found), reader.metadata.last_entry_id)
    return found


async def test_both_kinds_of_bookies_take_a_ledger_and_the_shell_reads_it(cluster):
    async with a_side(cluster) as side:
        client = side.client(2)
        recorder = Recorder()
        writer = await client.create_ledger({"application": b"pulsar"}, recorder)
        for first in range(0, 1000, 50):
            writer.add_run([payload(number) for number in range(first, first + 50)])
            await trio.lowlevel.checkpoint()
        writer.add(bytes(1_000_000))
        await recorder.wait_for(1000)
        await writer.close()
        expected = [*(payload(number) for number in range(1000)), bytes(1_000_000)]
        assert await content(client, writer.ledger_id) == expected
        for bookie_id in (cluster.apache.bookie_id, cluster.vela.bookie_id):
            bookie = side.pool.bookies[bookie_id]
            bodies = await bookie.read_batch(writer.ledger_id, 0, 100, 1 << 20)
            assert [body[36:] for body in bodies] == expected[:100]
            assert (await bookie.read_entry(writer.ledger_id, LAST_ENTRY))[36:] == expected[-1]
            with pytest.raises(BookieError) as absent:
                await bookie.read_entry(writer.ledger_id, 5000)
            assert absent.value.status == Status.NO_ENTRY
            with pytest.raises(BookieError) as absent:
                await bookie.read_entry(123_456, 0)
            assert absent.value.status == Status.NO_LEDGER
    done = cluster.shell.run("ledgermetadata", "-ledgerid", str(writer.ledger_id))
    assert "lastEntryId=1000" in done.stdout.replace(" ", ""), done.stdout
    done = cluster.shell.run(
        "readledger", "-ledgerid", str(writer.ledger_id), "-lastentryid", "999"
    )
    assert done.returncode == 0, done.stdout
    assert "Eid=999," in done.stdout, done.stdout[-2000:]


@pytest.mark.parametrize("digest", list(DigestType))
async def test_every_digest_is_written_and_read(cluster, digest):
    async with a_side(cluster) as side:
        client = side.client(2, digest)
        recorder = Recorder()
        writer = await client.create_ledger({}, recorder)
        writer.add_run([payload(number) for number in range(10)])
        await recorder.wait_for(9)
        await writer.close()
        assert await content(client, writer.ledger_id) == [payload(n) for n in range(10)]


async def read_lac(bookie_id, ledger_id):
    """The answer to READ_LAC, which BookKeeper's client sends to know the end of an open ledger."""
    host, _, port = bookie_id.rpartition(":")
    packets = []
    decoder = PacketDecoder()
    with trio.fail_after(WAIT_SECONDS_MAX):
        stream = await trio.open_tcp_stream(host, int(port))
        async with stream:
            await stream.send_all(v3.encode_request(ReadLacRequest(ledger_id, 1)))
            while not packets:
                packets = decoder.feed(await stream.receive_some())
    return v3.decode_response(packets[0])


async def test_both_kinds_of_bookies_tell_how_far_an_open_ledger_is_confirmed(cluster):
    async with a_side(cluster) as side:
        client = side.client(2, explicit_lac_interval_s=0.1)
        digest = Digest(DigestType.CRC32C, b"")
        recorder = Recorder()
        writer = await client.create_ledger({}, recorder)
        for last in (9, 10):
            writer.add_run([payload(number) for number in range(writer.next_entry_id, last + 1)])
            await recorder.wait_for(last)
            for bookie_id in (cluster.apache.bookie_id, cluster.vela.bookie_id):
                told = -1
                with trio.fail_after(WAIT_SECONDS_MAX):
                    while told < last:
                        answer = await read_lac(bookie_id, writer.ledger_id)
                        assert answer.status == Status.OK
                        # The last entry alone says less.
                        assert entry_metadata(answer.last_entry_body)[2] < last
                        if answer.lac_body:
                            told = digest.verify_explicit_lac(answer.lac_body, writer.ledger_id)
                assert told == last
        await writer.close()


async def test_a_recovery_fences_both_kinds_and_finds_every_entry(cluster):
    async with a_side(cluster) as side:
        client = side.client(2)
        recorder = Recorder()
        writer = await client.create_ledger({}, recorder)
        writer.add_run([payload(number) for number in range(100)])
        await recorder.wait_for(99)
        metadata = await client.recover(writer.ledger_id)
        assert metadata.last_entry_id == 99
        writer.add_run([payload(100)])
        with trio.fail_after(WAIT_SECONDS_MAX):
            while not recorder.failures:
                recorder.changed = trio.Event()
                await recorder.changed.wait()
        assert recorder.failures == [Status.FENCED]
        await writer.close()
        assert await content(client, writer.ledger_id) == [payload(n) for n in range(100)]


async def test_what_no_writer_confirmed_is_recovered_to_one_end(cluster):
    """An entry is on the Apache bookie only; two recoveries decide at once."""
    async with a_side(cluster) as side, a_side(cluster) as other:
        client = side.client(2)
        recorder = Recorder()
        writer = await client.create_ledger({}, recorder)
        writer.add_run([payload(number) for number in range(10)])
        await recorder.wait_for(9)
        place = next(each for each in writer._places if each.bookie_id == cluster.apache.bookie_id)
        for each in writer._places:
            if each is not place:
                each.failure = int(Status.UNREACHABLE)
                each.is_done_without = True
        writer.add_run([payload(10)])
        with trio.fail_after(WAIT_SECONDS_MAX):
            while writer._acks.missing[place.index] < 11:  # noqa: ASYNC110
                await trio.sleep(0.02)
        ends = []

        async def recover(which):
            ends.append(await which.client(2).recover(writer.ledger_id))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(recover, side)
            nursery.start_soon(recover, other)
        assert ends[0] == ends[1]
        assert ends[0].last_entry_id in (9, 10)
        count = ends[0].last_entry_id + 1
        assert await content(client, writer.ledger_id) == [payload(n) for n in range(count)]


async def test_an_apache_bookie_that_is_killed_is_replaced(cluster):
    cluster.spare.start()
    async with a_side(cluster) as side:
        with trio.fail_after(WAIT_SECONDS_MAX):
            while cluster.spare.bookie_id not in side.pool.writable:  # noqa: ASYNC110
                await trio.sleep(0.1)
        client = side.client(2)
        while True:
            recorder = Recorder()
            writer = await client.create_ledger({}, recorder)
            if cluster.apache.bookie_id in writer.metadata.last_ensemble[1]:
                break
        writer.add_run([payload(number) for number in range(100)])
        await recorder.wait_for(99)
        cluster.apache.kill()
        for number in range(100, 200):
            writer.add_run([payload(number)])
            await trio.sleep(0.001)
        await recorder.wait_for(199)
        first, ensemble = writer.metadata.last_ensemble
        assert first == 100
        assert cluster.apache.bookie_id not in ensemble
        await writer.close()
        assert await content(client, writer.ledger_id) == [payload(n) for n in range(200)]
        cluster.apache.start()
        assert await content(client, writer.ledger_id) == [payload(n) for n in range(200)]
