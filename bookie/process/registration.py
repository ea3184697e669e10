"""Registration: the node in the metadata store by which clients find a bookie.

It is `/ledgers/available/<id>` of a bookie that takes entries, and
`/ledgers/available/readonly/<id>` of one that only serves reads. Both are ephemeral. After a
lost session the next one creates the node again. An existing node may belong to a former session of
this process or of one before it; ZooKeeper deletes it with that session, so the registration waits.
The content is different for each session. So a node of our own, created by a request whose answer
was lost, is recognised.

On a change of state the new node is created before the old one is deleted, so that the bookie is
always known. In between the bookie itself serves or refuses the requests of clients.

Format: BookieServiceInfoFormat. BookKeeper's clients take the address from the endpoint with the
protocol `bookie-rpc`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import structlog
import trio

from bookie.errors import BookieRefusesToStart
from metadata.store import MetadataUnavailable, NodeNotFound, SessionState, VersionConflict
from protocol.bookkeeper import data_formats_pb2 as formats
from protocol.bookkeeper.paths import available_path, read_only_path

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from metadata.store import MetadataStore

log = structlog.get_logger()

RETRY_SECONDS: Final = 1.0
UNREGISTER_SECONDS_MAX: Final = 5.0
"""A store that is out of reach does not hold up the end of a process for longer."""
LOOK_AGAIN_SECONDS: Final = 10.0
"""How often a node of another session is looked at, besides when it changes."""
_SESSION_PROPERTY: Final = "vela.session"


@final
@dataclass(frozen=True, slots=True)
class Endpoint:
    """Something that listens."""

    name: str
    protocol: str
    host: str
    port: int


def encode_service_info(endpoints: list[Endpoint], session: str) -> bytes:
    """The content of the node."""
    info = formats.BookieServiceInfoFormat()
    for each in endpoints:
        info.endpoints.add(id=each.name, protocol=each.protocol, host=each.host, port=each.port)
    info.properties[_SESSION_PROPERTY] = session
    return info.SerializeToString(deterministic=True)


@final
class Registration:
    """See the module docstring. `register` once, then `run` until it is cancelled; `unregister` at
    the end."""

    def __init__(
        self,
        store: MetadataStore,
        bookie_id: str,
        endpoints: list[Endpoint],
        is_writable: Callable[[], bool],
        check_cluster: Callable[[], Awaitable[None]],
    ) -> None:
        """`check_cluster` raises StorageError if the store is that of another cluster now."""
        self._store = store
        self._bookie_id = bookie_id
        self._endpoints = endpoints
        self._is_writable = is_writable
        self._check_cluster = check_cluster
        self._changed = trio.Event()
        self._content = b""
        self._wanted = ""
        self._settling = trio.Lock()
        """Held while nodes are made and deleted."""
        self._is_over = False
        self.path = ""
        """The node that is there, as far as is known; empty: none."""
        self._new_content()

    def changed(self) -> None:
        """Whether the bookie is writable, or anything else that matters here, has changed."""
        self._changed.set()

    async def register(self, seconds_max: float) -> None:
        """Return when the bookie is known.

        Raises: BookieRefusesToStart: its id belongs to another session that goes on, or there is
            no session with the store. StorageError.
        """
        self._store.watch_session(self._session_changed)
        for path in (available_path(self._bookie_id), read_only_path(self._bookie_id)):
            self._store.watch(path, self._node_changed)
        with trio.move_on_after(seconds_max):
            while not await self._settle():
                await self._wait()
            return
        if self._store.session_state is not SessionState.LIVE:
            raise BookieRefusesToStart(
                f"the metadata store could not be reached for {seconds_max:g} s, so bookie "
                f"{self._bookie_id!r} is not registered. Look at the store, and start again"
            )
        raise BookieRefusesToStart(
            f"bookie id {self._bookie_id!r} is taken: {self._wanted} has been there for "
            f"{seconds_max:g} s. Stop the other process, or give this one another bookieId"
        )

    async def run(self) -> None:
        """Keep the node as it should be, until cancelled.

        Raises: StorageError: the metadata store is that of another cluster now.
        """
        while not self._is_over:
            await self._settle()
            await self._wait()

    async def unregister(self) -> None:
        """Delete the node, so that clients turn to others before this bookie is gone. Waits for a
        request that is under way: it may make a node, as one that was cancelled may have. There
        are two nodes while the bookie goes from one state to the other."""
        self._is_over = True
        self._changed.set()
        reason = f"no answer in {UNREGISTER_SECONDS_MAX:g} s"
        with trio.move_on_after(UNREGISTER_SECONDS_MAX):
            try:
                async with self._settling:
                    self.path = ""
                    await self._delete_own(available_path(self._bookie_id))
                    await self._delete_own(read_only_path(self._bookie_id))
                return
            except MetadataUnavailable as error:
                reason = str(error)
        log.info("not unregistered: the node goes with its session", reason=reason)

    async def _delete_own(self, path: str) -> None:
        """Delete the node if it is of this session. Raises: MetadataUnavailable."""
        found = await self._store.get(path)
        if found is None or found[0] != self._content:
            return
        try:
            await self._store.delete(path, found[1])
        except (NodeNotFound, VersionConflict):
            return  # it went with its session, and may be another's now

    async def _wait(self) -> None:
        seconds = LOOK_AGAIN_SECONDS if self.path != self._wanted else float("inf")
        with trio.move_on_after(seconds):
            await self._changed.wait()
        self._changed = trio.Event()

    async def _settle(self) -> bool:
        """Make and delete nodes until they are as they should be. False: another session's node is
        in the way, or there is no session."""
        while self._store.session_state is SessionState.LIVE:
            try:
                async with self._settling:
                    return not self._is_over and await self._settle_once()
            except MetadataUnavailable as error:
                log.warning("bookie not registered yet", reason=str(error))
                await trio.sleep(RETRY_SECONDS)
        return False

    async def _settle_once(self) -> bool:
        """Raises: MetadataUnavailable, StorageError."""
        await self._check_cluster()
        content = self._content
        writable, read_only = available_path(self._bookie_id), read_only_path(self._bookie_id)
        wanted, other = (writable, read_only) if self._is_writable() else (read_only, writable)
        self._wanted = wanted
        try:
            await self._store.put_ephemeral(wanted, content)
            log.info("bookie registered", path=wanted)
        except VersionConflict:
            found = await self._store.get(wanted)
            if found is None:
                self._changed.set()  # it went at this moment
                return False
            if found[0] != content:
                log.warning("a node of another session is waited for", path=wanted)
                return False
        if content is not self._content:
            return False  # the session was lost meanwhile; `_changed` is set
        self.path = wanted
        await self._delete_own(other)
        return True

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.LOST:
            self.path = ""
            self._new_content()
        self._changed.set()

    def _node_changed(self, path: str) -> None:
        del path
        self._changed.set()

    def _new_content(self) -> None:
        self._content = encode_service_info(self._endpoints, os.urandom(8).hex())
