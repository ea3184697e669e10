"""One session with ZooKeeper: kazoo in threads of its own, its results in the event loop.

kazoo (2.11) supplies connecting, pings, the resumption of a session after a lost connection, and
the records of the protocol. Two things are added here:

- Recursive watches (ZooKeeper 3.6, request ADD_WATCH with mode 1). They stay until the connection
  is lost, and report every node that is created, changed or deleted at or below their path. kazoo
  knows one-time watches of single nodes only.
- The end of a session by this machine's clock. ZooKeeper reports the expiry of a session to a
  client only when the client is connected again. A client that was cut off, or stopped, must know
  earlier, because ZooKeeper gives its ephemeral nodes away meanwhile. A session is therefore in
  doubt after two thirds of its timeout since the last answered request was sent, and over a twelfth
  of it before ZooKeeper may end it (`metadata.session_times`), even if ZooKeeper would still resume
  it. `state` asks the clock: this holds before any thread has noticed. (kazoo gives up a connection
  without answers only when nothing is sent on it, either.)

Invariants: requests are sent in the order of the calls, and an event that ZooKeeper sends before a
result is reported before it. `on_state` is called in the event loop, in the order of the changes.
`LOST` is the last; no request succeeds after it. A request that fails with ConnectionLoss may have
taken effect.
"""

from __future__ import annotations

import logging
import socket
import struct
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, final

import trio
from kazoo.client import KazooClient, KazooState
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import PING_XID, ConnectionHandler
from kazoo.protocol.serialization import Connect, Watch, write_string
from kazoo.retry import KazooRetry
from kazoo.security import make_digest_acl

from metadata.session_times import Lease
from metadata.store import SessionState
from metadata.wake_pipe import WakePipe
from security.openssl import reason_of
from security.tls_suites import UnusableTls

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from metadata.zookeeper_access import ZooKeeperAccess
    from metadata.zookeeper_address import ZooKeeperAddress
    from security.tls_client import TlsClientContexts

logging.getLogger("kazoo").addHandler(logging.NullHandler())
"""Each attempt to connect would be a line on stderr. What matters is logged by those who use it."""

_ADD_WATCH: Final = 106
_RECURSIVE: Final = 1
_DIGEST: Final = "digest"
_MODE: Final = struct.Struct("!i")
_RECONNECT_DELAY_SECONDS_MAX: Final = 1.0


class _Pending(Protocol):
    """kazoo's result of a request under way."""

    value: Any
    exception: BaseException | None

    def rawlink(self, callback: Callable[[object], None]) -> None:
        """Call back, from one of kazoo's threads, when the result is there."""


class Stat(NamedTuple):
    """The part of a node's state that is used."""

    version: int
    children: int


class SessionFailed(Exception):
    """There is no session, and none can be had now. The text names the servers and the reason."""


class _AddWatch(NamedTuple):
    """The request for a watch, as kazoo sends requests. Source: ZooKeeper's zookeeper.jute."""

    path: str

    @property
    def type(self) -> int:
        return _ADD_WATCH

    def serialize(self) -> bytes:
        return bytes(write_string(self.path)) + _MODE.pack(_RECURSIVE)

    def deserialize(self, _data: bytes, _offset: int) -> bool:
        return True


