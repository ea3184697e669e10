"""A line of waiters for a resource that becomes available with time, such as tokens.

The first waiter has its turn when the resource is available to it: it is taken out of the line and
called. After a few turns in a row, other work of the event loop has one. An empty line costs no
task and no timer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, TypeVar, final

import trio

if TYPE_CHECKING:
    from collections.abc import Callable

WAIT_SECONDS_MIN: Final = 0.01
"""If much becomes available, the first in line is called for that of this time, and not for each
piece."""
CALLED_AT_ONCE_MAX: Final = 100
"""Turns before other work has one."""

Waiter = TypeVar("Waiter")
Wish = TypeVar("Wish")


@final
class TurnLine(Generic[Waiter, Wish]):
    """See the module docstring. A waiter stands in the line once, with what it waits for."""

    __slots__ = ("_call", "_nursery", "_pause", "_seconds_until", "_serving", "_waiting", "joined")

    def __init__(
        self,
        seconds_until: Callable[[Wish], float],
        call: Callable[[Waiter, Wish], None],
        nursery: Callable[[], trio.Nursery],
    ) -> None:
        """`seconds_until` returns how long a wish has to wait; 0: `call` gives its waiter the turn.
        `nursery` runs the timer."""
        self._seconds_until = seconds_until
        self._call = call
        self._nursery = nursery
        self._waiting: dict[Waiter, Wish] = {}
        self._serving = False
        self._pause: trio.CancelScope | None = None
        self.joined = 0
        """How often one had to wait."""

    def __bool__(self) -> bool:
        """Whether one waits."""
        return bool(self._waiting)

    def __contains__(self, waiter: Waiter) -> bool:
        return waiter in self._waiting

    def join(self, waiter: Waiter, wish: Wish) -> None:
        """Stand at the end of the line, or keep the place there."""
        self.joined += 1
        self._waiting[waiter] = wish
        if not self._serving:
            self._serving = True
            self._nursery().start_soon(self._serve)

    def forget(self, waiter: Waiter) -> None:
        """It waits no more."""
        self._waiting.pop(waiter, None)

    def look_again(self) -> None:
        """More may be available than when the first in line was looked at."""
        if self._pause is not None:
            self._pause.cancel()

    async def _serve(self) -> None:
        try:
            while self._waiting:
                seconds = self._call_waiting()
                if self._waiting:
                    with trio.CancelScope() as self._pause:
                        await trio.sleep(max(seconds, WAIT_SECONDS_MIN) if seconds else 0)
        finally:
            self._serving = False
            self._pause = None

    def _call_waiting(self) -> float:
        """Returns the time until the first of those that are left may have its turn."""
        for _ in range(CALLED_AT_ONCE_MAX):
            if not self._waiting:
                break
            waiter, wish = next(iter(self._waiting.items()))
            seconds = self._seconds_until(wish)
            if seconds > 0:
                return seconds
            del self._waiting[waiter]
            self._call(waiter, wish)
        return 0.0
