"""A metadata store served to other processes of this machine over a Unix socket.

Each client has a session. It ends when the client ends it, when the client's process ends, or when
the client was silent for the timeout; then its ephemeral nodes are deleted. A session outlives its
connection, but watches do not. The socket is in a directory that only this user can enter. A
process that can connect may do everything.

Invariants: writes to one path happen one after the other. When a session ends, its writes finish
first, then its nodes are deleted; none of them is created afterwards. A connection is notified of a
change before it gets the answer to the request that made it.

Most reads are answered from memory, in the turn in which they arrive (`store`).

Bounds (`SocketLimits`): a client with too many requests under way is not read. One that breaks a
rule, or does not read its answers, is disconnected. Its session continues until its timeout, so
that it can connect again.
"""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import structlog
import trio

from metadata import socket_answers as answers
from metadata.cached_store import CACHE_BYTES_MAX, CachedStore
from metadata.session_times import HeldSession, HeldSessions
from metadata.socket_frames import ANY_VERSION, NOTICE, Frame, FrameError, FrameReader, Kind
from metadata.socket_frames import encode_frame as encode
from metadata.store import MetadataUnavailable, NodeNotFound, VersionConflict
from runtime.unix_sockets import listen_at_path, peer_process

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from metadata.store import MetadataStore

log = structlog.get_logger()

CHUNK_BYTES: Final = 256 * 1024
_BEGIN_SECONDS_MAX: Final = 10.0
_LAST_WORD_SECONDS_MAX: Final = 1.0
_TICKS_PER_TIMEOUT: Final = 10
_LATE_TICKS_MAX: Final = 2.0
_WRITES: Final = frozenset({Kind.PUT, Kind.PUT_EPHEMERAL, Kind.DELETE})
_ANSWERED_AT_ONCE: Final = frozenset({Kind.PING, Kind.WATCH, Kind.END_WATCH})


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SocketLimits:
    """The bounds on what clients may use."""

    sessions_max: int = 256
    connections_max: int = 256
    request_bytes_max: int = 8 * 1024 * 1024
    answer_bytes_max: int = 64 * 1024 * 1024
    """The size of one answer, and of all answers that a client has not read."""
    requests_pending_max: int = 1_024
    """Of one connection."""
    watches_max: int = 1_024
    """Of one connection."""
    nodes_max: int = 100_000
    """Ephemeral nodes of one session."""
    cache_bytes_max: int = CACHE_BYTES_MAX
    """The bytes of nodes in memory."""
    timeout_seconds_min: float = 1.0
    timeout_seconds_max: float = 600.0


