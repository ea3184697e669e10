"""What the subscription asks of the dispatcher of its type.

A dispatcher decides who gets which entry and never awaits, except in `fill`. It is made when the
first consumer of a type arrives, and told of everything that happens to the consumers and the
cursor. It sends only within `step`, so that one place bounds the work.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.subscription.consumer import Consumer
    from broker.subscription.pump import Step
    from broker.subscription.statistics import DrainingHash
    from protocol.position import Position

WakeAt = Callable[[int], None]
"""Asks for a step at a wall time in ms."""


class Dispatcher(Protocol):
    """Exclusive, Failover, Shared or Key_Shared."""

    sub_type: int
    messages_out: int
    bytes_out: int

    def add(self, consumer: Consumer) -> None:
        """Raises: BrokerError: it does not fit the others."""

    def remove(self, consumer: Consumer) -> None:
        """What it held goes back to be delivered again."""

    def announce(self, consumer: Consumer) -> None:
        """The consumer has been answered SUCCESS: it may be told things from now on."""

    def ready(self, consumer: Consumer) -> None:
        """It got permits, or room in its outbox."""

    def acked(self, consumer: Consumer, position: Position) -> int:
        """The whole entry is acked by it: how many messages that were in flight."""

    def part_acked(self, consumer: Consumer, position: Position, left: int) -> int:
        """`left` messages of the entry are not acked yet: how many were freed."""

    def settle(self) -> bool:
        """After acks: lift what they unblocked; True when a step may send more now."""

    def redeliver(
        self, consumer: Consumer, positions: Sequence[Position] | None, epoch: int
    ) -> None:
        """Deliver again what it has unacked: those given, or everything."""

    def rewind(self) -> None:
        """Forget all that was read: go on behind the mark-delete position."""

    def skip_to(self, position: Position) -> None:
        """Everything before it was acked at once: do not read it."""

    def step(self) -> Step:
        """Send what can be sent, within one slice."""

    async def fill(self) -> None:
        """Read what the step missed. Raises: BrokerError."""

    def why(self) -> str:
        """Why nothing is sent although there may be a backlog; empty if nothing holds it."""

    @property
    def active(self) -> Consumer | None:
        """The active consumer of Exclusive and Failover."""

    @property
    def unacked_messages(self) -> int:
        """In flight (Shared and Key_Shared)."""

    @property
    def blocked_on_unacked(self) -> bool:
        """Whether the subscription's limit holds it."""

    @property
    def delayed_messages(self) -> int:
        """Entries waiting for their time."""

    @property
    def replay_messages(self) -> int:
        """Entries waiting to be delivered again."""

    def ranges_of(self, consumer: Consumer) -> tuple[tuple[int, int], ...] | None:
        """Its key ranges (Key_Shared)."""

    def draining_of(self, consumer: Consumer) -> tuple[DrainingHash, ...]:
        """Slots that moved away from it and wait for its acks (Key_Shared)."""
