"""Spreads heavy work over rounds of the event loop.

A round is the steps of all tasks that can run, between two polls for input. Many tasks with a slice
of work each, such as a hundred subscriptions that read their backlogs, would make one round as long
as all their slices together, and a message that arrives meanwhile would wait for all of them. So a
bounded number of them does a slice in a round, in the order of asking. A single task pays only a
checkpoint for each slice.

Backlogs yield to messages that are being published, and to consumers that wait for them. After each
such message, each of a number of slices gets a round of its own, and new input is answered between
these rounds. While nobody publishes, longer rounds cost less.

Beside publishers at full rate that would be too little: a slice beside milliseconds of reading.
Where the readers of the loop make its turns (`runtime.readers`), slices are therefore steps in
these turns (`do`), and together get twice as much time as the calls of the turn. A loop without
such readers has rounds of tasks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import trio

from runtime.watchdog import callback_name

if TYPE_CHECKING:
    from collections.abc import Callable

    CallInTurns = Callable[[Callable[[], bool]], None]

HEAVY_PER_ROUND: Final = 4
"""Slices of a few tenths of a millisecond each."""
YIELDING_SLICES: Final = 64
"""How many slices have rounds of their own after a message was published. They take 20 ms or more,
so slices always yield to a client that publishes 50 messages a second."""


@final
class Rounds:
    """The rounds of one event loop, in which all of it is called. Within `async with`, a task does
    one slice, without an await in it. It leaves in the next round. Its place passes to the next in
    line, which then has it in that round."""

    __slots__ = (
        "_call_in_turns",
        "_in_turns",
        "_line",
        "_per_round",
        "_places",
        "_yielding",
    )

    def __init__(self, per_round: int) -> None:
        """`per_round`: slices, while they yield to nothing."""
        self._per_round = per_round
        self._places = 0
        """Places taken by tasks that do a slice now or in the next round."""
        self._line = trio.lowlevel.ParkingLot()
        self._yielding = 0
        self._call_in_turns: CallInTurns | None = None
        self._in_turns: dict[_Slices, None] = {}
        """Work that is done in turns of the readers."""

    @property
    def is_yielding(self) -> bool:
        """Whether other work may wait for the end of the round."""
        return self._yielding > 0

    def published(self) -> None:
        """A message has come: its producer waits for the receipt, and others may wait for it."""
        self._yielding = YIELDING_SLICES

    def use_turns(self, call_in_turns: CallInTurns | None) -> None:
        """From now on slices are steps in the turns of readers, which call each until it returns
        False. None: these readers end, and what they have not called is left to rounds."""
        self._call_in_turns = call_in_turns
        for slices in self._in_turns:
            slices.interrupt()

    async def do(self, work: Callable[[], bool]) -> None:
        """Call `work`, one slice each time, until it returns False. It must not raise."""
        while True:
            if self._call_in_turns is None:
                async with self:
                    is_left = work()
            else:
                is_left = await self._do_in_turns(work, self._call_in_turns)
            if not is_left:
                return

    async def _do_in_turns(self, work: Callable[[], bool], call_in_turns: CallInTurns) -> bool:
        """Returns whether work is left, because the readers have ended."""
        slices = _Slices(self, work)
        self._in_turns[slices] = None
        try:
            call_in_turns(slices.call)
            await slices.ended.wait()
        finally:
            slices.is_over = True
            del self._in_turns[slices]
        return slices.is_left

    def had_slice(self) -> None:
        """A slice was done."""
        if self._yielding:
            self._yielding -= 1

    async def __aenter__(self) -> None:
        if self._line or self._places >= self._places_max():
            await self._line.park()
        else:
            self._places += 1

    async def __aexit__(self, *_: object) -> None:
        self.had_slice()
        if self._line and self._places <= self._places_max():
            self._places -= 1
            self._let_in()
            await trio.lowlevel.checkpoint()
            return
        try:
            await trio.lowlevel.checkpoint()
        finally:
            self._places -= 1
            self._let_in()

    def _let_in(self) -> None:
        while self._line and self._places < self._places_max():
            self._places += 1
            self._line.unpark()

    def _places_max(self) -> int:
        return 1 if self._yielding else self._per_round


@final
class _Slices:
    """Work of a task that waits for its end, called in turns of the readers."""

    __slots__ = ("_rounds", "_work", "ended", "is_left", "is_over")

    def __init__(self, rounds: Rounds, work: Callable[[], bool]) -> None:
        self._rounds = rounds
        self._work = work
        self.ended = trio.Event()
        self.is_left = True
        self.is_over = False
        """The task waits no longer."""

    def call(self) -> bool:
        """The next slice. Returns whether there are more."""
        if self.is_over:
            return False
        self.is_left = self._work()
        self._rounds.had_slice()
        if not self.is_left:
            self.interrupt()
        return self.is_left

    def interrupt(self) -> None:
        """Wake the task, for which nothing more is called."""
        self.is_over = True
        self.ended.set()

    def what_ran(self) -> str:
        """For the watchdog of the loop."""
        return callback_name(self._work)


_of_loop: trio.lowlevel.RunVar[Rounds] = trio.lowlevel.RunVar("heavy rounds")


def heavy_rounds() -> Rounds:
    """The rounds of the running loop, which all of its heavy work shares."""
    try:
        return _of_loop.get()
    except LookupError:
        rounds = Rounds(HEAVY_PER_ROUND)
        _of_loop.set(rounds)
        return rounds
