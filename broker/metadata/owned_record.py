"""OwnedRecord: one node of the metadata store that one broker writes, by compare-and-set.

A conflict means that another broker has written it: it is lost for good. A put whose outcome was
not heard (the store failed in between) is recognised by its content before the next one; until then
the store may be one version ahead of us.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from broker.metadata.store import MUST_NOT_EXIST, VersionConflict

if TYPE_CHECKING:
    from broker.metadata.store import MetadataStore


@final
class OwnedRecord:
    """See the module essay. The owner serialises `put`."""

    __slots__ = ("_path", "_store", "_unheard", "version")

    def __init__(self, store: MetadataStore, path: str, version: int = MUST_NOT_EXIST) -> None:
        self._store = store
        self._path = path
        self.version = version
        """The last one known to be ours."""
        self._unheard: bytes | None = None
        """What was put last, while nobody knows whether that took effect."""

    async def get(self) -> bytes | None:
        """Take the record as it is now, as ours."""
        stored = await self._store.get(self._path)
        if stored is None:
            return None
        self.version = stored[1]
        return stored[0]

    async def is_ours(self) -> bool:
        """Nobody else has written it.

        While the outcome of a put of ours is unknown the store may be one version ahead of us; if
        that version is somebody else's, the next put finds out.
        """
        stored = await self._store.get(self._path)
        return stored is not None and stored[1] <= self.version + (self._unheard is not None)

    async def put(self, data: bytes) -> None:
        """Write the record.

        Raises: VersionConflict: somebody else has. MetadataUnavailable: it may have been written or
            not, and the next put learns which.
        """
        if self._unheard is not None:
            await self._learn_outcome(self._unheard)
        self._unheard = data
        try:
            self.version = await self._store.put(self._path, data, self.version)
        except VersionConflict:
            if not await self._learn_outcome(data):
                raise
        self._unheard = None

    async def _learn_outcome(self, data: bytes) -> bool:
        """Whether a put took effect that failed in between. Raises: VersionConflict."""
        stored = await self._store.get(self._path)
        if stored == (data, self.version + 1):
            self.version += 1
            return True
        if (MUST_NOT_EXIST if stored is None else stored[1]) != self.version:
            raise VersionConflict(self._path)
        return False
