"""Operations that must not be interrupted, and the order in which they take effect.

Loading a topic, and opening, moving or deleting a subscription, each run as a task of their owner's
nursery. The caller waits for the outcome. If the caller is cancelled it stops waiting, and the
operation continues.

Operations with the same key run one after the other, in the order in which they were begun
(`Operations`). If no other is in progress, an operation begins at once, within the turn of its
caller, so that the requests of a connection take effect in the order of their arrival. A waiting
operation is an entry in a list and no task: after a restart, a hundred thousand consumers request a
subscription that the first of them is opening.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Generic, TypeVar, final

import structlog
import trio

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator

log = structlog.get_logger()

T = TypeVar("T")
Key = str | tuple[()]
"""A name, or () for what has none."""

CALLS_PER_TURN = 256
"""Waiting operations are served in turns, like the requests of a connection."""


@final
class Outcome(Generic[T]):
    """Holds the result of an operation."""

    __slots__ = ("_done", "_waiting", "error", "result")

    def __init__(self) -> None:
        self._done = False
        self._waiting: trio.Event | None = None
        self.error: Exception | None = None
        self.result: T | None = None

    async def run(self, operation: Coroutine[Any, Any, T]) -> None:
        """Take the operation's result, or its error."""
        self.error = trio.BrokenResourceError("the operation was cut off by a shutdown")
        try:
            self.result = await operation
            self.error = None
        except Exception as error:
            self.error = error
        finally:
            self._end()

    def succeed(self, result: T) -> None:
        """There was nothing to do."""
        self.result = result
        self._end()

    def fail(self, error: Exception) -> None:
        """The operation was refused before it began."""
        self.error = error
        self._end()

    def _end(self) -> None:
        self._done = True
        if self._waiting is not None:
            self._waiting.set()

    def check(self) -> None:
        """Raises: the error that is known so far."""
        if self._done and self.error is not None:
            raise self.error

    def __await__(self) -> Generator[Any, Any, T]:
        """The result, once it exists. Raises the error of the operation."""
        return self._wait().__await__()

    async def _wait(self) -> T:
        if self._done:
            await trio.lowlevel.checkpoint()
        else:
            if self._waiting is None:
                self._waiting = trio.Event()
            await self._waiting.wait()
        self.check()
        return self.result  # type: ignore[return-value]  # None is also a result


def start_owned(
    nursery: trio.Nursery, operation: Callable[[], Coroutine[Any, Any, T]]
) -> Outcome[T]:
    """Run the operation as a task of `nursery`, for a caller that waits for the outcome. The part
    of `operation` before it returns its coroutine is done when this returns.

    Raises: the error that the operation raised at once.
    """
    outcome: Outcome[T] = Outcome()
    nursery.start_soon(outcome.run, operation())
    return outcome


async def run_owned(nursery: trio.Nursery, operation: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """As `start_owned`, and wait."""
    return await start_owned(nursery, operation)


@final
class Operations:
    """Operations by key. Those of one key run one after the other, in order.

    The callers bound the queue: a connection counts its requests in progress and is not read while
    there are more than `NetLimits.pending_requests_max`.
    """

    __slots__ = ("_nursery", "_queues")

    def __init__(self, nursery: Callable[[], trio.Nursery]) -> None:
        self._nursery = nursery
        self._queues: dict[Key, deque[Callable[[], Coroutine[Any, Any, None] | None]] | None] = {}
        """Waiting operations, by the keys of those in progress; None: none has had to wait yet."""

    def __len__(self) -> int:
        return len(self._queues)

    def __bool__(self) -> bool:
        return len(self) > 0

    def __contains__(self, key: Key) -> bool:
        return key in self._queues

    def rest(self) -> None:
        """Nothing has begun for a while. An emptied dictionary stays as large as it was."""
        if not self._queues:
            self._queues = {}

    @property
    def keys(self) -> list[Key]:
        """The keys of operations in progress."""
        return list(self._queues)

    def begin(self, key: Key, operation: Callable[[], Coroutine[Any, Any, None] | None]) -> None:
        """Call `operation` now, or when everything begun earlier with this key has ended.

        It returns None when it is done, or a coroutine, which runs as a task while others wait.
        Neither should raise. An error of one that had no caller left is logged, and the next one
        goes on: one request must not end the broker.

        Raises: the error that the operation raised at once.
        """
        queues = self._queues
        if key in queues:
            queue = queues[key]
            if queue is None:
                queue = queues[key] = deque()
            queue.append(operation)
            return
        queues[key] = None
        rest: Coroutine[Any, Any, None] | None = None
        try:
            rest = operation()
        finally:
            if rest is None and queues[key] is None:
                del queues[key]
            else:
                self._nursery().start_soon(self._run, key, rest)

    async def _run(self, key: Key, rest: Coroutine[Any, Any, None] | None) -> None:
        calls = 0
        while True:
            try:
                if rest is not None:
                    await rest
                queue = self._queues[key]
                if not queue:
                    break
                rest = None
                rest = queue.popleft()()
            except Exception:
                log.exception("an operation failed, the next one goes on", key=key)
                rest = None
            calls += 1
            if calls % CALLS_PER_TURN == 0:
                await trio.lowlevel.checkpoint()
        del self._queues[key]

    def start(self, key: Key, operation: Callable[[], Coroutine[Any, Any, T]]) -> Outcome[T]:
        """As `begin`, for a caller that waits for the outcome. The part of `operation` before it
        returns its coroutine is done when this returns, if no other was in progress.

        Raises: the error that the operation raised at once.
        """
        outcome: Outcome[T] = Outcome()

        def begin() -> Coroutine[Any, Any, None] | None:
            try:
                rest = operation()
            except Exception as error:
                outcome.fail(error)
                return None
            return outcome.run(rest)

        self.begin(key, begin)
        outcome.check()
        return outcome

    async def run(self, key: Key, operation: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """As `start`, and wait."""
        return await self.start(key, operation)
