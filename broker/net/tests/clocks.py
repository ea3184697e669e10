"""Clocks for a broker in tests."""

from __future__ import annotations

import trio


class TrioClock:
    """The broker's clock on trio's, so that MockClock moves it."""

    def now(self):
        return trio.current_time()

    def wall_ms(self):
        return int(trio.current_time() * 1000) + 1_700_000_000_000
