"""A metadata store whose reads are answered from memory where possible.

All sessions must reach the store through this one object, as the children of one parent do. Then
its last write or read of a node is what the store holds. Nothing else may write to the store. A
read of RocksDB goes through a thread and costs about ten times as much as an answer from memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import trio

from metadata.node_cache import UNKNOWN, NodeCache

if TYPE_CHECKING:
    from collections.abc import Callable

    from metadata.store import MetadataStore, OnChange, OnSession, SessionState

CACHE_BYTES_MAX: Final = 48 * 1024 * 1024
"""The nodes of some 40,000 topics."""


@final
class CachedStore:
    """See the module docstring."""

    def __init__(self, store: MetadataStore, cache_bytes_max: int = CACHE_BYTES_MAX) -> None:
        self._store = store
        self.cache = NodeCache(cache_bytes_max)
        """Answers without waiting, where it can."""
        # Also of a write whose caller was cancelled, and that takes effect later.
        self._end_watch = store.watch("/", self.cache.changed)

    @property
    def session_state(self) -> SessionState:
        """See MetadataStore."""
        return self._store.session_state

    def watch_session(self, on_change: OnSession) -> Callable[[], None]:
        """See MetadataStore."""
        return self._store.watch_session(on_change)

    @property
    def damage(self) -> str:
        """See MetadataStore."""
        return self._store.damage

    def watch(self, path: str, on_change: OnChange) -> Callable[[], None]:
        """See MetadataStore."""
        return self._store.watch(path, on_change)

    # --- reads ----------------------------------------------------------------------------

    async def sync(self) -> None:
        """See MetadataStore."""
        await self._store.sync()

    async def get(self, path: str) -> tuple[bytes, int] | None:
        """See MetadataStore."""
        known = self.cache.value(path)
        if known is not UNKNOWN:
            await trio.lowlevel.checkpoint()
            return known
        reading = self.cache.begin_read(path)
        try:
            found = await self._store.get(path)
            self.cache.keep_value(reading, found)
        finally:
            self.cache.end_read(reading)
        return found

    async def children(self, path: str) -> list[str]:
        """See MetadataStore."""
        known = self.cache.names(path)
        if known is not None:
            await trio.lowlevel.checkpoint()
            return list(known)
        reading = self.cache.begin_read(path)
        try:
            found = await self._store.children(path)
            self.cache.keep_names(reading, found)
        finally:
            self.cache.end_read(reading)
        return found

    async def exists(self, path: str) -> bool:
        """See MetadataStore."""
        known = self.cache.exists(path)
        if known is not None:
            await trio.lowlevel.checkpoint()
            return known
        reading = self.cache.begin_read(path)
        try:
            exists = await self._store.exists(path)
            if not exists:
                self.cache.keep_absence(reading)
        finally:
            self.cache.end_read(reading)
        return exists

    async def peek_sequence(self, path: str) -> int:
        """See MetadataStore."""
        return await self._store.peek_sequence(path)

    # --- writes ---------------------------------------------------------------------------

    async def put(self, path: str, value: bytes, expected_version: int | None) -> int:
        """See MetadataStore."""
        writing = self.cache.begin_write(path)
        written = None
        try:
            version = await self._store.put(path, value, expected_version)
            written = value, version
        finally:
            self.cache.end_write(writing, written)
        return version

    async def put_ephemeral(self, path: str, value: bytes) -> None:
        """See MetadataStore."""
        writing = self.cache.begin_write(path)
        try:
            await self._store.put_ephemeral(path, value)
        finally:
            self.cache.end_write(writing)

    async def delete(self, path: str, expected_version: int | None = None) -> None:
        """See MetadataStore."""
        writing = self.cache.begin_write(path)
        try:
            await self._store.delete(path, expected_version)
        finally:
            self.cache.end_write(writing)

    async def next_sequence(self, path: str) -> int:
        """See MetadataStore."""
        return await self._store.next_sequence(path)

    async def aclose(self) -> None:
        """See MetadataStore. Nothing is answered from memory any more."""
        self._end_watch()
        self.cache.clear()
        await self._store.aclose()
