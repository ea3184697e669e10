"""Spreads heavy work over rounds of the event loop.

A round is the steps of all tasks that can run, between two polls for input. Many tasks with a slice
of work each, such as a hundred subscriptions that read their backlogs, would make one round as long
as all their slices together, and a message that arrives meanwhile would wait for all of them. So a
bounded number of them does a slice in a round, in the order of asking. A single task pays only a
checkpoint for each slice.

Backlogs yield to messages that are being published, and to consumers that wait for them. After each
such message, each of a number of slices gets a round of its own, and new input is answered between
these rounds. While nobody publishes, longer rounds cost less.
"""

from __future__ import annotations

from typing import Final, final

import trio

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

    __slots__ = ("_line", "_per_round", "_places", "_yielding")

    def __init__(self, per_round: int) -> None:
        """`per_round`: slices, while they yield to nothing."""
        self._per_round = per_round
        self._places = 0
        """Places taken by tasks that do a slice now or in the next round."""
        self._line = trio.lowlevel.ParkingLot()
        self._yielding = 0

    @property
    def is_yielding(self) -> bool:
        """Whether other work may wait for the end of the round."""
        return self._yielding > 0

    def published(self) -> None:
        """A message has come: its producer waits for the receipt, and others may wait for it."""
        self._yielding = YIELDING_SLICES

    async def __aenter__(self) -> None:
        if self._line or self._places >= self._places_max():
            await self._line.park()
        else:
            self._places += 1

    async def __aexit__(self, *_: object) -> None:
        if self._yielding:
            self._yielding -= 1
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


_of_loop: trio.lowlevel.RunVar[Rounds] = trio.lowlevel.RunVar("heavy rounds")


def heavy_rounds() -> Rounds:
    """The rounds of the running loop, which all of its heavy work shares."""
    try:
        return _of_loop.get()
    except LookupError:
        rounds = Rounds(HEAVY_PER_ROUND)
        _of_loop.set(rounds)
        return rounds
