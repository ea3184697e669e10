"""A bookie process on a metadata store in memory: it starts only as itself, is known as it is, and
deletes only what is proved to be gone."""

import http.client
import json
import os
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

import pytest
import trio

from bookie.api import Status
from bookie.disk import RealDisk
from bookie.errors import BookieRefusesToStart, StorageError
from bookie.net.tests.test_server import Peer, peer_of, read
from bookie.net.tests.test_writes import add, answers
from bookie.process.cluster import initialize_ledgers
from bookie.process.config import BookieProcessConfig
from bookie.process.identity import Identity
from bookie.process.running import running_bookie
from metadata.memory_store import MemoryStore
from metadata.store import MetadataUnavailable, SessionState
from protocol.bookkeeper.data_formats_pb2 import BookieServiceInfoFormat
from protocol.bookkeeper.paths import (
    INSTANCE_ID_PATH,
    available_path,
    cookie_path,
    ledger_path,
    read_only_path,
)
from runtime.command_line import first_of
from runtime.testing.conditions import SECONDS_MAX, eventually

B1 = Identity("b1", "127.0.0.1", "127.0.0.1")


@pytest.fixture
async def cluster():
    store = MemoryStore()
    await initialize_ledgers(store)
    return store


@pytest.fixture
def config(tmp_path):
    return BookieProcessConfig(
        bookieId="b1",
        bookiePort=0,
        journalDirectories=(str(tmp_path / "j"),),
        ledgerDirectories=(str(tmp_path / "l0"), str(tmp_path / "l1")),
        dbStorage_writeCacheMaxSizeMb=2,
        journalPreAllocSizeMB=1,
        diskUsageThreshold=0.999,
        diskUsageWarnThreshold=0.999,
        zkTimeout=100,
    )


@asynccontextmanager
async def running(config, cluster, identity=B1):
    sessions = []

    async def open_store():
        sessions.append(cluster.another_session())
        return sessions[0]

    async with running_bookie(config, identity, open_store) as bookie:
        bookie_and_store = bookie, sessions[0]
        yield bookie_and_store


async def refusal(config, cluster, identity=B1):
    """The line with which a start is refused."""
    try:
        async with running(config, cluster, identity):
            raise AssertionError("it started")
    except* BookieRefusesToStart as refused:
        text = str(first_of(refused))
    assert "\n" not in text
    return text


async def test_it_is_known_serves_and_is_forgotten_when_it_stops(cluster, config):
    async with running(config, cluster) as (bookie, _store), peer_of(bookie.server) as peer:
        assert await cluster.exists(available_path("b1"))
        assert (await peer.ask(add(1, 0))).status == Status.OK
    assert not await cluster.exists(available_path("b1"))
    assert await cluster.exists(cookie_path("b1"))
    async with running(config, cluster) as (bookie, _store), peer_of(bookie.server) as peer:
        assert (await peer.ask(read(1, 0))).status == Status.OK


async def test_it_is_served_and_registered_at_a_path_and_at_no_port(cluster, config, tmp_path):
    path = str(tmp_path / "run" / "b1.sock")
    config = replace(config, bookieSocketPath=path)
    async with running(config, cluster) as (bookie, _store):
        assert (bookie.server.port, bookie.socket_path) == (0, path)
        async with await trio.open_unix_socket(path) as stream:
            assert (await Peer(stream, 2).ask(add(1, 0))).status == Status.OK
        info = BookieServiceInfoFormat()
        info.ParseFromString((await cluster.get(available_path("b1")))[0])
        [endpoint] = info.endpoints
        assert (endpoint.protocol, endpoint.host) == ("bookie-rpc+unix", path)
    assert os.listdir(tmp_path / "run") == []


async def test_a_path_that_cannot_be_listened_at_is_refused(cluster, config, tmp_path):
    path = tmp_path / "b1.sock"
    path.write_text("a file")
    refused = await refusal(replace(config, bookieSocketPath=str(path)), cluster)
    assert (
        refused == f"cannot listen at {path} (bookieSocketPath): there is a file that is no socket"
    )


async def test_no_cluster_is_refused(config):
    assert "is not that of a cluster" in await refusal(config, MemoryStore())


async def test_a_wiped_directory_is_refused(cluster, config, tmp_path):
    async with running(config, cluster):
        pass
    (tmp_path / "l1" / "current").rename(tmp_path / "away")
    assert "l1/current" in await refusal(config, cluster)


async def test_all_directories_wiped_are_refused(cluster, config, tmp_path):
    async with running(config, cluster):
        pass
    fresh = replace(
        config,
        journalDirectories=(str(tmp_path / "j9"),),
        ledgerDirectories=(str(tmp_path / "l9"),),
    )
    assert "decommissioned" in await refusal(fresh, cluster)


