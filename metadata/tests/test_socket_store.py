"""The contract on the store of another process, and what only that store promises."""

from __future__ import annotations

import os
import socket
import stat
import struct
import time
from contextlib import asynccontextmanager, suppress

import pytest
import trio

from metadata.memory_store import MemoryStore
from metadata.opening import open_store
from metadata.rocks_store import RocksStore
from metadata.socket_frames import NOTICE, Frame, Kind, encode_frame
from metadata.socket_server import SocketLimits, SocketServer
from metadata.socket_store import VALUE_BYTES_MAX, SocketStore
from metadata.store import MetadataUnavailable, SessionState, VersionConflict
from metadata.tests.conformance import *  # noqa: F403 - the tests of the contract

TIMEOUT_SECONDS = 60.0
"""Of sessions that are not to end, however slow the machine is."""
SHORT_SECONDS = 3.0
WAIT_SECONDS_MAX = 60.0


@asynccontextmanager
async def serving(store, socket_path, limits=None):
    server = SocketServer(store, limits)
    async with trio.open_nursery() as nursery:
        await nursery.start(server.run, socket_path)
        yield server
        nursery.cancel_scope.cancel()


@pytest.fixture
def socket_path(tmp_path):
    return str(tmp_path / "run" / "store.sock")


@pytest.fixture(params=["memory", "rocks"])
async def backing(request, tmp_path):
    store = MemoryStore() if request.param == "memory" else await RocksStore.open(tmp_path / "m")
    yield store
    await store.aclose()


@pytest.fixture
async def server(backing, socket_path, nursery):
    server = SocketServer(backing)
    await nursery.start(server.run, socket_path)
    return server


@pytest.fixture
async def store(server, socket_path):
    store = await SocketStore.open(socket_path, TIMEOUT_SECONDS)
    yield store
    await store.aclose()


@pytest.fixture
async def other(store, socket_path):
    other = await SocketStore.open(socket_path, TIMEOUT_SECONDS)
    yield other
    await other.aclose()


async def until(condition):
    with trio.fail_after(WAIT_SECONDS_MAX):
        while not condition():  # noqa: ASYNC110 - the condition is another task's
            await trio.sleep(0.005)


async def until_gone(store, path):
    with trio.fail_after(WAIT_SECONDS_MAX):
        while await store.exists(path):  # noqa: ASYNC110 - deleted by the server
            await trio.sleep(0.005)


async def cancel_after(scope, turns):
    for _ in range(turns):
        await trio.lowlevel.checkpoint()
    scope.cancel()


async def test_two_sessions_see_each_other(store, other):
    heard = []
    other.watch("/a", heard.append)
    await store.put("/a/b", b"one", None)
    await until(lambda: heard == ["/a/b"])
    assert await other.get("/a/b") == (b"one", 0)
    await store.delete("/a/b")
    await until(lambda: heard == ["/a/b", "/a/b"])
    assert await other.get("/a/b") is None


async def test_ephemeral_nodes_go_with_their_session(store, other):
    heard = []
    store.watch("/leases", heard.append)
    await other.put_ephemeral("/leases/a", b"")
    await other.put("/leases/kept", b"", None)
    with pytest.raises(VersionConflict):
        await store.put_ephemeral("/leases/a", b"")
    await other.aclose()
    assert await store.children("/leases") == ["kept"]
    await until(lambda: heard.count("/leases/a") == 2)
    with pytest.raises(MetadataUnavailable, match="closed"):
        await other.get("/leases/a")


async def test_the_end_of_a_session_spares_a_node_that_another_one_made_again(store, other):
    await other.put_ephemeral("/leases/a", b"")
    await store.delete("/leases/a")
    await store.put_ephemeral("/leases/a", b"mine")
    await other.aclose()
    assert await store.get("/leases/a") == (b"mine", 0)


async def test_a_lost_connection_keeps_the_session_and_its_nodes_and_reads_wait(store, other):
    states, heard = [], []
    await store.put_ephemeral("/leases/a", b"")
    store.watch("/leases", heard.append)
    store.watch_session(states.append)
    store._disconnect()
    assert store.session_state is SessionState.IN_DOUBT
    with pytest.raises(MetadataUnavailable, match="try again"):
        await store.put("/b", b"", None)
    assert await store.get("/leases/a") == (b"", 0)
    assert states == [SessionState.IN_DOUBT, SessionState.LIVE]
    assert heard == ["/leases"]
    await other.put("/leases/b", b"", None)
    await until(lambda: heard == ["/leases", "/leases/b"])


