"""SUBSCRIBEs that come while their subscription is being opened.

After a restart a hundred thousand consumers ask for one subscription before it is open. The first
one opens it, in a task; the others wait in a list, and go on one after the other, in their order,
as soon as it is open or could not be opened. A task for each would cost more than everything else
that has to be done for it.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, final

import trio

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Key = tuple[str, str]
"""(full name of the topic, name of the subscription)."""

CALLS_PER_TURN = 256
"""Who waited is served in turns, like the requests of a connection."""


@final
class Openings:
    """Who waits for which subscription."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: dict[Key, list[Callable[[], None]]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def call_after(self, key: Key, call: Callable[[], None]) -> bool:
        """Call when the attempt to open it that is under way has ended; False: there is none. The
        call must not raise."""
        waiting = self._waiting.get(key)
        if waiting is None:
            return False
        waiting.append(call)
        return True

    @contextmanager
    def leading(self, key: Key, nursery: trio.Nursery) -> Iterator[None]:
        """Others wait for what is done inside, and go on in the nursery, whatever comes of it."""
        waiting: list[Callable[[], None]] = []
        self._waiting[key] = waiting
        try:
            yield
        finally:
            del self._waiting[key]
            if waiting:
                nursery.start_soon(_call_all, waiting)


async def _call_all(waiting: list[Callable[[], None]]) -> None:
    for start in range(0, len(waiting), CALLS_PER_TURN):
        for call in waiting[start : start + CALLS_PER_TURN]:
            call()
        await trio.lowlevel.checkpoint()
