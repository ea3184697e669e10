"""A metadata store on another machine, as ZooKeeper is: sessions that end when it does not hear of
their owner, who learns of the end later. The tree is that of `MemoryStore`.

`SessionStore` follows the rules of `metadata.zookeeper_store`: requests of a connection take effect
in order, a change is reported before the answer to the request that made it, reads wait for the
connection to come back, a write that loses its connection is refused and may have taken effect.
The owner of a session is in doubt after two thirds of the timeout. A twelfth of it before the
servers may end it, it is over by the owner's clock (`metadata.session_times`), also for a process
that was paused and has not spoken to the servers since.
"""

from __future__ import annotations

import itertools

import trio

from metadata.memory_store import MemoryStore
from metadata.session_times import Lease
from metadata.store import MetadataUnavailable, SessionState
from metadata.watches import Watches

HOST = "zk"
SESSION_SECONDS = 4.0
HELLO_SECONDS = 0.5


class Service:
    """The servers. Run it with `nursery.start_soon(run)`."""

    def __init__(self, network):
        self.network = network
        self.host = network.host(HOST)
        self.tree = MemoryStore()
        self._sessions = {}
        self._numbers = itertools.count(1)
        self._requests, self._received = trio.open_memory_channel(10_000)

    async def run(self):
        """Serve, and end the sessions of owners that are silent."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._expire)
            async for connection, request in self._received:
                await connection.serve(request)

    async def _expire(self):
        was_paused = False
        while True:
            await trio.sleep(0.25)
            now = trio.current_time()
            if self.host.is_paused:
                was_paused = True
                continue
            if was_paused:  # a server that starts again waits for everybody
                was_paused = False
                for session in self._sessions.values():
                    session.heard_at = now
            for number, session in tuple(self._sessions.items()):
                if now - session.heard_at > SESSION_SECONDS:
                    self.end(number)

    def end(self, number):
        """The session is over."""
        session = self._sessions.pop(number, None)
        if session is not None:
            session.tree.become(SessionState.LOST)
            if session.connection is not None:
                session.connection.close()

    def open(self, host, arrived):
        """The server's end of a new connection. The client's `arrived` gets answers and news."""
        return _ServerEnd(self, host, arrived)

    def begin_session(self, number, connection):
        """Continue a session, or begin one. Returns its number; None: it is over."""
        if number is None:
            number = next(self._numbers)
            self._sessions[number] = _Session(self.tree.another_session())
        session = self._sessions.get(number)
        if session is None:
            return None
        if session.connection is not None and session.connection is not connection:
            session.connection.close()
        session.connection = connection
        session.heard_at = trio.current_time()
        connection.session = session
        return number

    def take(self, connection, request):
        """A request has arrived."""
        if connection.session is not None:
            connection.session.heard_at = trio.current_time()
        self._requests.send_nowait((connection, request))


class _Session:
    def __init__(self, tree):
        self.tree = tree
        self.connection = None
        self.heard_at = trio.current_time()


class _ServerEnd:
    """A connection, on the side of the servers."""

    def __init__(self, service, host, arrived):
        self._service = service
        self.session = None
        self._is_closed = False
        self._ends = []
        network = service.network
        self.incoming = network.pipe(host, service.host, self._arrived)
        self._outgoing = network.pipe(service.host, host, arrived)

    def _arrived(self, request):
        if not self._is_closed:
            self._service.take(self, request)

    async def serve(self, request):
        """Do what is asked and answer."""
        if self._is_closed:
            return
        number, kind, arguments = request
        if kind == "hello":
            self._answer(number, self._service.begin_session(arguments[0], self), None)
        elif kind == "ping" or self.session is None:
            self._answer(number, None, None)
        elif kind == "watch":
            self._ends.append(self.session.tree.watch(arguments[0], self._changed))
        elif kind == "bye":
            self._service.end(arguments[0])
        else:
            try:
                result = await getattr(self.session.tree, kind)(*arguments)
            except Exception as error:
                self._answer(number, None, error)
            else:
                self._answer(number, result, None)

    def _answer(self, number, result, error):
        self._outgoing.send((number, result, error))

    def _changed(self, path):
        self._outgoing.send(("changed", path, None))

    def close(self):
        """The other side hears of it."""
        if not self._is_closed:
            self._outgoing.send(("closed", None, None))
            self.drop()

    def drop(self):
        """Forget the connection."""
        self._is_closed = True
        if self.session is not None and self.session.connection is self:
            self.session.connection = None
        for end in self._ends:
            end()
        self._ends.clear()


class SessionStore:
    """One session at a time of a process: a MetadataStore. Make it with `open`, run it with
    `nursery.start_soon(run)`."""

    def __init__(self, service, host, rng):
        self.damage = ""
        self.session_number = None
        self._told = SessionState.LOST
        """The state that was reported last."""
        self._stood_still_until = 0.0
        self.is_on_time = True
        """False after its clock stood still, until a later request is answered."""
        self._lease = None
        self._given_up = None
        """The number of a session that is over here, and perhaps not yet at the servers."""
        self._service = service
        self._host = host
        self._rng = rng
        self._connection = None
        self._waiting = {}
        self._numbers = itertools.count()
        self._watches = Watches()
        self._watched = {}
        self._on_session = []
        self._moved = trio.Event()
        self._lost_connection = trio.Event()
        self._is_over = False

    # --- sessions -----------------------------------------------------------------------

    @property
    def session_state(self):
        """See MetadataStore."""
        if self._lease is None or self._told is SessionState.LOST:
            return self._told
        return self._lease.state(trio.current_time(), is_connected=self._is_connected)

    @property
    def _is_connected(self):
        return self._told is SessionState.LIVE and self._connection is not None

    async def open(self):
        """Begin the first session."""
        while not await self._connect():
            await self._wait_before_retry()
        return self

    async def run(self):
        """Keep a session, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._keep_time)
            while True:
                await self._lost_connection.wait()
                await self._wait_before_retry()
                while not await self._connect():
                    await self._wait_before_retry()

    async def _wait_before_retry(self):
        await trio.sleep(self._rng.uniform(0.05, 0.6))

    async def _keep_time(self):
        """Ping, give up a dead connection, and end the session by the clock."""
        while True:
            await trio.sleep_until(self._next_look_at(trio.current_time()))
            if self._lease is None:
                continue
            if not self.is_on_time:
                await trio.sleep(self._rng.uniform(0, 0.2))
            now = trio.current_time()
            if self._lease is None:
                continue
            if now >= self._lease.ends_at:
                self.lose_connection()
                self._lose_session()
            elif self._is_connected:
                if now >= self._lease.doubtful_at:
                    self.lose_connection()
                else:
                    self._ask("ping", ())

    def _next_look_at(self, now):
        ping_at = now + SESSION_SECONDS / 6
        if self._lease is None:
            return ping_at
        lease = self._lease
        return min(ping_at, lease.doubtful_at if self._is_connected else lease.ends_at)

    def stand_still_since(self, paused_at):
        """The machine was suspended since then, and its clock with it: the time is not missed. No
        effect if another fault let it run meanwhile: it may have renewed its session."""
        now, host = trio.current_time(), self._host
        if self._lease is not None and host.is_paused and host.paused_at == paused_at:
            self._lease.answered(self._lease.sent_at + now - paused_at)
            self._stood_still_until = now
            self.is_on_time = False

    def _lose_session(self):
        """It is over."""
        self._given_up, self.session_number = self.session_number, None
        self._lease = None
        self._become(SessionState.LOST)

    def lose_connection(self):
        """No more is heard of the servers."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        connection.drop()
        self._become(SessionState.IN_DOUBT)
        waiting, self._waiting = self._waiting, {}
        for answer in waiting.values():
            answer.fail()
        self._lost_connection.set()

    async def _connect(self):
        """Whether there is a live session now."""
        connection = self._service.open(self._host, lambda item: self._arrived(connection, item))
        self._connection, self._lost_connection = connection, trio.Event()
        asked_at = trio.current_time()
        if self._given_up is not None and self._rng.random() < 0.7:
            connection.incoming.send((None, "bye", (self._given_up,)))
        answer = self._ask("hello", (self.session_number,))
        with trio.move_on_after(HELLO_SECONDS):
            await answer.here.wait()
        if not answer.here.is_set() or answer.is_lost or self._connection is not connection:
            self._waiting.clear()
            if self._connection is connection:
                self._connection = None
            connection.drop()
            return False
        if answer.result is None:
            self._connection = None
            connection.drop()
            self._lose_session()
            return False
        if self.session_number is None:
            self.session_number, self._given_up = answer.result, None
            self._lease = Lease(SESSION_SECONDS, asked_at)
        for path in self._watched:
            connection.incoming.send((None, "watch", (path,)))
        synced = self._ask("sync", ())
        with trio.move_on_after(HELLO_SECONDS):
            await synced.here.wait()
        if not synced.here.is_set() or synced.is_lost or self._connection is not connection:
            self.lose_connection()
            self._waiting.clear()
            return False
        if trio.current_time() >= self._lease.ends_at:
            self.lose_connection()
            self._lose_session()
            return False
        self._become(SessionState.LIVE)
        for path in tuple(self._watched):
            self._watches.tell(path)
        return True

    def _become(self, state):
        if state is self._told or self._is_over:
            return
        if state is SessionState.IN_DOUBT and self._told is SessionState.LOST:
            return
        self._told = state
        moved, self._moved = self._moved, trio.Event()
        moved.set()
        for on_change in tuple(self._on_session):
            on_change(state)

    def _arrived(self, connection, item):
        if connection is not self._connection or self._is_over:
            return
        number, result, error = item
        if number == "closed":
            self.lose_connection()
        elif number == "changed":
            self._watches.tell(result)
        else:
            answer = self._waiting.pop(number, None)
            if answer is not None:
                self.is_on_time |= answer.asked_at >= self._stood_still_until
                if self._lease is not None and trio.current_time() < self._lease.ends_at:
                    self._lease.answered(answer.asked_at)
                answer.result, answer.error = result, error
                answer.here.set()

    def _ask(self, kind, arguments):
        number = next(self._numbers)
        answer = self._waiting[number] = _Answer()
        self._connection.incoming.send((number, kind, arguments))
        return answer

    def kill(self):
        """The process has ended. Nobody is told."""
        self._is_over = True
        if self._connection is not None:
            self._connection.drop()
            self._connection = None
        for answer in self._waiting.values():
            answer.fail()
        self._moved.set()

    # --- MetadataStore ------------------------------------------------------------------

    def watch(self, path, on_change):
        """See MetadataStore."""
        is_new = path not in self._watched
        self._watched[path] = self._watched.get(path, 0) + 1
        if is_new and self._connection is not None:
            self._connection.incoming.send((None, "watch", (path,)))
        return self._watches.add(path, on_change)

    def watch_session(self, on_change):
        """See MetadataStore."""
        self._on_session.append(on_change)
        return lambda: self._on_session.remove(on_change)

    def _check(self):
        is_told_live = self._told is SessionState.LIVE
        if self._is_over or not is_told_live or self.session_state is SessionState.LOST:
            raise MetadataUnavailable("there is no connection to the metadata store")

    async def _read(self, kind, *arguments):
        while True:
            while self._told is SessionState.IN_DOUBT and not self._is_over:
                await self._moved.wait()
            self._check()
            answer = self._ask(kind, arguments)
            await answer.here.wait()
            if not answer.is_lost:
                return answer.take()

    async def _write(self, kind, *arguments):
        await trio.lowlevel.checkpoint()
        self._check()
        answer = self._ask(kind, arguments)
        await answer.here.wait()
        if answer.is_lost:
            raise MetadataUnavailable("the connection was lost: it may have been written or not")
        return answer.take()

    async def sync(self):
        """See MetadataStore."""
        await self._read("sync")

    async def get(self, path):
        """See MetadataStore."""
        return await self._read("get", path)

    async def children(self, path):
        """See MetadataStore."""
        return await self._read("children", path)

    async def exists(self, path):
        """See MetadataStore."""
        return await self._read("exists", path)

    async def put(self, path, value, expected_version):
        """See MetadataStore."""
        return await self._write("put", path, value, expected_version)

    async def put_ephemeral(self, path, value):
        """See MetadataStore."""
        await self._write("put_ephemeral", path, value)

    async def delete(self, path, expected_version=None):
        """See MetadataStore."""
        await self._write("delete", path, expected_version)

    async def next_sequence(self, path):
        """See MetadataStore."""
        return await self._write("next_sequence", path)

    async def peek_sequence(self, path):
        """See MetadataStore."""
        return await self._read("peek_sequence", path)

    async def aclose(self):
        """End the session in order."""
        await trio.lowlevel.checkpoint()
        if self._connection is not None:
            self._connection.incoming.send((None, "bye", (self.session_number,)))
        self._is_over = True


class _Answer:
    def __init__(self):
        self.asked_at = trio.current_time()
        self.here = trio.Event()
        self.result = None
        self.error = None
        self.is_lost = False

    def fail(self):
        self.is_lost = True
        self.here.set()

    def take(self):
        if self.error is not None:
            raise self.error
        return self.result
