"""The metadata seam: a versioned tree of small values with compare-and-set.

Paths and values are Pulsar's and BookKeeper's own (`/managed-ledgers/...`, `/ledgers/...`,
`/admin/...`), so that a ZooKeeper backend can be put behind the same interface. Writes are durable
when they return.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from protocol.errors import MetadataError

OnChange = Callable[[str], None]
"""Called with the path of a node that was made, changed or deleted, or may have been."""

MUST_NOT_EXIST: Final = -1
"""As `expected_version` of a put: create only."""


class VersionConflict(Exception):
    """The stored version is not the expected one: somebody else wrote, or the node (not) exists."""


class NodeNotFound(Exception):
    """There is no node at this path."""


class MetadataUnavailable(MetadataError):
    """The store cannot be opened, read or written; the text says what to do."""


class MetadataStore(Protocol):
    """Versions start at 0 and grow by one with every put of a node.

    Every operation may raise MetadataUnavailable, a refusal that clients try again: the disk is
    full or fails, or the store is closed. A write that failed so may have taken effect or not.

    A store object is one session of one process. Other sessions may write to the same tree: what is
    kept in memory of it is kept with a watch. A session ends with `aclose` or with its process.
    """

    @property
    def damage(self) -> str:
        """What was found damaged since the start, a line for the user; empty: nothing."""

    async def get(self, path: str) -> tuple[bytes, int] | None:
        """Value and version, or None."""

    async def put(self, path: str, value: bytes, expected_version: int | None) -> int:
        """Write; None = whatever is there, MUST_NOT_EXIST = create. Returns the new version.

        Raises: VersionConflict.
        """

    async def delete(self, path: str, expected_version: int | None = None) -> None:
        """Raises: NodeNotFound, VersionConflict."""

    async def put_ephemeral(self, path: str, value: bytes) -> None:
        """Create a node that is deleted when this session ends; nothing may be put below it.

        Raises: VersionConflict: there is a node.
        """

    def watch(self, path: str, on_change: OnChange) -> Callable[[], None]:
        """Be told, in the event loop, of every change of a node and of what is below it, by any
        session; the result ends the watch. A change made through this object is told before the
        call returns. A call may be one too many, and says nothing of the order of changes: whoever
        is told looks at the node again.
        """

    async def children(self, path: str) -> list[str]:
        """Names of the nodes directly below, sorted; [] when there are none."""

    async def exists(self, path: str) -> bool:
        """Whether the node or anything below it exists."""

    async def next_sequence(self, path: str) -> int:
        """A number never given before for this path, counting up from 0; durable."""

    async def aclose(self) -> None:
        """Flush and release the store."""
