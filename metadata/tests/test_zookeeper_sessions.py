"""Sessions of the ZooKeeper store: at most one at a time, and no end of one that nobody is told of.

Over simulated sessions, and over servers that never answer. The store over real ZooKeeper is in
compat_tests.
"""

import socket
import time
from contextlib import closing, suppress

import pytest
import trio
from kazoo.exceptions import ConnectionLoss, UnimplementedError

from metadata.store import MetadataUnavailable, SessionState
from metadata.tests.zookeeper_peer import ZooKeeperPeer
from metadata.zookeeper_address import ZooKeeperAddress
from metadata.zookeeper_session import ZooKeeperSession
from metadata.zookeeper_store import ZooKeeperStore
from runtime.testing.conditions import SECONDS_MAX

ADDRESS = ZooKeeperAddress(hosts="127.0.0.1:1", session_timeout_seconds=30.0)


async def until(condition):
    with trio.fail_after(SECONDS_MAX):
        while not condition():  # noqa: ASYNC110
            await trio.sleep(0.005)


class Session:
    """What the store uses of a session. `failing` requests to come fail with `failure`."""

    def __init__(self, servers, on_state):
        self._servers = servers
        self._on_state = on_state
        self.session_id = len(servers.sessions) + 1
        self.state = SessionState.LIVE
        self.is_open = True
        self.connection = 1
        self.watches = {}
        """The connection that each is set on, by path."""

    async def make_root(self):
        await self._servers.request()

    async def add_watch(self, path):
        await self._servers.request()
        self.watches[path] = self.connection
        self._servers.on_watch(path)

    def become(self, state):
        self.state = state
        if state is SessionState.IN_DOUBT:
            self.connection += 1
        self._on_state(state)

    async def aclose(self):
        if self._servers.state() is SessionState.LIVE:
            self._servers.ended_while_live.append(self.session_id)
        self.is_open = False
        self.state = SessionState.LOST
        await trio.lowlevel.checkpoint()


class Servers:
    """Begins sessions, and fails requests."""

    def __init__(self):
        self.sessions = []
        self.failing = 0
        self.failure = ConnectionLoss
        self.after_failure = lambda: None
        self.on_watch = lambda _path: None
        self.state = lambda: SessionState.LOST
        """What the store says."""
        self.ended_while_live = []

    async def a_store(self):
        store = await ZooKeeperStore.open(ADDRESS, self.begin)
        self.state = lambda: store.session_state
        return store

    async def begin(self, _address, on_state, _on_event, *, connect_seconds_max):
        del connect_seconds_max
        await trio.lowlevel.checkpoint()
        self.sessions.append(Session(self, on_state))
        return self.sessions[-1]

    async def request(self):
        await trio.lowlevel.checkpoint()
        if self.failing:
            self.failing -= 1
            self.after_failure()
            raise self.failure

    @property
    def open_sessions(self):
        return [each for each in self.sessions if each.is_open]


async def test_a_session_that_is_lost_while_it_begins_is_replaced_by_one(autojump_clock):
    servers = Servers()
    store = await servers.a_store()
    servers.failing = 1
    servers.after_failure = lambda: servers.sessions[-1].become(SessionState.LOST)

    servers.sessions[-1].become(SessionState.LOST)
    await until(lambda: store.session_state is SessionState.LIVE)
    await trio.sleep(10)

    assert len(servers.open_sessions) == 1
    assert store.session_id == servers.open_sessions[0].session_id
    assert servers.ended_while_live == []
    await store.aclose()


async def test_a_session_is_never_given_up_while_it_counts_as_live(autojump_clock):
    """The first request of a new session fails, and its connection comes back at once."""
    servers = Servers()
    store = await servers.a_store()
    store.watch("/namespace", lambda _path: None)
    await until(lambda: servers.sessions[-1].watches)
    servers.failing = 1

    def come_back():
        servers.sessions[-1].become(SessionState.IN_DOUBT)
        servers.sessions[-1].become(SessionState.LIVE)

    servers.after_failure = come_back
    servers.sessions[-1].become(SessionState.LOST)
    await trio.sleep(10)

    assert store.session_state is SessionState.LIVE
    assert len(servers.open_sessions) == 1
    assert servers.ended_while_live == []
    await store.aclose()


async def test_a_session_counts_as_live_after_all_watches_are_on_its_connection(autojump_clock):
    """The connection is lost a second time while the watches are set again."""
    servers = Servers()
    store = await servers.a_store()
    session = servers.sessions[-1]
    for path in ("/admin", "/namespace"):
        store.watch(path, lambda _path: None)
    await until(lambda: len(session.watches) == 2)
    found = []

    def look(state):
        if state is SessionState.LIVE:
            found.append(set(session.watches.values()) == {session.connection})

    def lose_once_more(_path):
        servers.on_watch = lambda _path: None
        session.become(SessionState.IN_DOUBT)
        session.become(SessionState.LIVE)

    servers.on_watch = lose_once_more
    store.watch_session(look)
    session.become(SessionState.IN_DOUBT)
    session.become(SessionState.LIVE)
    await trio.sleep(1)

    assert found == [True]
    await store.aclose()


async def test_a_start_ends_when_it_is_told_to_though_no_server_answers():
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        port = silent.getsockname()[1]
        address = ZooKeeperAddress(hosts=f"127.0.0.1:{port}", session_timeout_seconds=2.0)
        with trio.fail_after(SECONDS_MAX):
            with trio.move_on_after(0.2) as told_to_end:
                await ZooKeeperSession.open(
                    address, lambda _state: None, lambda _path: None, connect_seconds_max=60.0
                )
    assert told_to_end.cancelled_caught


