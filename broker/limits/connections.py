"""State shared by all connections of a broker: their identities, common bounds and turns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, final

import structlog
import trio

from broker.ground.slices import in_slices
from broker.limits.output_budget import OutputBudget
from broker.limits.publish_budget import PublishBudget
from runtime.held_bytes import HeldBytes

if TYPE_CHECKING:
    from broker.ground.turn import Turns
    from broker.limits.connection_limits import NetLimits
    from runtime.clock import Clock

log = structlog.get_logger()

DEADLINE_CHECK_SECONDS_MAX: Final = 5.0


class OpenConnection(Protocol):
    """A connection, as the shared state sees it."""

    @property
    def remote_address(self) -> str:
        """The address of the peer."""

    def check_deadlines(self, now: float) -> None:
        """Close it if its peer gives no sign of life."""

    def check_credential(self, wall_seconds: float, now: float) -> None:
        """Have its credential renewed if that has expired, or close it."""


@final
class Connections:
    """See the module docstring."""

    def __init__(self, limits: NetLimits, clock: Clock, turns: Turns) -> None:
        self.limits = limits
        self.clock = clock
        self.turns = turns
        self.publish_budget = PublishBudget(limits.broker_publish_bytes_max)
        self.outputs = OutputBudget(limits, clock)
        self.unfinished_frames = HeldBytes(limits.unfinished_frames_bytes_max)
        self.open: set[OpenConnection] = set()

    async def run(self) -> None:
        """Flush output written outside of turns, and watch deadlines, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.turns.run)
            nursery.start_soon(self._check_deadlines)
            nursery.start_soon(self._check_credentials)

    async def _check_deadlines(self) -> None:
        interval = self.limits.keep_alive_seconds / 10
        while True:
            await trio.sleep(min(interval, DEADLINE_CHECK_SECONDS_MAX))
            await in_slices(map(self._check_deadlines_of, list(self.open)))

    async def _check_credentials(self) -> None:
        while True:
            await trio.sleep(self.limits.credential_check_seconds)
            await in_slices(map(self._check_credential_of, list(self.open)))

    def _check_credential_of(self, connection: OpenConnection) -> None:
        if connection in self.open:
            connection.check_credential(self.clock.wall_ms() / 1000, self.clock.now())

    def _check_deadlines_of(self, connection: OpenConnection) -> None:
        if connection in self.open:  # it may have ended since the last slice
            try:
                connection.check_deadlines(self.clock.now())
            except Exception as error:
                log.error("cannot check deadlines", peer=connection.remote_address, exc_info=error)
