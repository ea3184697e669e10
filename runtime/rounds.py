"""Spreads heavy work over rounds of the event loop.

A round is the steps of all tasks that can run, between two looks at what has arrived. Many tasks
with a slice of work each, such as a hundred subscriptions that read their backlogs, would make one
round as long as all their slices together, and a message that arrives meanwhile would wait for all
of them. So a bounded number of them does a slice in a round, in the order of asking. One that is
alone pays a checkpoint for each slice, and nothing else.
"""

from __future__ import annotations

from typing import Final, final

import trio

HEAVY_PER_ROUND: Final = 4
"""Slices of a few tenths of a millisecond each."""


@final
class Rounds:
    """Of one event loop, in which all of it is called. `async with` it a task does one slice,
    without an await in it. It leaves in the next round, and makes room there."""

    __slots__ = ("_slots",)

    def __init__(self, per_round: int) -> None:
        """`per_round`: slices."""
        self._slots = trio.Semaphore(per_round)

    async def __aenter__(self) -> None:
        try:
            self._slots.acquire_nowait()
        except trio.WouldBlock:
            await self._slots.acquire()

    async def __aexit__(self, *_: object) -> None:
        try:
            await trio.lowlevel.checkpoint()
        finally:
            self._slots.release()


_of_loop: trio.lowlevel.RunVar[Rounds] = trio.lowlevel.RunVar("heavy rounds")


def heavy_rounds() -> Rounds:
    """Those of the running loop that all of its heavy work shares."""
    try:
        return _of_loop.get()
    except LookupError:
        rounds = Rounds(HEAVY_PER_ROUND)
        _of_loop.set(rounds)
        return rounds