async def test_metadata_of_this_machine_that_are_older_than_the_directories_are_refused(
    cluster, config
):
    """As after a restored backup: garbage collection would delete what is newer."""
    of_machine = replace(config, metadataServiceUri="metadata-store:unix:/run/metadata.sock")
    ledger_id = await cluster.next_sequence("/ledgers/idgen")
    async with running(of_machine, cluster) as (bookie, _), peer_of(bookie.server) as peer:
        assert (await peer.ask(add(ledger_id, 0))).status == Status.OK
    async with running(of_machine, cluster):
        pass  # it is no matter that the ledger has no record: it may have been deleted
    older = MemoryStore()
    await initialize_ledgers(older)
    for path in (INSTANCE_ID_PATH, cookie_path("b1")):
        await older.put(path, (await cluster.get(path))[0], None)
    text = await refusal(of_machine, older)
    assert text.startswith("the metadata are older than the bookie's directories")
    assert f"ledger {ledger_id} " in text


async def test_ids_that_clients_chose_are_no_sign_of_older_metadata(cluster, config):
    """In a store that others share, as ZooKeeper is."""
    async with running(config, cluster) as (bookie, _), peer_of(bookie.server) as peer:
        assert (await peer.ask(add(2**40, 0))).status == Status.OK
    async with running(config, cluster):
        pass


async def test_directories_of_another_cluster_are_refused(cluster, config):
    async with running(config, cluster):
        pass
    await cluster.put(INSTANCE_ID_PATH, b"another cluster", None)
    assert "instance id" in await refusal(config, cluster)


async def test_another_metadata_store_without_the_cookie_is_refused(cluster, config):
    async with running(config, cluster):
        pass
    await cluster.delete(cookie_path("b1"))
    assert "no cookie of 'b1'" in await refusal(config, cluster)


async def test_directories_of_another_bookie_are_refused(cluster, config):
    async with running(config, cluster):
        pass
    b2 = Identity("b2", "127.0.0.1", "127.0.0.1")
    assert "b1" in await refusal(config, cluster, b2)


async def test_an_id_that_runs_elsewhere_is_refused(cluster, config):
    await cluster.put_ephemeral(available_path("b1"), b"")
    assert "is taken" in await refusal(config, cluster)


async def test_a_second_process_on_the_directories_is_refused(cluster, config):
    async with running(config, cluster):
        assert "is in use by process" in await refusal(config, cluster)


async def test_a_port_in_use_is_refused(cluster, config):
    async with running(config, cluster) as (bookie, _store):
        taken = replace(
            config,
            bookiePort=bookie.server.port,
            journalDirectories=(config.journalDirectories[0] + "9",),
            ledgerDirectories=(config.ledgerDirectories[0] + "9",),
        )
        assert "(bookiePort)" in await refusal(taken, cluster)


async def test_without_the_metadata_store_nothing_starts(cluster, config):
    async def out_of_reach():
        raise MetadataUnavailable("no ZooKeeper answered")

    with pytest.raises(BaseExceptionGroup) as caught:
        async with running_bookie(config, B1, out_of_reach):
            raise AssertionError("it started")
    assert caught.group_contains(MetadataUnavailable, match="no ZooKeeper answered")


async def test_full_disks_make_it_read_only_until_there_is_space(cluster, config, monkeypatch):
    async with running(config, cluster) as (bookie, _store), peer_of(bookie.server) as peer:
        await peer.ask(add(1, 0))
        monkeypatch.setattr(RealDisk, "free_and_total_bytes", lambda _disk, _path: (0, 10))
        bookie.bookie._monitor.check_now()
        await eventually(lambda: bookie.registration.path == read_only_path("b1"))
        assert (await peer.ask(add(1, 1))).status == Status.READ_ONLY
        assert (await peer.ask(read(1, 0))).status == Status.OK
        monkeypatch.undo()
        bookie.bookie._monitor.check_now()
        await eventually(lambda: bookie.registration.path == available_path("b1"))
        assert (await peer.ask(add(1, 1))).status == Status.OK


async def test_without_read_only_mode_full_disks_stop_it(cluster, config, monkeypatch):
    config = replace(config, readOnlyModeEnabled=False)

    async def run_until_full():
        async with running(config, cluster) as (bookie, _store):
            monkeypatch.setattr(RealDisk, "free_and_total_bytes", lambda _disk, _path: (0, 10))
            bookie.bookie._monitor.check_now()
            await trio.sleep_forever()

    with pytest.raises(BaseExceptionGroup) as caught:
        await run_until_full()
    assert caught.group_contains(StorageError, match="readOnlyModeEnabled=false")
    assert not await cluster.exists(available_path("b1"))


