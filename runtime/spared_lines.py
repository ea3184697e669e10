"""Leaves out lines of the log that strangers could cause without end.

A client that can reach a port can cause a line with each connection and each request. Of the lines
with one text that name a peer, only some are therefore written in a second. The first line of a
later second says how many were left out before it. Lines of a server about itself are never left
out.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, final

import structlog

if TYPE_CHECKING:
    from collections.abc import Callable

    from structlog.typing import EventDict, WrappedLogger

LINES_PER_SECOND_MAX: Final = 20
"""Lines of one text."""
PEER: Final = "peer"
LEFT_OUT: Final = "lines_left_out"


@final
class SparedLines:
    """A processor of structlog."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._counts: dict[str, tuple[int, int]] = {}
        """By text: the second, and the lines that came in it. Texts are those of the source."""

    def __call__(self, _logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        """Raises: structlog.DropEvent."""
        if PEER not in event:
            return event
        text, second = str(event.get("event")), int(self._now())
        since, count = self._counts.get(text, (second, 0))
        if since == second:
            self._counts[text] = (second, count + 1)
            if count >= LINES_PER_SECOND_MAX:
                raise structlog.DropEvent
            return event
        self._counts[text] = (second, 1)
        left_out = count - LINES_PER_SECOND_MAX
        return {**event, LEFT_OUT: left_out} if left_out > 0 else event