async def test_a_write_that_loses_its_connection_is_refused(store):
    async with trio.open_nursery() as nursery:

        async def write():
            with pytest.raises(MetadataUnavailable, match="was lost while /a was written"):
                await store.put("/a", b"", None)

        nursery.start_soon(write)
        while not store._connection._pending:
            await trio.lowlevel.checkpoint()
        store._disconnect()


async def test_a_client_that_is_cut_off_knows_before_its_nodes_are_gone(socket_path, nursery):
    backing = MemoryStore()
    async with serving(backing, socket_path) as server:
        store = await SocketStore.open(socket_path, SHORT_SECONDS)
        await store.put_ephemeral("/leases/a", b"")
        seen = []
        store.watch_session(lambda state: seen.append((state, server.sessions)))
        with CutOff(store):
            await until(lambda: server.sessions == 0)
            assert seen[:2] == [(SessionState.IN_DOUBT, 1), (SessionState.LOST, 1)]
            with pytest.raises(MetadataUnavailable, match="a new one is begun"):
                await store.get("/leases/a")
        await until(lambda: store.session_state is SessionState.LIVE)
        assert [state for state, _ in seen[2:]] == [SessionState.LIVE]
        await until_gone(store, "/leases/a")
        await store.put_ephemeral("/leases/a", b"again")
        await store.aclose()


class CutOff:
    """The client's bytes arrive nowhere, as if the server were stopped."""

    def __init__(self, store):
        self._store = store

    def __enter__(self):
        self._path, self._store._path = self._store._path, "/nowhere"
        connection = self._store._connection
        connection._take = lambda _frame: None
        connection._send = lambda *_arguments: 0

    def __exit__(self, *_error):
        self._store._path = self._path


async def test_a_process_that_was_stopped_finds_its_session_over_at_once(socket_path, monkeypatch):
    async with serving(MemoryStore(), socket_path):
        store = await SocketStore.open(socket_path, TIMEOUT_SECONDS)
        lease = store._lease
        monkeypatch.setattr(lease, "sent_at", lease.sent_at - TIMEOUT_SECONDS)
        assert store.session_state is SessionState.LOST
        with pytest.raises(MetadataUnavailable, match="lost"):
            await store.put("/a", b"", None)
        await until(lambda: store.session_state is SessionState.LIVE)
        await store.aclose()


async def test_a_session_that_its_client_has_given_up_is_not_waited_for(socket_path):
    """As after the server was stopped for long: it grants the time to all sessions."""
    async with serving(MemoryStore(), socket_path) as server:
        store = await SocketStore.open(socket_path, TIMEOUT_SECONDS)
        await store.put_ephemeral("/leases/a", b"one")
        server._sessions.grant(1_000.0)
        store._lose()
        await until(lambda: store.session_state is SessionState.LIVE)
        await store.put_ephemeral("/leases/a", b"two")
        assert server.sessions == 1
        await store.aclose()


@pytest.mark.parametrize("is_told", [False, True])
async def test_a_session_that_ends_while_it_is_resumed_is_not_live_again(socket_path, is_told):
    """Its end is the answer to a watch, or a notice between the answers."""
    backing = MemoryStore()
    async with serving(backing, socket_path) as server:
        store = await SocketStore.open(socket_path, TIMEOUT_SECONDS)
        stops = [store.watch(path, lambda _path: None) for path in ("/a", "/b")]
        await until(lambda: [len(each.watches) for each in server._connections] == [2])
        watch = backing.watch

        def end_the_session(path, on_change):
            backing.watch = watch
            (session,) = server._sessions.all()
            server._sessions.end(session)
            if is_told:
                for connection in server._connections:
                    connection.send(Frame(NOTICE, Kind.SESSION_OVER))
            return watch(path, on_change)

        backing.watch = end_the_session
        states = []
        store.watch_session(states.append)
        if is_told:
            stops[1]()  # then nothing is asked of that session after the notice
        store._disconnect()
        await until(lambda: SessionState.LIVE in states)
        assert states == [SessionState.IN_DOUBT, SessionState.LOST, SessionState.LIVE]
        assert server.sessions == 1
        await store.put_ephemeral("/leases/a", b"")
        await store.aclose()


