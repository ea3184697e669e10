"""Waiting for a condition that something outside of the event loop makes true."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import trio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

SECONDS_MAX: Final = 60.0


async def eventually(condition: Callable[[], object], seconds_max: float = SECONDS_MAX) -> None:
    """Wait until the condition holds. `seconds_max`: more where processes have to start.

    The bound is one of real time: a clock that jumps while a thread works would be at its end
    before the thread is.

    Raises: trio.TooSlowError.
    """

    async def ask() -> object:
        return condition()

    await eventually_answered(ask, seconds_max)


async def eventually_answered(
    ask: Callable[[], Awaitable[object]], seconds_max: float = SECONDS_MAX
) -> None:
    """The same for a condition that has to be asked for."""
    end = time.monotonic() + seconds_max
    # There is no event for what tests look at.
    while not await ask():
        if time.monotonic() > end:
            raise trio.TooSlowError
        await trio.sleep(0.005)
