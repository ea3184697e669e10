"""Bounds the output that all connections together keep for peers that do not take it. Pure.

The bound of one connection is high, because a fast consumer is served best in large pieces. A
thousand connections whose peers read nothing would reach it together. So what one of them may keep
is a part of what is still free for all (dynamic thresholds, as in switches whose ports share their
memory: Choudhury and Hahne 1998). A few slow peers have the full bound, and many have little each.
Dispatch therefore stops near half of `outputs_bytes_max`. Answers to requests can pass that. At
`outputs_bytes_max` connections are closed, as `runtime.held_bytes` says.

Only connections whose sockets take no more are counted, once a turn: others cost nothing here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from runtime.held_bytes import HeldBytes

if TYPE_CHECKING:
    from broker.limits.connection_limits import NetLimits
    from runtime.clock import Clock
    from runtime.held_bytes import Holder

PART_OF_FREE: Final = 8
"""One connection may keep an eighth of what is free."""
HIGH_WATER_BYTES_MIN: Final = 64 * 1024
"""However little is free: a consumer that takes what it is sent is still served."""
LOW_WATER_PART: Final = 4
PAUSE_TIMES: Final = 4
"""A connection is not read from so many times its high-water mark on."""


@final
class OutputBudget:
    """The budget of all connections of a broker. The marks are those of each connection, in
    bytes."""

    __slots__ = (
        "_clock",
        "_held",
        "_limits",
        "hard_limit_bytes",
        "high_water_bytes",
        "low_water_bytes",
        "pause_reading_bytes",
    )

    def __init__(self, limits: NetLimits, clock: Clock) -> None:
        self._limits = limits
        self._clock = clock
        self._held = HeldBytes(limits.outputs_bytes_max)
        self.high_water_bytes = limits.output_high_water_bytes
        """Above it dispatch chooses no consumer of the connection."""
        self.low_water_bytes = limits.output_low_water_bytes
        """Below it dispatch to the connection resumes."""
        self.pause_reading_bytes = limits.output_pause_reading_bytes
        """Above it the connection is not read."""
        self.hard_limit_bytes = limits.output_hard_limit_bytes
        """Above it the connection is closed. Not a part of what is free."""

    @property
    def held_bytes(self) -> int:
        """The bytes that all peers together have not taken."""
        return self._held.held_bytes

    def now(self) -> float:
        """The clock's seconds."""
        return self._clock.now()

    def holds(self, holder: Holder, held_bytes: int) -> None:
        """Record the bytes that wait for the peer of this connection now. May close connections."""
        self._held.holds(holder, held_bytes, self._clock.now())
        limits = self._limits
        free_bytes = self._held.bytes_max // 2 - self._held.held_bytes
        share = max(HIGH_WATER_BYTES_MIN, free_bytes // PART_OF_FREE)
        if share >= limits.output_high_water_bytes:
            self.high_water_bytes = limits.output_high_water_bytes
            self.low_water_bytes = limits.output_low_water_bytes
            self.pause_reading_bytes = limits.output_pause_reading_bytes
        else:
            self.high_water_bytes = share
            self.low_water_bytes = min(limits.output_low_water_bytes, share // LOW_WATER_PART)
            self.pause_reading_bytes = min(limits.output_pause_reading_bytes, share * PAUSE_TIMES)
