"""The clock: one of the four interfaces to the outside world that tests and simulation replace.

Disk lives in `bookie.disk`, MetadataStore in `metadata.store`, and the network is
`trio.abc.Stream`-like (see `broker.net`). Everything else is concrete.
"""

from __future__ import annotations

import time
from typing import Protocol, final


class Clock(Protocol):
    """The source of time of a process."""

    def now(self) -> float:
        """Seconds on a monotonic scale, for delays, rates and ages."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970, for publish times, ledger times and statistics."""


@final
class SystemClock:
    """The machine's clocks."""

    def now(self) -> float:
        """Seconds on a monotonic scale."""
        return time.monotonic()

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""
        return time.time_ns() // 1_000_000
