"""The metadata store of another process of this machine (`metadata.socket_server`).

As with ZooKeeper, the session outlives a lost connection for its timeout, counted by this process's
clock from the last request that was answered (`metadata.session_times`). Meanwhile it is in doubt,
reads wait, and writes are refused; a write that lost its connection may have taken effect. When the
connection is back, the watches are set again before the session counts as live, and each watcher is
notified that anything may have changed. After a lost session a new one is begun.

A process that was stopped for longer than its timeout finds its session lost as soon as it resumes:
`session_state` asks the clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import structlog
import trio

from metadata.node_keys import node_key
from metadata.session_times import Lease
from metadata.socket_connection import Connection, ConnectionLost
from metadata.socket_frames import ANY_VERSION, PATH_BYTES_MAX, Frame, Kind
from metadata.store import (
    CONNECT_SECONDS_MAX,
    MetadataUnavailable,
    NodeNotFound,
    SessionState,
    VersionConflict,
)
from metadata.watches import Watches

if TYPE_CHECKING:
    from collections.abc import Callable

    from metadata.store import OnChange, OnSession

log = structlog.get_logger()

VALUE_BYTES_MAX: Final = 4 * 1024 * 1024
"""A larger one is refused before it is sent, because the server would end the connection."""
_RETRY_SECONDS: Final = 0.2


class _SessionOver(Exception):
    """The server says that the session is over."""


@final
class SocketStore:
    """See the module docstring. Make one with `await SocketStore.open(...)`."""

    def __init__(self, path: str, session_timeout_seconds: float) -> None:
        self._path = path
        self._timeout_seconds = session_timeout_seconds
        self._connection: Connection | None = None
        """The one whose session is live; None while there is none."""
        self._token = b""
        self._given_up = b""
        """The token of the last session, which is over here and perhaps not yet at the server."""
        self._lease: Lease | None = None
        """None: there is no session."""
        self._told = SessionState.LOST
        """The state that was reported last."""
        self._settled = trio.Event()
        """Replaced whenever the session comes into doubt; set when it is live, or over."""
        self._settled.set()
        self._watches = Watches()
        self._watched: dict[str, int] = {}
        """How many watches there are of each path."""
        self._on_session: list[OnSession] = []
        self._is_closed = False
        self._scope = trio.CancelScope()
        self._ended = trio.Event()
        self._failure = ""
        self._wake_keeper = trio.Event()
        self.damage = ""
        """Never any: the server checks its files."""

    @classmethod
    async def open(cls, path: str, session_timeout_seconds: float) -> SocketStore:
        """Connect and begin a session.

        Raises: MetadataUnavailable.
        """
        store = cls(path, session_timeout_seconds)
        live = trio.Event()
        stop = store.watch_session(lambda _state: live.set())
        trio.lowlevel.spawn_system_task(store._run)
        try:
            with trio.move_on_after(CONNECT_SECONDS_MAX):
                await live.wait()
            stop()
            if not live.is_set():
                raise MetadataUnavailable(
                    f"no metadata store at {path} within {CONNECT_SECONDS_MAX:g} s: "
                    f"{store._failure}"
                )
        except BaseException:
            await store.aclose()
            raise
        return store

    # --- the session ----------------------------------------------------------------------

    @property
    def session_state(self) -> SessionState:
        """See MetadataStore."""
        lease = self._lease
        if lease is None:
            return SessionState.LOST
        return lease.state(trio.current_time(), is_connected=self._connection is not None)

    def watch_session(self, on_change: OnSession) -> Callable[[], None]:
        """See MetadataStore."""
        self._on_session.append(on_change)
        return lambda: self._on_session.remove(on_change)

    async def _run(self) -> None:
        """Be connected until the store is closed."""
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._keep_time)
                    while True:
                        await self._connect_once()
                        await trio.sleep(_RETRY_SECONDS)
        finally:
            self._ended.set()

    async def _connect_once(self) -> None:
        """Connect, and serve the connection until it is lost."""
        try:
            stream = await trio.open_unix_socket(self._path)
        except OSError as error:
            self._note_failure(error.strerror or str(error))
            return
        connection = Connection(stream, self._watches.tell, self._lose)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(connection.write_all, nursery.cancel_scope)
                nursery.start_soon(connection.read_all, nursery.cancel_scope)
                await self._begin(connection)
                await trio.sleep_forever()
        except* (ConnectionLost, _SessionOver, MetadataUnavailable) as group:
            self._note_failure(str(group.exceptions[0]) or "the connection was lost")
        finally:
            connection.fail()
            self._connection = None
            stream.socket.close()
            self._report()

    def _note_failure(self, reason: str) -> None:
        if reason != self._failure:
            self._failure = reason
            log.warning("no connection to the metadata store", path=self._path, reason=reason)

    async def _begin(self, connection: Connection) -> None:
        """Begin a session or go on with it, set all watches, and be live.

        Raises: ConnectionLost, _SessionOver, MetadataUnavailable.
        """
        sent_at = trio.current_time()
        timeout_ms = int(self._timeout_seconds * 1000)
        self._report()
        token = self._token
        answer = await connection.call(
            Kind.BEGIN, self._given_up.hex(), value=token, version=timeout_ms
        )
        self._check_begun(answer)
        if token and token != self._token:
            raise _SessionOver("the session is over")  # by the clock, while this was under way
        lease = self._lease or Lease(answer.version / 1000, sent_at)
        lease.answered(sent_at)
        watched: set[str] = set()
        while missing := self._watched.keys() - watched:
            for path in missing:
                self._check_begun(await connection.call(Kind.WATCH, path))
            watched |= missing
        if connection.is_failed:
            raise ConnectionLost
        if lease.state(trio.current_time(), is_connected=True) is SessionState.LOST:
            raise _SessionOver("the metadata store answers too late")
        connection.lease = lease
        self._token, self._lease, self._connection = answer.value, lease, connection
        self._failure = ""
        self._report()
        self._wake_keeper.set()
        for path in tuple(self._watched):
            self._watches.tell(path)

    def _check_begun(self, answer: Frame) -> None:
        """Raises: _SessionOver, MetadataUnavailable."""
        if answer.kind is Kind.SESSION_OVER:
            self._lose()
            raise _SessionOver("the session is over")
        if answer.kind is not Kind.DONE:
            raise MetadataUnavailable(answer.value.decode(errors="replace"))

    async def _keep_time(self) -> None:
        """Ping, give up a dead connection, and end the session by the clock."""
        while True:
            self._wake_keeper = trio.Event()
            lease, connection = self._lease, self._connection
            now = trio.current_time()
            if lease is None:
                due = float("inf")
            elif connection is None:
                due = lease.ends_at
            elif now < lease.ping_at:
                due = lease.ping_at
            else:
                due = lease.doubtful_at
                connection.ping()
            with trio.move_on_at(due):
                await self._wake_keeper.wait()
            if lease is not None and trio.current_time() >= lease.doubtful_at:
                self._disconnect()
                self._report()

    def _disconnect(self) -> None:
        """End the connection, after which another one is made."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.fail()

    def _lose(self) -> None:
        """The session is over."""
        self._give_up()
        self._report()

    def _give_up(self) -> None:
        if self._token:
            self._given_up = self._token
        self._lease, self._token = None, b""
        self._disconnect()

    def _report(self) -> None:
        """Tell of the state, if it has changed."""
        state = self.session_state
        if state is SessionState.LOST:
            self._give_up()
        if state is self._told:
            return
        self._told = state
        if state is SessionState.IN_DOUBT:
            self._settled = trio.Event()
        else:
            self._settled.set()
        for on_change in tuple(self._on_session):
            on_change(state)

    # --- watches --------------------------------------------------------------------------

    def watch(self, path: str, on_change: OnChange) -> Callable[[], None]:
        """See MetadataStore."""
        _check(path)
        stop_telling = self._watches.add(path, on_change)
        count = self._watched.get(path, 0)
        self._watched[path] = count + 1
        if not count and self._connection is not None:
            self._connection.post(Kind.WATCH, path)

        def stop() -> None:
            stop_telling()
            self._watched[path] -= 1
            if not self._watched[path]:
                del self._watched[path]
                if self._connection is not None:
                    self._connection.post(Kind.END_WATCH, path)

        return stop

    # --- reads ----------------------------------------------------------------------------

    async def sync(self) -> None:
        """See MetadataStore. There is one copy only, and a request shows what is in it."""
        self._open_lease()
        await trio.lowlevel.checkpoint()

    async def get(self, path: str) -> tuple[bytes, int] | None:
        """See MetadataStore."""
        answer = await self._read(Kind.GET, path)
        return None if answer.kind is Kind.ABSENT else (answer.value, answer.version)

    async def children(self, path: str) -> list[str]:
        """See MetadataStore."""
        names = (await self._read(Kind.CHILDREN, path)).value
        return names.decode().split("\0") if names else []

    async def exists(self, path: str) -> bool:
        """See MetadataStore."""
        return (await self._read(Kind.EXISTS, path)).kind is Kind.DONE

    async def peek_sequence(self, path: str) -> int:
        """See MetadataStore."""
        return (await self._read(Kind.PEEK_SEQUENCE, path)).version

    # --- writes ---------------------------------------------------------------------------

    async def put(self, path: str, value: bytes, expected_version: int | None) -> int:
        """See MetadataStore."""
        expected = ANY_VERSION if expected_version is None else expected_version
        return (await self._write(Kind.PUT, path, value, expected)).version

    async def put_ephemeral(self, path: str, value: bytes) -> None:
        """See MetadataStore."""
        await self._write(Kind.PUT_EPHEMERAL, path, value)

    async def delete(self, path: str, expected_version: int | None = None) -> None:
        """See MetadataStore."""
        expected = ANY_VERSION if expected_version is None else expected_version
        await self._write(Kind.DELETE, path, b"", expected)

    async def next_sequence(self, path: str) -> int:
        """See MetadataStore."""
        return (await self._write(Kind.NEXT_SEQUENCE, path)).version

    async def aclose(self) -> None:
        """End the session and its ephemeral nodes. Safe to call twice."""
        if self._is_closed:
            return
        self._is_closed = True
        connection = self._connection
        with trio.CancelScope(shield=True):
            if connection is not None:
                with trio.move_on_after(self._timeout_seconds / 3):
                    try:
                        await connection.call(Kind.END)
                    except ConnectionLost:
                        log.info("the session was not ended: it ends after its timeout")
            self._scope.cancel()
            await self._ended.wait()
        self._lose()

    # --- requests -------------------------------------------------------------------------

    async def _read(self, kind: Kind, path: str) -> Frame:
        """The answer to a request, which is sent again after each lost connection.

        Raises: MetadataUnavailable.
        """
        _check(path)
        while True:
            connection = self._open_lease()
            try:
                if connection is None:
                    await self._settled.wait()
                    await trio.lowlevel.checkpoint()
                else:
                    return self._checked(path, await connection.call(kind, path))
            except ConnectionLost:
                continue

    async def _write(
        self, kind: Kind, path: str, value: bytes = b"", expected_version: int = ANY_VERSION
    ) -> Frame:
        """The answer to a request, which is sent once.

        Raises: VersionConflict, NodeNotFound, MetadataUnavailable.
        """
        _check(path, value)
        connection = self._open_lease()
        if connection is None:
            raise MetadataUnavailable("the metadata store cannot be reached, try again")
        try:
            return self._checked(path, await connection.call(kind, path, value, expected_version))
        except ConnectionLost:
            raise MetadataUnavailable(
                f"the connection to the metadata store was lost while {path} was written, try again"
            ) from None

    def _open_lease(self) -> Connection | None:
        """The connection, if there is one and there is a session. Raises: MetadataUnavailable."""
        if self._is_closed:
            raise MetadataUnavailable("the metadata store is closed")
        state = self.session_state
        if state is SessionState.LOST:
            raise MetadataUnavailable(
                "the session with the metadata store was lost, a new one is begun"
            )
        return self._connection if state is SessionState.LIVE else None

    def _checked(self, path: str, answer: Frame) -> Frame:
        """Raises: VersionConflict, NodeNotFound, MetadataUnavailable."""
        if answer.kind is Kind.DONE or answer.kind is Kind.ABSENT:
            return answer
        text = answer.value.decode(errors="replace") or path
        if answer.kind is Kind.CONFLICT:
            raise VersionConflict(text)
        if answer.kind is Kind.NOT_FOUND:
            raise NodeNotFound(text)
        raise MetadataUnavailable(text)


def _check(path: str, value: bytes = b"") -> None:
    """Refuse what the server would end the connection for.

    Raises: ValueError: not a path. MetadataUnavailable: too long.
    """
    if len(node_key(path)) > PATH_BYTES_MAX or len(value) > VALUE_BYTES_MAX:
        raise MetadataUnavailable(
            f"{path[:100]}: a path may have {PATH_BYTES_MAX} bytes, and a value {VALUE_BYTES_MAX}"
        )
