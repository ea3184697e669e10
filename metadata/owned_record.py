"""OwnedRecord: one node of the metadata store that one broker writes, by compare-and-set.

A conflict means that another broker has written the node, which is then lost for good. A put whose
outcome is unknown (the store failed in between) is recognised by its content before the next one.
Until then the store may be one version ahead of this object.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from metadata.store import MUST_NOT_EXIST, VersionConflict

if TYPE_CHECKING:
    from metadata.store import MetadataStore


@final
class OwnedRecord:
    """See the module docstring. The owner serialises `write`."""

    __slots__ = ("_path", "_store", "_unheard", "version")

    def __init__(self, store: MetadataStore, path: str, version: int = MUST_NOT_EXIST) -> None:
        self._store = store
        self._path = path
        self.version = version
        """The last version known to be written by this object."""
        self._unheard: bytes | None = None
        """The value of the last put, while its outcome is unknown."""

    async def get(self) -> bytes | None:
        """Take over the record in its current state."""
        stored = await self._store.get(self._path)
        if stored is None:
            return None
        self.version = stored[1]
        return stored[0]

    async def is_ours(self) -> bool:
        """Whether no other broker has written it.

        While the outcome of an own put is unknown the store may be one version ahead, with the
        value of that put.
        """
        stored = await self._store.get(self._path)
        return stored is not None and (
            stored[1] <= self.version or stored == (self._unheard, self.version + 1)
        )

    async def write(self, data: bytes) -> None:
        """Write the record.

        Raises: VersionConflict: another broker has. MetadataUnavailable: it may have been written
            or not, and the next write finds out.
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
        """Whether a put that failed in between took effect. Raises: VersionConflict."""
        stored = await self._store.get(self._path)
        if stored == (data, self.version + 1):
            self.version += 1
            return True
        if (MUST_NOT_EXIST if stored is None else stored[1]) != self.version:
            raise VersionConflict(self._path)
        return False
