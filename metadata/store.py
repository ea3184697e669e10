"""The metadata seam: a versioned tree of small values with compare-and-set.

Paths and values are those of Pulsar and BookKeeper (`/managed-ledgers/...`, `/ledgers/...`,
`/admin/...`), so that a ZooKeeper backend can be put behind the same interface. Writes are durable
when they return.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final, Protocol

from protocol.errors import MetadataError

OnChange = Callable[[str], None]
"""Called with the path of a node that was, or may have been, created, changed or deleted."""

CONNECT_SECONDS_MAX: Final = 30.0
"""How long an opening waits for a store in another process."""

MUST_NOT_EXIST: Final = -1
"""As `expected_version` of a put: create only."""


class SessionState(Enum):
    """The known state of the session that holds the ephemeral nodes of a store."""

    LIVE = "live"
    IN_DOUBT = "in doubt"
    """The store cannot be reached. The session may end unnoticed: what depends on its ephemeral
    nodes makes no promises until it is live again."""
    LOST = "lost"
    """Over: its ephemeral nodes are gone, or will be soon."""


OnSession = Callable[[SessionState], None]


class VersionConflict(Exception):
    """The stored version is not the expected one: another session wrote, or the node (not)
    exists."""


class NodeNotFound(Exception):
    """There is no node at this path."""


class MetadataUnavailable(MetadataError):
    """The store cannot be opened, read or written. The text says what to do."""


class MetadataFailed(MetadataUnavailable):
    """A write failed in such a way that the store refuses all later ones until it is opened
    again."""


class MetadataStore(Protocol):
    """Versions start at 0 and grow by one with every put of a node.

    Every operation may raise MetadataUnavailable, a refusal that clients retry: the disk is full or
    fails, or the store is closed. A write that failed in this way may have taken effect or not.

    A store object has one session at a time. Other sessions may write to the same tree, so a copy
    in memory needs a watch. A session ends with `aclose`, with its process, or because a store on
    other machines did not hear of it for too long. In the last case a new one begins by itself:
    after LOST comes LIVE, and ephemeral nodes have to be made again.
    """

    @property
    def session_state(self) -> SessionState:
        """The state of the session now."""

    def watch_session(self, on_change: OnSession) -> Callable[[], None]:
        """Call back, in the event loop, when the state changes. The result ends this."""

    @property
    def damage(self) -> str:
        """Damage found since the start, as a line for the user; empty: none."""

    async def sync(self) -> None:
        """Reads of this object that begin afterwards show every write that any session finished
        before this call. Without it they may be some seconds old."""

    async def get(self, path: str) -> tuple[bytes, int] | None:
        """Value and version, or None. A node with an empty value and nodes below it may count as
        their parent only, so a value that is to be read again is not empty."""

    async def put(self, path: str, value: bytes, expected_version: int | None) -> int:
        """Write; None = any version, MUST_NOT_EXIST = create. Returns the new version. A node that
        is created where only a parent was may start at a version above 0.

        Raises: VersionConflict.
        """

    async def delete(self, path: str, expected_version: int | None = None) -> None:
        """Nodes below it stay, and so does a parent whose last node below it is deleted.

        Raises: NodeNotFound, VersionConflict.
        """

    async def put_ephemeral(self, path: str, value: bytes) -> None:
        """Create a node that is deleted when this session ends. It cannot have nodes below it.

        Raises: VersionConflict: the node exists.
        """

    def watch(self, path: str, on_change: OnChange) -> Callable[[], None]:
        """Call back, in the event loop, for every change of a node and of nodes below it, by any
        session. The result ends the watch. A change made through this object is reported before the
        call returns. A call may be superfluous, and implies nothing about the order of changes: the
        watcher reads the node again. A call with the watched path itself means that anything below
        may have changed, too: the store was out of reach and does not know.
        """

    async def children(self, path: str) -> list[str]:
        """Names of the nodes directly below, sorted; [] when there are none."""

    async def exists(self, path: str) -> bool:
        """Whether the node or anything below it exists."""

    async def next_sequence(self, path: str) -> int:
        """A number never given before for this path, larger than those before; durable."""

    async def peek_sequence(self, path: str) -> int:
        """The number that `next_sequence` would give. All lower ones were given."""

    async def aclose(self) -> None:
        """Flush and release the store."""
