"""A metadata store in which one reader hands on what it has read.

A broker of a cluster reads the record of a topic to learn which kind of topic it is, and then opens
it, which begins with the same read. Thousands of topics are opened after the end of a broker, so it
is not done twice. A record that has changed in between is no danger: its owner writes by
compare-and-set.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from metadata.store import MetadataStore, OnChange, OnSession, SessionState


@final
class RecordsRead:
    """A MetadataStore for readers that are given a record that was already read."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._handed: dict[str, tuple[bytes, int] | None] = {}

    @contextmanager
    def handing_on(self, path: str, stored: tuple[bytes, int] | None) -> Iterator[None]:
        """The first read of the path within the block gets what was just read."""
        self._handed[path] = stored
        try:
            yield
        finally:
            self._handed.pop(path, None)

    async def get(self, path: str) -> tuple[bytes, int] | None:
        """See MetadataStore."""
        if path in self._handed:
            return self._handed.pop(path)
        return await self._store.get(path)

    # --- everything else is the store's -------------------------------------------------

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

    async def sync(self) -> None:
        """See MetadataStore."""
        await self._store.sync()

    async def put(self, path: str, value: bytes, expected_version: int | None) -> int:
        """See MetadataStore."""
        return await self._store.put(path, value, expected_version)

    async def delete(self, path: str, expected_version: int | None = None) -> None:
        """See MetadataStore."""
        await self._store.delete(path, expected_version)

    async def put_ephemeral(self, path: str, value: bytes) -> None:
        """See MetadataStore."""
        await self._store.put_ephemeral(path, value)

    def watch(self, path: str, on_change: OnChange) -> Callable[[], None]:
        """See MetadataStore."""
        return self._store.watch(path, on_change)

    async def children(self, path: str) -> list[str]:
        """See MetadataStore."""
        return await self._store.children(path)

    async def exists(self, path: str) -> bool:
        """See MetadataStore."""
        return await self._store.exists(path)

    async def next_sequence(self, path: str) -> int:
        """See MetadataStore."""
        return await self._store.next_sequence(path)

    async def peek_sequence(self, path: str) -> int:
        """See MetadataStore."""
        return await self._store.peek_sequence(path)

    async def aclose(self) -> None:
        """See MetadataStore."""
        await self._store.aclose()
