"""The metadata store on ZooKeeper, with the paths and values that Pulsar and BookKeeper use there.

A value is a node's data, its version the node's data version. Parents are made on the way, as
persistent nodes without data. A node without data that has children therefore counts as a parent
only, and deleting a node that has children empties it.

Sequence numbers come from sequential nodes named `ID-` below the path, deleted at once. These are
the paths and names of BookKeeper's ledger ids. ZooKeeper counts to 2^31-1.

One recursive watch per watched path is kept on the connection. ZooKeeper reports a change before it
answers the request that made it, and before a read that shows it. When the connection was lost, the
watches are set again before the session counts as live, and each watcher is notified that anything
may have changed.

Reads wait for the connection to come back and are sent again. A write that loses its connection is
refused, because it may have taken effect. After a lost session a new one is begun at intervals.

Invariants: there is at most one session at a time, and LOST is reported before a session is given
up. No user therefore relies on ephemeral nodes of a session that this store has ended.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, TypeVar, final

import structlog
import trio
from kazoo.exceptions import (
    BadVersionError,
    ConnectionLoss,
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SessionExpiredError,
)

from metadata.node_keys import node_key
from metadata.store import (
    CONNECT_SECONDS_MAX,
    MUST_NOT_EXIST,
    MetadataUnavailable,
    NodeNotFound,
    SessionState,
    VersionConflict,
)
from metadata.watches import Watches
from metadata.zookeeper_session import SessionFailed, ZooKeeperSession

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from metadata.store import OnChange, OnSession
    from metadata.zookeeper_address import ZooKeeperAddress

log = structlog.get_logger()

ANY_VERSION: Final = -1
_CONTENTION_MAX: Final = 100
"""Attempts of one operation that other sessions may thwart by creating and deleting its node."""
_NEW_SESSION_SECONDS: Final = 1.0
_SEQUENCE_NODE: Final = "ID-"
_SKIPPED_AT_ONCE: Final = 1_000
"""Numbers of a sequence, in one transaction of some 200 kB."""

_Result = TypeVar("_Result")
if TYPE_CHECKING:
    _Request = Callable[[ZooKeeperSession], Awaitable[_Result]]


class OpenSession(Protocol):
    """Begins a session: `ZooKeeperSession.open`, or a simulated one."""

    async def __call__(
        self,
        address: ZooKeeperAddress,
        on_state: Callable[[SessionState], None],
        on_event: Callable[[str], None],
        *,
        connect_seconds_max: float,
    ) -> ZooKeeperSession:
        """Raises: SessionFailed."""


@final
class ZooKeeperStore:
    """See the module docstring. Make one with `await ZooKeeperStore.open(...)`."""

    def __init__(self, address: ZooKeeperAddress, open_session: OpenSession) -> None:
        self._address = address
        self._open_session_at = open_session
        self._session: ZooKeeperSession | None = None
        self._state = SessionState.LOST
        self._watches = Watches()
        self._watched: dict[str, int] = {}
        """How many watches there are of each path."""
        self._on_session: list[OnSession] = []
        self._is_closed = False
        self._is_beginning = False
        """A session is being begun: one that is lost meanwhile is no reason to begin another."""
        self._connections = 0
        """How often the connection came or went."""
        self._changed = trio.Event()
        """Replaced, after it is set, whenever `_state` changes."""
        self.damage = ""
        """Never any: ZooKeeper checks its own files."""

    @classmethod
    async def open(
        cls, address: ZooKeeperAddress, open_session: OpenSession = ZooKeeperSession.open
    ) -> ZooKeeperStore:
        """Connect and begin a session. Makes the chroot when it is not there.

        Raises: MetadataUnavailable.
        """
        store = cls(address, open_session)
        store._is_beginning = True
        try:
            await store._begin_session()
        except (SessionFailed, KazooException) as error:
            await store.aclose()
            raise MetadataUnavailable(_text(error)) from error
        store._is_beginning = False
        return store

    # --- sessions -----------------------------------------------------------------------

    @property
    def session_state(self) -> SessionState:
        """See MetadataStore. What the clock says holds before it is reported: a process that was
        stopped beyond its session finds out with its first look."""
        state = SessionState.LIVE if self._session is None else self._session.state
        if state is SessionState.LOST or self._state is SessionState.LIVE:
            return state
        return self._state

    @property
    def session_id(self) -> int:
        """ZooKeeper's number of the session, 0 without one."""
        return 0 if self._session is None else self._session.session_id

    def watch_session(self, on_change: OnSession) -> Callable[[], None]:
        """See MetadataStore."""
        self._on_session.append(on_change)
        return lambda: self._on_session.remove(on_change)

    async def _begin_session(self) -> None:
        """Raises: SessionFailed, KazooException: nothing of it is left."""
        session = await self._open_session_at(
            self._address,
            self._session_changed,
            self._watches.tell,
            connect_seconds_max=CONNECT_SECONDS_MAX,
        )
        self._session = session
        try:
            await session.make_root()
            await self._watch_again(session)
            if self._is_closed or session.state is SessionState.LOST:
                raise SessionFailed(f"the session with {self._address.hosts} ended as it began")
        except BaseException:
            # It may have come back, and be live for others, before its failure was seen here.
            await self._give_up_session()
            raise

    async def _give_up_session(self) -> None:
        """End the session, if there is one."""
        session, self._session = self._session, None
        self._become(SessionState.LOST)
        if session is not None:
            await session.aclose()

    def _session_changed(self, state: SessionState) -> None:
        self._connections += 1
        if state is SessionState.LIVE:
            # It must not be live for others before its watches are set.
            trio.lowlevel.spawn_system_task(self._resume)
            return
        if state is SessionState.LOST:
            self._lose()
        else:
            self._become(state)

    def _lose(self) -> None:
        """The session is over, or is given up: begin another."""
        self._become(SessionState.LOST)
        if not self._is_closed and not self._is_beginning:
            self._is_beginning = True
            trio.lowlevel.spawn_system_task(self._renew)

    async def _resume(self) -> None:
        session = self._session
        if session is None:
            return
        try:
            await self._watch_again(session)
        except KazooException as error:
            self._watch_failed(session, error)

    def _watch_failed(self, session: ZooKeeperSession, error: KazooException) -> None:
        """A watch is not set. With a lost connection all are set again when it is back. Anything
        else is a refusal, after which no event would come: without a new session, copies in memory
        would grow old, or the session would stay in doubt."""
        if isinstance(error, (ConnectionLoss, SessionExpiredError)):
            log.info("ZooKeeper connection lost, watches not set", reason=_text(error))
        elif session is self._session:
            log.error("ZooKeeper refuses a watch: a new session is begun", reason=_text(error))
            self._lose()

    async def _renew(self) -> None:
        """Begin a new session after the last one was lost, however long it takes."""
        await self._give_up_session()
        while not self._is_closed:
            try:
                await self._begin_session()
            except (SessionFailed, KazooException) as error:
                log.warning("no session with ZooKeeper", reason=_text(error))
                await trio.sleep(_NEW_SESSION_SECONDS)
            else:
                break
        self._is_beginning = False

    async def _watch_again(self, session: ZooKeeperSession) -> None:
        """Set all watches on a new connection, then be live. Raises: KazooException."""
        connections = self._connections
        for path in tuple(self._watched):
            await session.add_watch(path)
        if session is not self._session or session.state is not SessionState.LIVE:
            return
        if connections != self._connections:
            return  # some watches are of a connection that was lost; `_resume` sets all again
        self._become(SessionState.LIVE)
        for path in tuple(self._watched):
            self._watches.tell(path)

    def _become(self, state: SessionState) -> None:
        if self._state is state:
            return
        self._state = state
        changed, self._changed = self._changed, trio.Event()
        changed.set()
        for on_change in tuple(self._on_session):
            on_change(state)

    # --- watches ------------------------------------------------------------------------

    def watch(self, path: str, on_change: OnChange) -> Callable[[], None]:
        """See MetadataStore."""
        node_key(path)
        stop_telling = self._watches.add(path, on_change)
        count = self._watched.get(path, 0)
        self._watched[path] = count + 1
        session = self._session
        if not count and session is not None:
            added = session.add_watch(path)
            trio.lowlevel.spawn_system_task(self._watch_is_added, session, added)

        def stop() -> None:
            stop_telling()
            self._watched[path] -= 1
            if not self._watched[path]:
                del self._watched[path]

        return stop

    async def _watch_is_added(self, session: ZooKeeperSession, added: Awaitable[None]) -> None:
        try:
            await added
        except KazooException as error:
            self._watch_failed(session, error)

    # --- reads --------------------------------------------------------------------------

    async def sync(self) -> None:
        """See MetadataStore. The server that this session is with catches up with the leader."""
        await self._read(lambda session: session.sync())

    async def get(self, path: str) -> tuple[bytes, int] | None:
        """See MetadataStore."""
        node_key(path)
        try:
            value, stat = await self._read(lambda session: session.get(path))
        except NoNodeError:
            return None
        if not value and stat.children:
            return None
        return value, stat.version

    async def children(self, path: str) -> list[str]:
        """See MetadataStore."""
        node_key(path)
        try:
            names = await self._read(lambda session: session.children(path))
        except NoNodeError:
            return []
        return sorted(name for name in names if (path, name) != ("/", "zookeeper"))

    async def exists(self, path: str) -> bool:
        """See MetadataStore."""
        node_key(path)
        return await self._read(lambda session: session.exists(path))

    # --- writes -------------------------------------------------------------------------

    async def put(self, path: str, value: bytes, expected_version: int | None) -> int:
        """See MetadataStore."""
        node_key(path)
        for _attempt in range(_CONTENTION_MAX):
            version = await self._put_once(path, value, expected_version)
            if version is not None:
                return version
        raise MetadataUnavailable(f"{path} is created and deleted all the time, try again")

    async def _put_once(self, path: str, value: bytes, expected_version: int | None) -> int | None:
        """The new version; None: another session came between two requests."""
        if expected_version != MUST_NOT_EXIST:
            try:
                return await self._set(path, value, expected_version)
            except NoNodeError:
                if expected_version is not None:
                    raise VersionConflict(
                        f"{path} does not exist, expected version {expected_version}"
                    ) from None
        try:
            await self._write(lambda session: session.create(path, value))
        except NodeExistsError:
            if expected_version is None:
                return None
            return await self._fill_parent(path, value)
        return 0

    async def _set(self, path: str, value: bytes, expected_version: int | None) -> int:
        version = ANY_VERSION if expected_version is None else expected_version
        try:
            return await self._write(lambda session: session.set(path, value, version))
        except BadVersionError:
            raise VersionConflict(f"{path} does not have version {expected_version}") from None

    async def _fill_parent(self, path: str, value: bytes) -> int | None:
        """Create a node where there is one already, which may be a parent only."""
        try:
            old, stat = await self._read(lambda session: session.get(path))
        except NoNodeError:
            return None
        if old or not stat.children:
            raise VersionConflict(f"{path} has version {stat.version}, expected no node")
        return await self._set(path, value, stat.version)

    async def delete(self, path: str, expected_version: int | None = None) -> None:
        """See MetadataStore."""
        node_key(path)
        version = ANY_VERSION if expected_version is None else expected_version
        try:
            await self._write(lambda session: session.delete(path, version))
        except NoNodeError:
            raise NodeNotFound(f"{path} does not exist") from None
        except BadVersionError:
            raise VersionConflict(f"{path} does not have version {expected_version}") from None
        except NotEmptyError:
            stored = await self.get(path)
            if stored is None:
                raise NodeNotFound(f"{path} does not exist") from None
            await self._set(path, b"", stored[1])

    async def put_ephemeral(self, path: str, value: bytes) -> None:
        """See MetadataStore."""
        node_key(path)
        try:
            await self._write(lambda session: session.create(path, value, ephemeral=True))
        except NodeExistsError:
            raise VersionConflict(f"{path} exists") from None

    async def next_sequence(self, path: str) -> int:
        """See MetadataStore."""
        node_key(path)
        prefix = f"{path}/{_SEQUENCE_NODE}"
        made = await self._write(
            lambda session: session.create(prefix, b"", ephemeral=True, sequential=True)
        )
        number = int(made.removeprefix(prefix))
        if number < 0:
            raise MetadataUnavailable(f"all 2^31 numbers of {path} have been given")
        try:
            await self._write(lambda session: session.delete(made, ANY_VERSION))
        except (NoNodeError, MetadataUnavailable) as error:
            # It goes with the session, and the number is taken in any case.
            log.debug("sequence node not deleted", path=made, reason=str(error))
        return number

    async def peek_sequence(self, path: str) -> int:
        """See MetadataStore. ZooKeeper has no look at the next number: this one is skipped."""
        return await self.next_sequence(path) + 1

    async def advance_sequence(self, path: str, number: int) -> None:
        """Give no number below `number` from now on. ZooKeeper counts the children that a node has
        had, so that many are made.

        Raises: MetadataUnavailable: it may have advanced by a part.
        """
        given = await self.peek_sequence(path)
        while given < number:
            skipped = partial(_skip, path, min(number - given, _SKIPPED_AT_ONCE))
            try:
                await self._write(skipped)
            except (NoNodeError, NodeExistsError) as error:
                raise MetadataUnavailable(
                    f"another process advances {path}, too: {_text(error)}"
                ) from error
            given = await self.peek_sequence(path)

    async def aclose(self) -> None:
        """End the session and its ephemeral nodes. Safe to call twice."""
        self._is_closed = True
        await self._give_up_session()

    # --- requests -----------------------------------------------------------------------

    async def _read(self, request: _Request[_Result]) -> _Result:
        """The result of a request, sent again after each lost connection.

        Raises: NoNodeError, MetadataUnavailable.
        """
        while True:
            session = self._open_session()
            try:
                return await request(session)
            except ConnectionLoss:
                await session.settled()
            except NoNodeError:
                raise
            except KazooException as error:
                raise MetadataUnavailable(_text(error)) from error

    async def _write(self, request: _Request[_Result]) -> _Result:
        """The result of a request, sent once.

        Raises: NoNodeError, NodeExistsError, BadVersionError, NotEmptyError, MetadataUnavailable.
        """
        session = self._open_session()
        try:
            return await request(session)
        except (NoNodeError, NodeExistsError, BadVersionError, NotEmptyError):
            raise
        except KazooException as error:
            raise MetadataUnavailable(_text(error)) from error

    def _open_session(self) -> ZooKeeperSession:
        session = self._session
        if self._is_closed:
            raise MetadataUnavailable("the metadata store is closed")
        if session is None or session.state is SessionState.LOST:
            raise MetadataUnavailable(
                f"the session with ZooKeeper at {self._address.hosts} was lost, a new one is begun"
            )
        return session


async def _skip(path: str, count: int, session: ZooKeeperSession) -> None:
    await session.make_and_delete(f"{path}/skipped", count)


def _text(error: Exception) -> str:
    """ZooKeeper's errors say little; some nothing."""
    if isinstance(error, SessionFailed):
        return str(error)
    if isinstance(error, NoAuthError):
        return (
            "ZooKeeper: no permission for a node, which another user has made. Give the "
            "credentials that its owner has in the file of metadataStoreConfigPath"
        )
    reason = str(error) or type(error).__name__
    return f"ZooKeeper: {reason}. Look at ZooKeeper and try again"
