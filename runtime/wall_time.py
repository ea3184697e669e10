"""Sleeps until a time of the wall clock, even if that clock is set meanwhile.

The event loop sleeps by the monotonic clock. The wall clock departs from it when it is set, or when
the machine was suspended. One of the sleeping tasks therefore compares both clocks every second,
and wakes the others when the difference has changed: they compute again how long to sleep. However
many tasks sleep, this costs one comparison a second, and nothing while none sleeps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import trio

if TYPE_CHECKING:
    from runtime.clock import Clock

LOOK_SECONDS: Final = 1.0
"""How late a sleeper may notice that the wall clock was set forward."""
MOVED_MS_MIN: Final = 100.0
"""Clocks that are adjusted slowly go apart by half a millisecond in a second."""


@final
class _Sleepers:
    """The sleepers of one event loop. While any task is parked, one other is the lookout."""

    __slots__ = ("apart_ms", "has_lookout", "parked")

    def __init__(self) -> None:
        self.parked = trio.lowlevel.ParkingLot()
        self.has_lookout = False
        self.apart_ms = 0.0
        """The wall clock minus the monotonic one, when the parked tasks were last woken or the
        first lookout began."""

    def look(self, clock: Clock) -> None:
        """Wake all when the clocks have moved against each other."""
        apart_ms = _apart_ms(clock)
        if abs(apart_ms - self.apart_ms) >= MOVED_MS_MIN:
            self.apart_ms = apart_ms
            self.parked.unpark_all()


_of_loop: trio.lowlevel.RunVar[_Sleepers] = trio.lowlevel.RunVar("sleepers until a wall time")


async def sleep_until(clock: Clock, wall_ms: float) -> None:
    """Sleep until the wall clock shows `wall_ms` or more, at most LOOK_SECONDS longer. Returns at
    once, without a checkpoint, if it does so already."""
    sleepers = _sleepers()
    try:
        while (left_ms := wall_ms - clock.wall_ms()) > 0:
            left_seconds = left_ms / 1000
            if left_seconds <= LOOK_SECONDS:
                await trio.sleep(left_seconds)
            elif sleepers.has_lookout:
                with trio.move_on_after(left_seconds):
                    await sleepers.parked.park()
            else:
                await _look_out(sleepers, clock)
    finally:
        if not sleepers.has_lookout:
            sleepers.parked.unpark()  # the next one looks out


async def _look_out(sleepers: _Sleepers, clock: Clock) -> None:
    if not sleepers.parked:
        sleepers.apart_ms = _apart_ms(clock)
    sleepers.has_lookout = True
    try:
        await trio.sleep(LOOK_SECONDS)
    finally:
        sleepers.has_lookout = False
    sleepers.look(clock)


def _apart_ms(clock: Clock) -> float:
    return clock.wall_ms() - 1000 * clock.now()


def _sleepers() -> _Sleepers:
    try:
        return _of_loop.get()
    except LookupError:
        sleepers = _Sleepers()
        _of_loop.set(sleepers)
        return sleepers
