"""Waiting for a condition that something outside of the event loop makes true."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

if TYPE_CHECKING:
    from collections.abc import Callable

SECONDS_MAX: Final = 20.0


async def eventually(condition: Callable[[], object]) -> None:
    """Wait until the condition holds. Raises: trio.TooSlowError."""
    with trio.fail_after(SECONDS_MAX):
        # There is no event for what tests look at.
        while not condition():  # noqa: ASYNC110
            await trio.sleep(0.005)
