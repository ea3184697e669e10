"""Locks by key. The lock of a key exists only while a task holds it or waits for it."""

from __future__ import annotations

from contextlib import asynccontextmanager
from math import inf
from typing import TYPE_CHECKING, Generic, TypeVar, final

import trio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Hashable

K = TypeVar("K", bound="Hashable")


@final
class KeyedLocks(Generic[K]):
    """See the module docstring."""

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
