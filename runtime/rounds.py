"""Spreads heavy work over rounds of the event loop.

A round is the steps of all tasks that can run, between two looks at what has arrived. Many tasks
with a slice of work each, such as a hundred subscriptions that read their backlogs, would make one
round as long as all their slices together, and a message that arrives meanwhile would wait for all
of them. So each asks for its turn before a slice, and a bounded number has one in a round, in the
order of asking.
"""

from __future__ import annotations

from collections import deque
from typing import Final, final

import trio

HEAVY_PER_ROUND: Final = 4
"""Slices of a few tenths of a millisecond each."""


@final
class Rounds:
    """Of one event loop, in which all of it is called."""

    __slots__ = ("_is_serving", "_per_round", "_used", "_waiting")

    def __init__(self, per_round: int) -> None:
        """`per_round`: turns in a round."""
        self._per_round = per_round
        self._used = 0
        """Turns of this round."""
        self._waiting: deque[trio.lowlevel.Task] = deque()
        self._is_serving = False

    async def turn(self) -> None:
        """Return in a round that has room for a slice. Always a checkpoint."""
        await trio.lowlevel.checkpoint()
        if not self._is_serving:
            self._is_serving = True
            trio.lowlevel.spawn_system_task(self._serve)
        if self._used < self._per_round and not self._waiting:
            self._used += 1
            return
        task = trio.lowlevel.current_task()
        self._waiting.append(task)

        def abort(_: object) -> trio.lowlevel.Abort:
            # One that has been given its turn is no longer in the line, and is not aborted.
            self._waiting.remove(task)
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    async def _serve(self) -> None:
        """Give turns, round by round, until nobody wants one."""
        given = 0
        while self._waiting or self._used:
            await trio.lowlevel.checkpoint()
            self._used = given
            given = min(self._per_round, len(self._waiting))
            for _ in range(given):
                trio.lowlevel.reschedule(self._waiting.popleft())
        self._is_serving = False


_of_loop: trio.lowlevel.RunVar[Rounds] = trio.lowlevel.RunVar("heavy rounds")


def heavy_rounds() -> Rounds:
    """Those of the running loop that all of its heavy work shares."""
    try:
        return _of_loop.get()
    except LookupError:
        rounds = Rounds(HEAVY_PER_ROUND)
        _of_loop.set(rounds)
        return rounds
