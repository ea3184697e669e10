"""Locks that take no memory while nobody holds them: one for what every topic has and few use, and
one for each of many keys."""

from __future__ import annotations

from contextlib import asynccontextmanager
from math import inf
from typing import TYPE_CHECKING, Generic, TypeVar, final

import trio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Hashable
    from types import TracebackType

K = TypeVar("K", bound="Hashable")


@final
class RareLock:
    """`async with` gives it to one task at a time, in the order in which they come. It has 40 bytes
    instead of the 400 of a `trio.Lock`, which it makes for the time in which it is held."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held: trio.Lock | None = None
        """Locked, unless its task is waiting to be cancelled."""

    async def __aenter__(self) -> None:
        """Wait for it."""
        if self._held is None:
            self._held = trio.Lock()
        await self._held.acquire()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Give it to the next task."""
        held = self._held
        assert held is not None
        held.release()
        if not held.locked():  # the next one has it already
            self._held = None


@final
class KeyedLocks(Generic[K]):
    """Locks by key. The lock of a key exists only while a task holds it or waits for it."""

    def __init__(self) -> None:
        self._locks: dict[K, trio.Lock] = {}

    def __len__(self) -> int:
        return len(self._locks)

    @asynccontextmanager
    async def hold(self, key: K, wait_seconds_max: float = inf) -> AsyncIterator[None]:
        """Hold the lock of the key for the duration of the block.

        Raises: trio.TooSlowError: others held it for so long.
        """
        lock = self._locks.setdefault(key, trio.Lock())
        try:
            with trio.fail_after(wait_seconds_max):
                await lock.acquire()
            try:
                yield
            finally:
                lock.release()
        finally:
            is_current = self._locks.get(key) is lock  # not so if cancelled before it could wait
            if is_current and not lock.locked() and not lock.statistics().tasks_waiting:
                del self._locks[key]