async def test_a_server_that_was_stopped_blames_nobody(socket_path):
    async with serving(MemoryStore(), socket_path) as server:
        stream = await trio.open_unix_socket(socket_path)
        timeout_ms = int(SHORT_SECONDS * 1000)
        await stream.send_all(encode_frame(Frame(1, Kind.BEGIN, version=timeout_ms)))
        await stream.receive_some()
        await trio.sleep(SHORT_SECONDS / 5)
        time.sleep(2 * SHORT_SECONDS)  # noqa: ASYNC251 - the server stands still, as with SIGSTOP
        await trio.sleep(SHORT_SECONDS / 5)
        assert server.sessions == 1
        await stream.send_all(encode_frame(Frame(2, Kind.PING)))
        assert (await stream.receive_some())[8] == Kind.DONE
        await stream.aclose()


async def test_the_sessions_of_a_dead_process_end_at_once(server, store, other):
    await other.put_ephemeral("/leases/a", b"")
    await server.end_process(os.getpid() + 1)
    assert await store.exists("/leases/a")
    states = []
    other.watch_session(states.append)
    await server.end_process(os.getpid())
    await until(lambda: SessionState.LIVE in states)
    assert states[0] is SessionState.LOST
    assert not await other.exists("/leases/a")


async def test_the_directory_of_the_socket_is_closed_to_others(store, socket_path):
    assert stat.S_IMODE(os.stat(os.path.dirname(socket_path)).st_mode) == 0o700


@pytest.mark.parametrize("is_there", [False, True])
async def test_a_cancelled_open_leaves_no_task(socket_path, nursery, is_there):
    """It would connect for ever. A session whose begin was not answered ends by its timeout."""
    if is_there:
        await nursery.start(SocketServer(MemoryStore()).run, socket_path)
    living = trio.lowlevel.current_statistics().tasks_living
    for turns in range(40):
        with trio.CancelScope() as scope:
            nursery.start_soon(cancel_after, scope, turns)
            store = await SocketStore.open(socket_path, TIMEOUT_SECONDS)
            await store.aclose()
        await until(lambda: trio.lowlevel.current_statistics().tasks_living == living)


async def test_a_socket_of_a_killed_process_is_replaced(socket_path):
    os.makedirs(os.path.dirname(socket_path))
    left = socket.socket(socket.AF_UNIX)
    left.bind(socket_path)
    left.close()
    for _ in range(2):
        async with serving(MemoryStore(), socket_path):
            store = await SocketStore.open(socket_path, TIMEOUT_SECONDS)
            await store.aclose()


@pytest.mark.parametrize(
    "sent",
    [
        struct.pack("!I", 2**31),
        struct.pack("!I", 3) + b"abc",
        encode_frame(Frame(1, Kind.GET, "/a")),
        encode_frame(Frame(1, Kind.BEGIN)) + b"\xff" * 100,
    ],
)
async def test_what_is_not_the_protocol_ends_that_connection_alone(store, socket_path, sent):
    stream = await trio.open_unix_socket(socket_path)
    await stream.send_all(sent)
    told = b""
    with trio.fail_after(WAIT_SECONDS_MAX):
        while data := await stream.receive_some():
            told += data
    assert bytes([Kind.REFUSED]) in told
    await stream.aclose()
    await store.put("/a", b"", None)


async def test_a_connection_may_have_so_many_watches(socket_path):
    limits = SocketLimits(watches_max=3)
    async with serving(MemoryStore(), socket_path, limits):
        store = await SocketStore.open(socket_path, TIMEOUT_SECONDS)
        states = []
        store.watch_session(states.append)
        stops = [store.watch(f"/{number}", lambda _path: None) for number in range(4)]
        await until(lambda: SessionState.IN_DOUBT in states)
        for stop in stops[1:]:
            stop()
        await until(lambda: store.session_state is SessionState.LIVE)
        await store.aclose()


