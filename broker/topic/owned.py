"""Operations that must not be torn apart when the one who asked for them goes away.

A topic being loaded, a cursor being created or deleted: each runs as a task of its owner's nursery.
Who asked waits for the outcome; a caller that is cancelled stops waiting, the operation goes on.
Operations with the same key run one after the other.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Generic, TypeVar, final

import trio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

T = TypeVar("T")


@final
class _Outcome(Generic[T]):
    """Where the result of an operation is left."""

    __slots__ = ("done", "error", "result")

    def __init__(self) -> None:
        self.done = trio.Event()
        self.error: Exception | None = None
        self.result: T | None = None

    async def run(self, operation: Callable[[], Awaitable[T]]) -> None:
        self.error = trio.BrokenResourceError("the operation was cut off by a shutdown")
        try:
            self.result = await operation()
            self.error = None
        except Exception as error:
            self.error = error
        finally:
            self.done.set()


async def run_owned(nursery: trio.Nursery, operation: Callable[[], Awaitable[T]]) -> T:
    """Run the operation as a task of `nursery` and wait for its result, or its error."""
    outcome: _Outcome[T] = _Outcome()
    nursery.start_soon(outcome.run, operation)
    await outcome.done.wait()
    if outcome.error is not None:
        raise outcome.error
    return outcome.result  # type: ignore[return-value]  # None is a result, too


@final
class KeyedLocks:
    """One lock per key, made when needed and forgotten when nobody holds or awaits it."""

    __slots__ = ("_locks",)

    def __init__(self) -> None:
        self._locks: dict[str, tuple[trio.Lock, list[int]]] = {}

    @asynccontextmanager
    async def hold(self, key: str) -> AsyncIterator[None]:
        """Hold the lock of this key."""
        lock, users = self._locks.setdefault(key, (trio.Lock(), [0]))
        users[0] += 1
        try:
            async with lock:
                yield
        finally:
            users[0] -= 1
            if not users[0]:
                del self._locks[key]

    def __len__(self) -> int:
        return len(self._locks)
