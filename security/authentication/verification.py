"""Turns for work on credentials, so that strangers cost the event loop a bounded share.

A verification takes 50 to 500 microseconds of the event loop, and anybody can ask for one. So
connections that are not authenticated yet share one queue: one verification per turn of the loop,
between the work for everybody else. Renewals by clients that are known have a queue of their own,
and do not wait for strangers. Hashes of passwords are made slow on purpose, and have a thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar, final

import trio

if TYPE_CHECKING:
    from collections.abc import Callable

Args = ParamSpec("Args")
Result = TypeVar("Result")

HASHING_THREADS: Final = 1
"""Hashing holds the interpreter for most of its time: more threads would only take it away."""


@final
class Verifications:
    """The turns of one server."""

    __slots__ = ("_hashing", "_turn")

    def __init__(self) -> None:
        self._turn = trio.Lock()
        self._hashing = trio.CapacityLimiter(HASHING_THREADS)

    async def take_turn(self) -> None:
        """Wait in the queue of clients that are not known yet."""
        async with self._turn:
            await trio.lowlevel.checkpoint()

    async def hash(
        self, work: Callable[Args, Result], *args: Args.args, **kwargs: Args.kwargs
    ) -> Result:
        """The result of slow work, in a thread."""
        assert not kwargs
        return await trio.to_thread.run_sync(work, *args, limiter=self._hashing)