async def test_there_may_be_so_many_sessions(socket_path):
    async with serving(MemoryStore(), socket_path, SocketLimits(sessions_max=1)):
        store = await SocketStore.open(socket_path, TIMEOUT_SECONDS)
        second = SocketStore(socket_path, TIMEOUT_SECONDS)
        trio.lowlevel.spawn_system_task(second._run)
        await until(lambda: "1 sessions already" in second._failure)
        await store.aclose()
        await until(lambda: second.session_state is SessionState.LIVE)
        await second.aclose()


async def test_a_session_may_have_so_many_nodes(socket_path):
    async with serving(MemoryStore(), socket_path, SocketLimits(nodes_max=2)):
        store = await SocketStore.open(socket_path, TIMEOUT_SECONDS)
        for name in ("a", "b"):
            await store.put_ephemeral(f"/{name}", b"")
        with pytest.raises(MetadataUnavailable, match="2 nodes"):
            await store.put_ephemeral("/c", b"")
        await store.delete("/a")
        await store.put_ephemeral("/c", b"")
        await store.aclose()


async def test_a_client_that_does_not_read_is_disconnected_and_keeps_its_session(socket_path):
    backing = MemoryStore()
    async with serving(backing, socket_path, SocketLimits(answer_bytes_max=400_000)) as server:
        await backing.put("/a", b"x" * 100_000, None)
        stream = await trio.open_unix_socket(socket_path)
        await stream.send_all(encode_frame(Frame(1, Kind.BEGIN, version=60_000)))
        await stream.receive_some()
        with suppress(trio.BrokenResourceError):
            for number in range(2, 100):
                await stream.send_all(encode_frame(Frame(number, Kind.GET, "/a")))
        await until(lambda: not server._connections)
        assert server.sessions == 1
        await stream.aclose()


async def test_a_value_that_is_too_large_is_refused_and_the_connection_stays(store):
    connection = store._connection
    with pytest.raises(MetadataUnavailable, match="may have"):
        await store.put("/a", b"x" * (VALUE_BYTES_MAX + 1), None)
    await store.put("/a", b"x" * VALUE_BYTES_MAX, None)
    assert len((await store.get("/a"))[0]) == VALUE_BYTES_MAX
    assert store._connection is connection


async def test_many_requests_at_once_are_all_answered(store):
    async with trio.open_nursery() as nursery:
        for number in range(3_000):
            nursery.start_soon(store.put, f"/many/{number:04}", b"x", None)
    assert len(await store.children("/many")) == 3_000


async def test_a_session_that_ends_while_it_writes_leaves_no_node(socket_path):
    backing = MemoryStore()
    async with serving(backing, socket_path) as server:
        store = await SocketStore.open(socket_path, TIMEOUT_SECONDS)
        entered, go_on = trio.Event(), trio.Event()
        put_ephemeral = backing.put_ephemeral

        async def slowly(path, value):
            entered.set()
            await go_on.wait()
            await put_ephemeral(path, value)

        backing.put_ephemeral = slowly
        async with trio.open_nursery() as nursery:

            async def make():
                with pytest.raises(MetadataUnavailable):
                    await store.put_ephemeral("/leases/a", b"")

            nursery.start_soon(make)
            await entered.wait()
            (session,) = server._sessions.all()
            await server._end(session)
            store._disconnect()
            go_on.set()
        await until(lambda: not session.writes and not session.nodes)
        assert not await backing.exists("/leases/a")
        await store.aclose()


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("oxia://localhost:6648", "no oxia store"),
        ("metadata-store:etcd:http://localhost", "no etcd store"),
        ("unix:relative", "absolute path"),
        ("zk:", "should name ZooKeeper"),
    ],
)
async def test_urls_of_other_stores_are_refused_by_name(url, reason):
    with pytest.raises(MetadataUnavailable, match=reason):
        await open_store(url, TIMEOUT_SECONDS)


async def test_urls_of_stores_are_opened(tmp_path, store, socket_path):
    for url, kind in (
        (f"unix:{socket_path}", SocketStore),
        (f"metadata-store:unix:{socket_path}", SocketStore),
        (f"rocksdb:{tmp_path}/r", RocksStore),
        (f"rocksdb://{tmp_path}/r", RocksStore),
        ("memory:local", MemoryStore),
    ):
        opened = await open_store(url, TIMEOUT_SECONDS)
        assert isinstance(opened, kind)
        await opened.aclose()
