"""The metadata seam: a versioned tree of small values with compare-and-set.

Paths and values are Pulsar's and BookKeeper's own (`/managed-ledgers/...`, `/ledgers/...`,
`/admin/...`), so that a ZooKeeper backend can be put behind the same interface. Writes are durable
when they return.
"""

from __future__ import annotations

from typing import Final, Protocol

from protocol.errors import MetadataError

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

    async def children(self, path: str) -> list[str]:
        """Names of the nodes directly below, sorted; [] when there are none."""

    async def exists(self, path: str) -> bool:
        """Whether the node or anything below it exists."""

    async def next_sequence(self, path: str) -> int:
        """A number never given before for this path, counting up from 0; durable."""

    async def aclose(self) -> None:
        """Flush and release the store."""
