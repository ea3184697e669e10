"""The contract of metadata stores on real ZooKeeper, and what only that store promises."""

import itertools
import signal
import subprocess
import sys
from dataclasses import replace

import pytest
import trio

from compat_tests.oracle.zookeeper_server import ZooKeeperServer
from metadata.store import MetadataUnavailable, SessionState, VersionConflict
from metadata.tests.conformance import *  # noqa: F403 - the tests of the contract
from metadata.zookeeper_address import ZooKeeperAddress
from metadata.zookeeper_store import ZooKeeperStore

_roots = itertools.count()
WAIT_SECONDS_MAX = 60.0


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = ZooKeeperServer(tmp_path_factory.mktemp("zookeeper"))
    server.start()
    yield server
    server.kill()


@pytest.fixture
def address(server):
    return ZooKeeperAddress(
        hosts=server.hosts, chroot=f"/test-{next(_roots)}", session_timeout_seconds=3.0
    )


@pytest.fixture
async def store(address):
    store = await ZooKeeperStore.open(address)
    yield store
    await store.aclose()


@pytest.fixture
async def other(address, store):
    other = await ZooKeeperStore.open(address)
    yield other
    await other.aclose()


async def until(condition):
    with trio.fail_after(WAIT_SECONDS_MAX):
        while not condition():  # noqa: ASYNC110 - the condition is another process's
            await trio.sleep(0.02)


async def test_two_sessions_see_each_other(store, other):
    heard = []
    other.watch("/a", heard.append)
    await store.put("/a/b", b"one", None)
    await until(lambda: "/a/b" in heard)
    assert await other.get("/a/b") == (b"one", 0)
    await store.delete("/a/b")
    await until(lambda: heard.count("/a/b") == 2)
    assert await other.get("/a/b") is None


async def test_a_sequence_is_advanced_and_gives_no_number_twice(store, other):
    given = [await store.next_sequence("/ids") for _ in range(3)]
    for number in (3, 2_500, 2_500, 10):
        await store.advance_sequence("/ids", number)
        given.append(await other.next_sequence("/ids"))
        assert given[-1] >= number
    assert given == sorted(set(given))
    assert given[-1] < 2_600
    await store.advance_sequence("/new/ids", 1)
    assert await store.next_sequence("/new/ids") >= 1
    assert await store.children("/ids") == []


async def test_ephemeral_nodes_go_with_their_session(store, other):
    heard = []
    store.watch("/leases", heard.append)
    await other.put_ephemeral("/leases/a", b"")
    with pytest.raises(VersionConflict):
        await store.put_ephemeral("/leases/a", b"")
    await other.aclose()
    await until(lambda: heard.count("/leases/a") == 2)
    await store.put_ephemeral("/leases/a", b"mine")


async def test_ledger_ids_are_those_that_bookkeeper_would_give(store):
    # BookKeeper makes /ledgers/idgen/ID- sequential and takes the number for the id.
    numbers = [await store.next_sequence("/ledgers/idgen") for _ in range(3)]
    made = await store._session.create("/ledgers/idgen/ID-", b"", ephemeral=True, sequential=True)
    assert int(made[-10:]) == numbers[-1] + 1


async def test_a_session_outlives_a_lost_connection_and_its_watches_do_too(server, store, other):
    states, heard = [], []
    store.watch_session(states.append)
    store.watch("/a", heard.append)
    await store.put_ephemeral("/a/mine", b"")
    session_id = store.session_id
    store._session._client._connection._socket.shutdown(2)
    await until(lambda: states == [SessionState.IN_DOUBT, SessionState.LIVE])
    assert store.session_id == session_id
    assert "/a" in heard
    assert await store.get("/a/mine") == (b"", 0)
    await other.put("/a/b", b"", None)
    await until(lambda: "/a/b" in heard)


async def test_without_zookeeper_a_session_is_over_before_zookeeper_would_end_it(server, address):
    """The timeout is long enough for a busy machine to report in a twelfth of it."""
    address = replace(address, session_timeout_seconds=12.0)
    store = await ZooKeeperStore.open(address)
    states = []
    store.watch_session(states.append)
    await store.put_ephemeral("/mine", b"")
    await store.put("/kept", b"one", None)
    first, answered_at = store.session_id, trio.current_time()
    server.pause()
    try:
        # ZooKeeper counts from the arrival of the last request, a little before its answer.
        await trio.sleep_until(answered_at + address.session_timeout_seconds)
        assert states == [SessionState.IN_DOUBT, SessionState.LOST]
        assert store.session_state is SessionState.LOST
        with pytest.raises(MetadataUnavailable, match="the session with ZooKeeper at"):
            await store.put("/kept", b"two", None)
        with pytest.raises(MetadataUnavailable):
            await store.get("/kept")
    finally:
        server.resume()
    await until(lambda: store.session_state is SessionState.LIVE)
    assert states == [SessionState.IN_DOUBT, SessionState.LOST, SessionState.LIVE]
    assert store.session_id != first
    assert await store.get("/kept") == (b"one", 0)
    gone = trio.Event()

    def look(_path):
        gone.set()

    store.watch("/mine", look)
    if await store.exists("/mine"):
        with trio.fail_after(WAIT_SECONDS_MAX):
            await gone.wait()
    await store.put_ephemeral("/mine", b"")
    await store.aclose()


async def test_a_process_stopped_beyond_its_session_sees_its_end_at_the_first_look(address):
    """Several times, because the kernel decides which of its threads goes on first."""
    seconds = address.session_timeout_seconds
    command = [sys.executable, "-m", "compat_tests.session_watcher"]
    command += [address.hosts, address.chroot, str(seconds)]
    with subprocess.Popen(  # noqa: ASYNC220 - a short start
        command, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            for _stop in range(3):
                assert (await line_of(process)).startswith("live ")
                process.send_signal(signal.SIGSTOP)
                await trio.sleep(seconds + 0.5)
                process.send_signal(signal.SIGCONT)
                assert await line_of(process) == "gap lost\n"
        finally:
            process.kill()


async def line_of(process):
    with trio.fail_after(WAIT_SECONDS_MAX):
        return await trio.to_thread.run_sync(process.stdout.readline, abandon_on_cancel=True)


async def test_a_read_during_a_restart_of_zookeeper_waits_for_it(server, address):
    address = ZooKeeperAddress(
        hosts=address.hosts, chroot=address.chroot, session_timeout_seconds=60.0
    )
    store = await ZooKeeperStore.open(address)
    await store.put("/a", b"one", None)
    await trio.to_thread.run_sync(server.kill)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.to_thread.run_sync, server.start)
        with trio.fail_after(WAIT_SECONDS_MAX):
            assert await store.get("/a") == (b"one", 0)
    await store.aclose()


async def test_nobody_at_the_address_is_said_in_one_line(monkeypatch):
    monkeypatch.setattr("metadata.zookeeper_store.CONNECT_SECONDS_MAX", 0.5)
    with pytest.raises(MetadataUnavailable, match="no ZooKeeper answered at"):
        await ZooKeeperStore.open(ZooKeeperAddress(hosts="127.0.0.1:1"))
