"""Long work of the event loop in slices, so that other tasks are served in between."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

if TYPE_CHECKING:
    from collections.abc import Iterable

STEPS_PER_SLICE: Final = 32
"""A step is the work for one row: a subscription, a consumer, a producer, a ledger, or the rest of
a topic."""


async def in_slices(steps: Iterable[object]) -> None:
    """Take every step. The data of the steps may change between two slices.

    Raises: any error of a step.
    """
    for number, _ in enumerate(steps, 1):
        if number % STEPS_PER_SLICE == 0:
            await trio.lowlevel.checkpoint()
