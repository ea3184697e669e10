"""The interface between a subscription and the dispatcher of its type.

A dispatcher decides which consumer gets which entry and never awaits, except in `fill`. It is
created when the first consumer of a type arrives, and is notified of every change of the consumers
and the cursor. It sends only within `step`, so that one place bounds the work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from broker.topics.subscription.consumer import Consumer
    from broker.topics.subscription.pump import Step
    from broker.topics.subscription.statistics import DrainingHash
    from protocol.position import Position


class Dispatcher(Protocol):
    """Exclusive, Failover, Shared or Key_Shared."""

    sub_type: int
    messages_out: int
    bytes_out: int
    entries_out: int

    def add(self, consumer: Consumer) -> None:
        """Raises: BrokerError: the consumer does not fit the others."""

    def remove(self, consumer: Consumer) -> None:
        """Remove it. Its unacked entries go back to be redelivered."""

    def announce(self, consumer: Consumer) -> None:
        """The consumer has been answered SUCCESS and may get notifications from now on."""

    def ready(self, consumer: Consumer) -> None:
        """The consumer got permits, or room in its outbox."""

    def acked(self, consumer: Consumer, position: Position) -> int:
        """It acked the whole entry. Returns how many messages were in flight."""

    def acked_entries(self, ledger_id: int, entry_ids: list[int]) -> int:
        """Whole entries of one ledger were acked. Returns how many messages they count for: those
        in flight, and one for an entry that was not."""

    def part_acked(self, consumer: Consumer, position: Position, left: int) -> int:
        """`left` messages of the entry are not acked yet. Returns how many were freed."""

    def messages_of(self, position: Position) -> int:
        """Messages of an entry in flight that are not acked; 0: it is not known to be in flight."""

    def settle(self) -> bool:
        """After acks: lift the limits they ended. True when a step may send more now."""

    def redeliver(
        self, consumer: Consumer, positions: Sequence[Position] | None, epoch: int
    ) -> None:
        """Redeliver its unacked entries: those given, or all."""

    @property
    def read_position(self) -> Position:
        """The next new entry to be sent is the first one at or after it."""

    def rewind(self) -> None:
        """Drop all entries read and continue after the mark-delete position."""

    def close(self) -> None:
        """It is given up: what it holds counts no longer."""

    def skip_to(self, position: Position) -> None:
        """Everything before the position was acked at once: do not read it."""

    def limits_changed(self) -> None:
        """The limits of the topic's subscriptions are others now."""

    def step(self, entries_max: int, bytes_max: int) -> Step:
        """Send as much as possible, within one slice of so many entries and about so many
        bytes."""

    async def fill(self) -> None:
        """Read the entries that the step lacked. Raises: BrokerError."""

    def why(self) -> str:
        """Why nothing is sent although there may be a backlog; empty if nothing blocks it."""

    @property
    def active(self) -> Consumer | None:
        """The active consumer of Exclusive and Failover."""

    @property
    def unacked_messages(self) -> int:
        """Messages in flight (Shared and Key_Shared)."""

    @property
    def blocked_on_unacked(self) -> bool:
        """Whether the limit of the subscription blocks it."""

    @property
    def delayed_messages(self) -> int:
        """Entries waiting for their delivery time."""

    @property
    def replay_messages(self) -> int:
        """Entries waiting for redelivery."""

    @property
    def is_reading_replays(self) -> bool:
        """Whether it reads entries again now, to redeliver them (Shared and Key_Shared)."""

    def ranges_of(self, consumer: Consumer) -> tuple[tuple[int, int], ...] | None:
        """Its key ranges (Key_Shared)."""

    def key_ranges(self) -> Iterator[tuple[int, int, Consumer]] | None:
        """The key ranges of all consumers (Key_Shared), ascending; None: there are none."""

    def draining_of(self, consumer: Consumer) -> tuple[DrainingHash, ...]:
        """Slots that moved to another consumer and wait for its acks (Key_Shared)."""