@final
class _Connection(ConnectionHandler):  # type: ignore[misc]
    """kazoo's connection, which hands every event to `on_event` and keeps the time of the session.

    Everything private here runs in kazoo's connection thread. Answers come in the order of the
    requests, except for those to pings, of which at most one is under way.
    """

    on_event: Callable[[str], None]

    def __init__(self, *arguments: object, **options: object) -> None:
        super().__init__(*arguments, **options)
        self._lease: Lease | None = None
        """None: no session has begun. Its times are those of `time.monotonic`."""
        self._session_id = 0
        self._is_over = False
        """Another session has taken its place, or ZooKeeper has ended it."""
        self._sent: deque[tuple[int, float]] = deque()
        """Number and time of the requests on this connection that have no answer."""
        self._ping_sent_at = 0.0

    def start(self) -> None:
        """See kazoo, whose pair of sockets is replaced."""
        if self.connection_closed.is_set():
            self._read_sock, self._write_sock = WakePipe.pair()
            self.connection_closed.clear()
        super().start()

    def state(self, now: float, *, is_connected: bool) -> SessionState:
        """The state of the first session. LOST is final."""
        lease = self._lease
        if self._is_over:
            return SessionState.LOST
        if lease is None:
            return SessionState.LIVE
        return lease.state(now, is_connected=is_connected)

    def due_at(self, *, is_connected: bool) -> float:
        """When the state changes unless another request is answered."""
        lease = self._lease
        if lease is None:
            return float("inf")
        return lease.doubtful_at if is_connected else lease.ends_at

    def give_up(self) -> None:
        """Make kazoo connect again."""
        try:
            if self._socket is not None:
                self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # it has ended by itself

    def _answered(self, sent_at: float) -> None:
        """A request of this time was answered. Too late an answer does not bring a session back,
        because its end may have been seen."""
        lease = self._lease
        if lease is not None and time.monotonic() < lease.ends_at:
            lease.answered(sent_at)

    def _invoke(self, timeout: float, request: object, xid: int | None = None) -> object:
        """Sends a request while a connection begins, and waits for the answer."""
        sent_at = time.monotonic()
        self._sent.clear()
        answer = super()._invoke(timeout, request, xid)
        if isinstance(request, Connect):
            self._begin(answer[0], sent_at)
        return answer

    def _begin(self, granted: Connect, sent_at: float) -> None:
        """A connection is there, with a session that goes on or a new one."""
        if self._lease is None:
            if granted.time_out > 0:
                self._session_id = granted.session_id
                self._lease = Lease(granted.time_out / 1000, sent_at)
        elif granted.time_out <= 0 or granted.session_id != self._session_id:
            self._is_over = True
        else:
            self._answered(sent_at)

    def _submit(self, request: object, timeout: float, xid: int | None = None) -> None:
        if xid == PING_XID:
            self._ping_sent_at = time.monotonic()
        elif xid is not None and xid > 0:
            self._sent.append((xid, time.monotonic()))
        super()._submit(request, timeout, xid)

    def _read_header(self, timeout: float) -> tuple[Any, bytes, int]:
        read: tuple[Any, bytes, int] = super()._read_header(timeout)
        xid = read[0].xid
        if xid == PING_XID:
            self._answered(self._ping_sent_at)
        elif self._sent and self._sent[0][0] == xid:
            self._answered(self._sent.popleft()[1])
        return read

    def _read_watch_event(self, buffer: bytes, offset: int) -> None:
        event, _end = Watch.deserialize(buffer, offset)
        self.on_event(event.path)