@final
class SocketServer:
    """See the module docstring. Run it with `nursery.start(run, path)`."""

    def __init__(self, store: MetadataStore, limits: SocketLimits | None = None) -> None:
        """From now on all writes to `store` go through the attribute of this name."""
        self._limits = limits or SocketLimits()
        self.store = CachedStore(store, self._limits.cache_bytes_max)
        """The store that the sessions see; also for use in this process."""
        self._sessions = HeldSessions(self._limits.sessions_max)
        self._owners: dict[str, HeldSession] = {}
        """The sessions of ephemeral nodes by path."""
        self._locks: dict[str, _PathLock] = {}
        self._connections: set[_Connection] = set()

    async def run(
        self, path: str, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve at this path until cancelled. Its directory is made for this user alone.

        Raises: MetadataUnavailable: the path cannot be used.
        """
        try:
            listener = listen_at_path(path)
        except OSError as error:
            reason = error.strerror or str(error)
            raise MetadataUnavailable(f"cannot listen at {path}: {reason}") from error
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._keep_time)
                task_status.started()
                await trio.serve_listeners(self._serve, [listener], handler_nursery=nursery)
        finally:
            listener.socket.close()

    async def end_process(self, process_id: int) -> None:
        """That process is dead: end its sessions without waiting for their timeouts."""
        for session in self._sessions.of_process(process_id):
            await self._end_unasked(session)

    @property
    def sessions(self) -> int:
        """How many there are."""
        return len(self._sessions)

    async def _keep_time(self) -> None:
        """End sessions whose clients are silent."""
        while True:
            timeouts = [each.timeout_seconds for each in self._sessions.all()]
            tick = min(timeouts, default=self._limits.timeout_seconds_min) / _TICKS_PER_TIMEOUT
            due = trio.current_time() + tick
            await trio.sleep(tick)
            late = trio.current_time() - due
            if late > _LATE_TICKS_MAX * tick:
                # This process was stopped. What clients sent meanwhile has still to be read.
                self._sessions.grant(late)
            for session in self._sessions.expired(trio.current_time()):
                log.warning(
                    "session of a process is over: it was silent for its timeout",
                    process=session.process_id,
                    seconds=session.timeout_seconds,
                )
                await self._end_unasked(session)

    async def _serve(self, stream: trio.SocketStream) -> None:
        if len(self._connections) >= self._limits.connections_max:
            log.warning("a connection to the metadata store is refused: there are too many")
            stream.socket.close()
            return
        connection = _Connection(stream, self._limits.answer_bytes_max)
        self._connections.add(connection)
        try:
            async with trio.open_nursery() as nursery:
                connection.scope = nursery.cancel_scope
                nursery.start_soon(connection.write_all)
                await self._read_all(connection, nursery)
                nursery.cancel_scope.cancel()
        finally:
            self._connections.discard(connection)
            connection.end_watches()
            stream.socket.close()

    async def _read_all(self, connection: _Connection, nursery: trio.Nursery) -> None:
        limits = self._limits
        reader = FrameReader(limits.request_bytes_max)
        room = trio.Semaphore(limits.requests_pending_max)
        try:
            while True:
                # A connection that does not begin is worth nothing.
                session = connection.session
                with trio.fail_after(_BEGIN_SECONDS_MAX if session is None else float("inf")):
                    data = await connection.stream.receive_some(CHUNK_BYTES)
                if not data:
                    return
                if session is not None:
                    session.heard_at = max(session.heard_at, trio.current_time())
                for frame in reader.feed(data):
                    if session is None:
                        session = await self._begin(connection, frame)
                        if session is None:
                            await connection.last_word()
                            return
                    elif frame.kind in _ANSWERED_AT_ONCE:
                        self._answer_at_once(connection, session, frame)
                    elif session.is_over:
                        connection.send(Frame(frame.number, Kind.SESSION_OVER))
                    elif (answer := answers.from_memory(self.store.cache, frame)) is not None:
                        connection.send(answer)
                    else:
                        await room.acquire()
                        nursery.start_soon(self._answer, connection, session, frame, room)
        except FrameError as error:
            log.warning("a client of the metadata store is disconnected", reason=str(error))
            connection.send(Frame(NOTICE, Kind.REFUSED, value=str(error).encode()))
            await connection.last_word()
        except (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError):
            return

    # --- sessions -----------------------------------------------------------------------

    async def _begin(self, connection: _Connection, frame: Frame) -> HeldSession | None:
        """The session of a connection. None: it has been answered that there is none.

        Raises: FrameError.
        """
        if frame.kind is not Kind.BEGIN:
            raise FrameError("a connection begins with BEGIN")
        given_up = self._sessions.given_up(frame.path)
        if given_up is not None:
            await self._end_unasked(given_up)
        now = trio.current_time()
        if frame.value:
            session = self._sessions.resume(frame.value, now)
            if session is None:
                connection.send(Frame(frame.number, Kind.SESSION_OVER))
                return None
        else:
            limits = self._limits
            timeout = min(
                max(frame.version / 1000, limits.timeout_seconds_min), limits.timeout_seconds_max
            )
            session = self._sessions.begin(
                os.urandom(16), timeout, now, peer_process(connection.stream.socket)
            )
            if session is None:
                text = f"there are {limits.sessions_max} sessions already"
                connection.send(Frame(frame.number, Kind.UNAVAILABLE, value=text.encode()))
                return None
        timeout_ms = int(session.timeout_seconds * 1000)
        connection.session = session
        connection.send(Frame(frame.number, Kind.DONE, value=session.token, version=timeout_ms))
        return session

    async def _end(self, session: HeldSession) -> None:
        """End a session, and delete its nodes once its writes are finished."""
        self._sessions.end(session)
        if not session.writes:
            await self._delete_nodes(session)

    async def _end_unasked(self, session: HeldSession) -> None:
        for connection in self._connections:
            if connection.session is session:
                connection.send(Frame(NOTICE, Kind.SESSION_OVER))
        await self._end(session)

    async def _delete_nodes(self, session: HeldSession) -> None:
        with trio.CancelScope(shield=True):
            for path in sorted(session.nodes):
                async with self._lock(path):
                    if self._owners.get(path) is not session:
                        continue
                    del self._owners[path]
                    try:
                        await self.store.delete(path)
                    except NodeNotFound:
                        continue
                    except MetadataUnavailable as error:
                        log.error("an ephemeral node is not deleted", path=path, reason=str(error))
            session.nodes.clear()

    # --- requests -----------------------------------------------------------------------

    def _answer_at_once(self, connection: _Connection, session: HeldSession, frame: Frame) -> None:
        """Raises: FrameError."""
        if session.is_over:
            connection.send(Frame(frame.number, Kind.SESSION_OVER))
            return
        if frame.kind is Kind.WATCH:
            if len(connection.watches) >= self._limits.watches_max:
                raise FrameError(f"more than {self._limits.watches_max} watches")
            if frame.path not in connection.watches:
                try:
                    end = self.store.watch(frame.path, connection.tell)
                except ValueError as error:
                    raise FrameError(str(error)) from None
                connection.watches[frame.path] = end
        elif frame.kind is Kind.END_WATCH and frame.path in connection.watches:
            connection.watches.pop(frame.path)()
        connection.send(Frame(frame.number, Kind.DONE))

    async def _answer(
        self, connection: _Connection, session: HeldSession, frame: Frame, room: trio.Semaphore
    ) -> None:
        try:
            answer = await self._result(session, frame)
        except (VersionConflict, NodeNotFound, MetadataUnavailable) as error:
            answer = Frame(frame.number, _kind_of(error), value=str(error).encode())
        except ValueError as error:
            # The client checks paths itself.
            answer = Frame(frame.number, Kind.UNAVAILABLE, value=str(error).encode())
        finally:
            room.release()
        connection.send(answer)

    async def _result(self, session: HeldSession, frame: Frame) -> Frame:
        """Raises: VersionConflict, NodeNotFound, MetadataUnavailable, ValueError."""
        number, store = frame.number, self.store
        if session.is_over:
            return Frame(number, Kind.SESSION_OVER)
        if frame.kind is Kind.GET:
            return answers.found(number, await store.get(frame.path))
        if frame.kind is Kind.EXISTS:
            return answers.existence(number, await store.exists(frame.path))
        if frame.kind is Kind.CHILDREN:
            answer = answers.children(number, await store.children(frame.path))
            if len(answer.value) > self._limits.answer_bytes_max // 2:
                raise MetadataUnavailable(f"{frame.path} has too many children to be listed")
            return answer
        if frame.kind is Kind.PEEK_SEQUENCE:
            return Frame(number, Kind.DONE, version=await store.peek_sequence(frame.path))
        if frame.kind is Kind.NEXT_SEQUENCE:  # one path for all ledgers: not one after the other
            return Frame(number, Kind.DONE, version=await store.next_sequence(frame.path))
        if frame.kind is Kind.END:
            await self._end(session)
            return Frame(number, Kind.DONE)
        if frame.kind in _WRITES:
            return await self._write(session, frame)
        raise MetadataUnavailable(f"{frame.kind.name} is not a request")

    async def _write(self, session: HeldSession, frame: Frame) -> Frame:
        session.writes += 1
        try:
            with trio.CancelScope(shield=True):  # the node and its owner go together
                async with self._lock(frame.path):
                    if session.is_over:
                        return Frame(frame.number, Kind.SESSION_OVER)
                    version = await self._write_locked(session, frame)
            return Frame(frame.number, Kind.DONE, version=version)
        finally:
            session.writes -= 1
            if session.is_over and not session.writes:
                await self._delete_nodes(session)

    async def _write_locked(self, session: HeldSession, frame: Frame) -> int:
        """Returns the new version. Raises as the store does."""
        path, store = frame.path, self.store
        expected = None if frame.version == ANY_VERSION else frame.version
        if frame.kind is Kind.PUT:
            return await store.put(path, frame.value, expected)
        if frame.kind is Kind.DELETE:
            await store.delete(path, expected)
            owner = self._owners.pop(path, None)
            if owner is not None:
                owner.nodes.discard(path)
            return 0
        if len(session.nodes) >= self._limits.nodes_max:
            raise MetadataUnavailable(f"a session may have {self._limits.nodes_max} nodes")
        await store.put_ephemeral(path, frame.value)
        self._owners[path] = session
        session.nodes.add(path)
        return 0

    @asynccontextmanager
    async def _lock(self, path: str) -> AsyncIterator[None]:
        lock = self._locks.get(path)
        if lock is None:
            lock = self._locks[path] = _PathLock()
        lock.users += 1
        try:
            async with lock.lock:
                yield
        finally:
            lock.users -= 1
            if not lock.users:
                del self._locks[path]


@final
class _PathLock:
    """Exists while a task holds it or waits for it."""

    __slots__ = ("lock", "users")

    def __init__(self) -> None:
        self.lock = trio.Lock()
        self.users = 0


@final
class _Connection:
    """The answers and notices for one client, in order."""

    def __init__(self, stream: trio.SocketStream, unread_bytes_max: int) -> None:
        self.stream = stream
        self.scope = trio.CancelScope()
        """Cancelled to disconnect the client."""
        self.session: HeldSession | None = None
        """None: it has not begun."""
        self.watches: dict[str, Callable[[], None]] = {}
        """What ends them, by path."""
        self._unread: list[bytes] = []
        self._unread_bytes = 0
        self._unread_bytes_max = unread_bytes_max
        self._wake = trio.Event()
        self._is_written = trio.Event()

    def send(self, frame: Frame) -> None:
        """Send it when the client reads."""
        data = encode(frame)
        self._unread_bytes += len(data)
        if self._unread_bytes > self._unread_bytes_max:
            if not self.scope.cancel_called:
                log.warning("a client of the metadata store does not read, it is disconnected")
            self.scope.cancel()
            self._unread.clear()
        else:
            self._unread.append(data)
        self._wake.set()

    def tell(self, path: str) -> None:
        """A node has changed."""
        self.send(Frame(NOTICE, Kind.CHANGED, path))

    def end_watches(self) -> None:
        """Tell of no more changes."""
        watches, self.watches = self.watches, {}
        for end in watches.values():
            end()

    async def write_all(self) -> None:
        """Send until the connection is lost."""
        try:
            while True:
                data = b"".join(self._unread)
                self._unread.clear()
                if data:
                    await self.stream.send_all(data)
                    self._unread_bytes -= len(data)
                else:
                    self._is_written.set()
                    self._wake = trio.Event()
                    await self._wake.wait()
                    self._is_written = trio.Event()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self.scope.cancel()

    async def last_word(self) -> None:
        """Let the client read everything, within a time."""
        with trio.move_on_after(_LAST_WORD_SECONDS_MAX):
            while self._unread_bytes:
                await trio.lowlevel.checkpoint()
                await self._is_written.wait()


def _kind_of(error: Exception) -> Kind:
    return next(kind for class_, kind in _KINDS if isinstance(error, class_))


_KINDS: Final = (
    (VersionConflict, Kind.CONFLICT),
    (NodeNotFound, Kind.NOT_FOUND),
    (MetadataUnavailable, Kind.UNAVAILABLE),
)