async def test_a_lost_session_does_not_end_it(cluster, config):
    async with running(config, cluster) as (bookie, store), peer_of(bookie.server) as peer:
        store.become(SessionState.LOST)
        assert not await cluster.exists(available_path("b1"))
        assert (await peer.ask(add(1, 0))).status == Status.OK
        store.become(SessionState.LIVE)
        await eventually(lambda: bookie.registration.path == available_path("b1"))
        assert await cluster.exists(available_path("b1"))


async def test_ledgers_that_the_metadata_lacks_are_collected_and_no_others(cluster, config):
    async with running(config, cluster) as (bookie, store), peer_of(bookie.server) as peer:
        await peer.send(*(add(ledger_id, 0) for ledger_id in range(4)))
        await answers(peer, 4)
        for ledger_id in range(3):
            await cluster.put(ledger_path(ledger_id), b"m", None)
        children = store.children

        async def broken(path):
            if path.endswith("/0000"):
                raise MetadataUnavailable("a part of the tree cannot be read")
            return await children(path)

        store.children = broken
        await bookie.bookie.collect_garbage()
        assert sorted(bookie.bookie.ledger_ids()) == [0, 1, 2, 3]
        store.children = children
        await bookie.bookie.collect_garbage()
        assert sorted(bookie.bookie.ledger_ids()) == [0, 1, 2]


def ask(port, path, method="GET", host=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS_MAX)
    connection.request(method, path, headers={"Host": host} if host else {})
    answer = connection.getresponse()
    status, body = answer.status, answer.read().decode()
    connection.close()
    return status, body


async def test_state_and_metrics_over_http(cluster, config, monkeypatch):
    config = replace(config, httpServerEnabled=True, httpServerPort=0)
    async with running(config, cluster) as (bookie, _store):
        get = partial(trio.to_thread.run_sync, ask, bookie.http_port)
        assert await get("/heartbeat") == (200, "OK\n")
        assert await get("/api/v1/bookie/is_ready") == (200, "")
        status, body = await get("/api/v1/bookie/state")
        assert (status, json.loads(body)) == (
            200,
            {
                "running": True,
                "readOnly": False,
                "shuttingDown": False,
                "availableForHighPriorityWrites": True,
            },
        )
        status, body = await get("/api/v1/bookie/info")
        assert set(json.loads(body)) == {"freeSpace", "totalSpace"}
        status, body = await get("/metrics")
        assert "\nbookie_SERVER_STATUS 1\n" in body
        assert "\nvela_bookie_tcp_adds_total 0\n" in body
        assert (await get("/nothing"))[0] == 404
        assert (await get("/heartbeat", "POST"))[0] == 404
        assert (await get("/metrics", "GET", "evil.example"))[0] == 421
        monkeypatch.setattr(RealDisk, "free_and_total_bytes", lambda _disk, _path: (0, 10))
        bookie.bookie._monitor.check_now()
        _status, body = await get("/api/v1/bookie/state")
        assert json.loads(body)["readOnly"] is True
        assert json.loads(body)["availableForHighPriorityWrites"] is False


async def test_the_stock_file_asks_for_metrics_only(cluster, config):
    provider = "org.apache.bookkeeper.stats.prometheus.PrometheusMetricsProvider"
    config = replace(config, statsProviderClass=provider, prometheusStatsHttpPort=0)
    async with running(config, cluster) as (bookie, _store):
        get = partial(trio.to_thread.run_sync, ask, bookie.http_port)
        assert (await get("/metrics"))[0] == 200
        assert (await get("/heartbeat"))[0] == 404


async def test_an_emptied_metadata_store_deletes_no_ledger_and_ends_the_bookie(cluster, config):
    async def run_until_formatted():
        async with running(config, cluster) as (bookie, store), peer_of(bookie.server) as peer:
            await peer.ask(add(1, 0))
            await cluster.put(INSTANCE_ID_PATH, b"formatted", None)
            await bookie.bookie.collect_garbage()
            assert bookie.bookie.ledger_ids() == [1]
            store.become(SessionState.LOST)
            store.become(SessionState.LIVE)
            with trio.fail_after(SECONDS_MAX):
                await trio.sleep_forever()

    with pytest.raises(BaseExceptionGroup) as caught:
        await run_until_formatted()
    assert caught.group_contains(StorageError, match="another cluster now")
    assert not await cluster.exists(available_path("b1"))