@final
class _Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's handler, whose connections have TLS. `create_connection` runs in kazoo's thread."""

    def __init__(self, contexts: TlsClientContexts) -> None:
        super().__init__()
        self._contexts = contexts
        self.failure = ""
        """Why the last connection could not be made secure."""

    def create_connection(
        self, *, address: tuple[str, int], hostname: str, timeout: float, **_options: object
    ) -> socket.socket:
        """See kazoo."""
        plain: socket.socket = super().create_connection(address=address, timeout=timeout)
        try:
            plain.settimeout(timeout)
            return self._contexts.look().wrap_socket(plain, server_hostname=hostname)
        except BaseException as error:
            plain.close()
            if isinstance(error, OSError):
                self.failure = f"TLS: {reason_of(error)}"
            raise


def _acl_of(digest: str) -> list[object]:
    """The rights to the nodes that this user makes. ZooKeeper's `auth` would stand for every
    identity of the connection, including the name in its certificate."""
    user, _, password = digest.partition(":")
    return [make_digest_acl(user, password, all=True)]


def _handler_of(access: ZooKeeperAccess) -> _Handler | None:
    """None: without TLS. Raises: SessionFailed."""
    if access.tls is None:
        return None
    # Loads libraries of which a process without TLS has no use.
    from security.tls_client import TlsClientContexts

    try:
        return _Handler(TlsClientContexts(access.tls))
    except UnusableTls as error:
        raise SessionFailed(str(error)) from None


@final
class ZooKeeperSession:
    """See the module docstring. Make one with `await ZooKeeperSession.open(...)`."""

    def __init__(
        self,
        address: ZooKeeperAddress,
        on_state: Callable[[SessionState], None],
        on_event: Callable[[str], None],
    ) -> None:
        self._address = address
        self._token = trio.lowlevel.current_trio_token()
        self._on_state = on_state
        self._told = SessionState.LIVE
        """The state that was reported last."""
        self._is_closed = False
        self._moved = trio.Event()
        """Replaced, after it is set, whenever `_told` changes."""
        retry = KazooRetry(
            max_tries=-1, delay=0.05, backoff=2, max_delay=_RECONNECT_DELAY_SECONDS_MAX
        )
        self._handler = _handler_of(address.access)
        digest = address.access.digest
        client = KazooClient(
            hosts=address.hosts,
            timeout=address.session_timeout_seconds,
            connection_retry=retry,
            handler=self._handler,
            auth_data=[(_DIGEST, digest)] if digest else None,
            default_acl=_acl_of(digest) if digest else None,
        )
        connection = _Connection(client, retry.copy(), logger=client.logger)
        connection.on_event = lambda path: self._in_event_loop(on_event, self._below_root(path))
        client._connection = self._connection = connection
        client.add_listener(self._on_kazoo_state)
        self._client = client

    @classmethod
    async def open(
        cls,
        address: ZooKeeperAddress,
        on_state: Callable[[SessionState], None],
        on_event: Callable[[str], None],
        *,
        connect_seconds_max: float,
    ) -> ZooKeeperSession:
        """Connect and begin a session.

        Raises: SessionFailed.
        """
        session = cls(address, on_state, on_event)
        connected = session._client.start_async()
        try:
            # A cancelled wait is left to its thread: a process that is asked to end does so now.
            is_connected = await trio.to_thread.run_sync(
                connected.wait, connect_seconds_max, abandon_on_cancel=True
            )
        except BaseException:
            await session.aclose()
            raise
        if not is_connected:
            await session.aclose()
            raise SessionFailed(
                f"no ZooKeeper answered at {address.hosts} within {connect_seconds_max:g} s"
                f"{session.tls_failure}"
            )
        trio.lowlevel.spawn_system_task(session._keep_time)
        return session

    @property
    def tls_failure(self) -> str:
        """Why there is no secure connection, as the end of a sentence; empty: nothing failed."""
        failure = "" if self._handler is None else self._handler.failure
        return f": {failure}" if failure else ""

    @property
    def state(self) -> SessionState:
        """The state now, which may be seen here a little before it is reported."""
        told = self._told
        if told is SessionState.LOST:
            return told
        return self._connection.state(time.monotonic(), is_connected=told is SessionState.LIVE)

    @property
    def session_id(self) -> int:
        """ZooKeeper's number of the session: the owner of its ephemeral nodes."""
        identity = self._client.client_id
        return identity[0] if identity is not None else 0

    async def sync(self) -> None:
        """Raises: KazooException."""
        await self._result_of(self._client.sync_async(self._place("/")))

    async def get(self, path: str) -> tuple[bytes, Stat]:
        """Raises: KazooException."""
        value, stat = await self._result_of(self._client.get_async(self._place(path)))
        return value, Stat(stat.version, stat.numChildren)

    async def exists(self, path: str) -> bool:
        """Raises: KazooException."""
        return await self._result_of(self._client.exists_async(self._place(path))) is not None

    async def children(self, path: str) -> list[str]:
        """Raises: KazooException."""
        names: list[str] = await self._result_of(self._client.get_children_async(self._place(path)))
        return names

    async def create(
        self, path: str, value: bytes, *, ephemeral: bool = False, sequential: bool = False
    ) -> str:
        """The path that was made, with its number if it is sequential. Makes parents, too.

        Raises: KazooException.
        """
        made: str = await self._result_of(
            self._client.create_async(
                self._place(path), value, ephemeral=ephemeral, sequence=sequential, makepath=True
            )
        )
        return self._below_root(made)

    async def set(self, path: str, value: bytes, version: int) -> int:
        """The new version. Raises: KazooException."""
        stat = await self._result_of(self._client.set_async(self._place(path), value, version))
        return int(stat.version)

    async def delete(self, path: str, version: int) -> None:
        """Raises: KazooException."""
        await self._result_of(self._client.delete_async(self._place(path), version))

    async def make_and_delete(self, path: str, count: int) -> None:
        """Create and delete a node so many times, in one transaction. Its parent exists.

        Raises: KazooException.
        """
        transaction = self._client.transaction()
        for _ in range(count):
            transaction.create(self._place(path))
            transaction.delete(self._place(path))
        results = await self._result_of(transaction.commit_async())
        failed = next((each for each in results if isinstance(each, Exception)), None)
        if failed is not None:
            raise failed

    async def make_root(self) -> None:
        """Make the chroot when it is not there. Raises: KazooException."""
        await self._result_of(self._client.ensure_path_async(self._place("/")))

    def _place(self, path: str) -> str:
        """The path in ZooKeeper's own tree. kazoo's chroot would warn of one that is new."""
        return (self._address.chroot + path).rstrip("/") or "/"

    def _below_root(self, path: str) -> str:
        return path.removeprefix(self._address.chroot) or "/"

    def add_watch(self, path: str) -> Awaitable[None]:
        """Report changes at and below `path` to `on_event` until the connection is lost: those
        after the requests that were made before this one. The result raises KazooException.
        """
        client = self._client
        result = client.handler.async_result()
        client._call(_AddWatch(self._place(path)), result)
        return self._result_of(result)

    async def settled(self) -> None:
        """Return when the session is live, or lost."""
        while self._told is SessionState.IN_DOUBT:
            await self._moved.wait()

    async def aclose(self) -> None:
        """End the session. Its ephemeral nodes go at once when ZooKeeper can be reached."""
        self._is_closed = True
        self._become(SessionState.LOST)
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(self._close)

    def _close(self) -> None:
        self._client.stop()
        self._client.close()

    async def _result_of(self, result: _Pending) -> Any:  # noqa: ANN401 - kazoo has no types
        done = trio.Event()
        result.rawlink(lambda _result: self._in_event_loop(done.set))
        await done.wait()
        if result.exception is not None:
            raise result.exception
        return result.value

    def _in_event_loop(self, call: Callable[..., None], *arguments: object) -> None:
        """From one of kazoo's threads. After the event loop has ended the call is dropped."""
        try:
            self._token.run_sync_soon(call, *arguments)
        except trio.RunFinishedError:
            return

    def _on_kazoo_state(self, state: str) -> None:
        self._in_event_loop(self._follow, state)

    def _follow(self, state: str) -> None:
        if state == KazooState.LOST:
            self._become(SessionState.LOST)
        else:
            is_connected = state == KazooState.CONNECTED
            self._become(self._connection.state(time.monotonic(), is_connected=is_connected))

    async def _keep_time(self) -> None:
        """Give up a connection without answers, and end the session by the clock."""
        connection = self._connection
        while self._told is not SessionState.LOST:
            now, is_connected = time.monotonic(), self._told is SessionState.LIVE
            state = connection.state(now, is_connected=is_connected)
            if state is not self._told:
                self._become(state)
                connection.give_up()
            else:
                with trio.move_on_after(connection.due_at(is_connected=is_connected) - now):
                    await self._moved.wait()

    def _become(self, state: SessionState) -> None:
        if self._told is SessionState.LOST or self._told is state:
            return
        self._told = state
        moved, self._moved = self._moved, trio.Event()
        moved.set()
        if not self._is_closed:
            self._on_state(state)