async def test_servers_that_do_not_answer_are_named():
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        port = silent.getsockname()[1]
        address = ZooKeeperAddress(hosts=f"127.0.0.1:{port}", session_timeout_seconds=2.0)
        with pytest.raises(Exception, match=f"127.0.0.1:{port} within 0.2 s"):
            await ZooKeeperSession.open(
                address, lambda _state: None, lambda _path: None, connect_seconds_max=0.2
            )


async def test_a_watch_that_is_refused_leaves_no_session_in_doubt(autojump_clock):
    """The connection comes back, ZooKeeper refuses what is asked first, and no event comes."""
    servers = Servers()
    store = await servers.a_store()
    store.watch("/namespace", lambda _path: None)
    await until(lambda: servers.sessions[-1].watches)
    servers.failing, servers.failure = 1, UnimplementedError
    servers.sessions[-1].become(SessionState.IN_DOUBT)
    servers.sessions[-1].become(SessionState.LIVE)
    await trio.sleep(10)

    assert store.session_state is SessionState.LIVE
    assert len(servers.sessions) == 2
    assert servers.open_sessions[0].watches
    await store.aclose()


async def test_a_watch_that_is_refused_when_it_is_made_begins_a_new_session(autojump_clock):
    """Without it, a copy in memory would grow old, and nobody would know."""
    servers = Servers()
    store = await servers.a_store()
    servers.failing, servers.failure = 1, UnimplementedError
    store.watch("/namespace", lambda _path: None)
    await trio.sleep(10)

    assert store.session_state is SessionState.LIVE
    assert list(servers.open_sessions[0].watches) == ["/namespace"]
    assert len(servers.sessions) == 2
    await store.aclose()


TIMEOUT_SECONDS = 8.0
"""A machine that stands still for a third of it is not taken for a silent ZooKeeper."""


@pytest.fixture
async def peer(nursery):
    peer = ZooKeeperPeer(int(TIMEOUT_SECONDS * 1000))
    peer.port = await nursery.start(peer.run)
    yield peer
    nursery.cancel_scope.cancel()


async def store_at(peer):
    hosts = f"127.0.0.1:{peer.port}"
    return await ZooKeeperStore.open(
        ZooKeeperAddress(hosts=hosts, session_timeout_seconds=TIMEOUT_SECONDS)
    )


async def test_requests_while_no_server_answers_do_not_hold_up_the_event_loop(peer):
    """After 278 of them it waited until a server answered again, and for a signal as well."""
    address = ZooKeeperAddress(
        hosts=f"127.0.0.1:{peer.port}", session_timeout_seconds=TIMEOUT_SECONDS
    )
    session = await ZooKeeperSession.open(
        address, lambda _: None, lambda _: None, connect_seconds_max=SECONDS_MAX
    )
    peer.is_silent = True
    await until(lambda: not session._client.connected)

    def ask():
        for number in range(2000):
            session._client.exists_async(f"/{number}")

    with trio.fail_after(SECONDS_MAX):
        await trio.to_thread.run_sync(ask, abandon_on_cancel=True)
        await session.aclose()


async def test_a_process_that_was_stopped_finds_its_session_over_at_once(peer, monkeypatch):
    """Before kazoo's thread has noticed, and though ZooKeeper would go on with the session."""
    store = await store_at(peer)
    states = []
    store.watch_session(states.append)
    now = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: now() + TIMEOUT_SECONDS)
    assert store.session_state is SessionState.LOST
    with pytest.raises(MetadataUnavailable, match="was lost, a new one is begun"):
        await store.put("/a", b"", None)
    assert await store_is_live_again(store, states)
    assert states == [SessionState.LOST, SessionState.LIVE]
    assert peer.sessions == 2
    await store.aclose()


async def store_is_live_again(store, states):
    """False: it was live before the end was reported."""
    is_right = True

    def is_live():
        nonlocal is_right
        is_live_now = store.session_state is SessionState.LIVE
        is_right = is_right and not (is_live_now and not states)
        return is_live_now

    await until(is_live)
    return is_right


async def test_pings_and_requests_keep_a_session(peer):
    """Answered requests count, too: kazoo pings only when it has sent nothing else for a time."""
    store = await store_at(peer)
    states = []
    store.watch_session(states.append)
    ends = trio.current_time() + 2.4 * TIMEOUT_SECONDS
    while trio.current_time() < ends - 1.2 * TIMEOUT_SECONDS:
        assert await store.exists("/a")
        await trio.sleep(0.1)
    await trio.sleep_until(ends)
    assert peer.pings
    assert SessionState.LOST not in states
    assert peer.sessions == 1
    await store.aclose()


async def test_a_session_without_answers_ends_though_requests_are_sent_all_the_time(peer):
    """kazoo gives a connection up only when it has sent nothing for a time, either."""
    store = await store_at(peer)
    states = []
    store.watch_session(states.append)
    peer.is_silent = True
    began = trio.current_time()
    async with trio.open_nursery() as nursery:

        async def ask():
            with suppress(MetadataUnavailable):
                await store.exists("/a")

        while SessionState.LOST not in states:
            assert trio.current_time() - began < 5 * TIMEOUT_SECONDS
            nursery.start_soon(ask)
            await trio.sleep(0.05)
        nursery.cancel_scope.cancel()
    assert states == [SessionState.IN_DOUBT, SessionState.LOST]
    await store.aclose()
