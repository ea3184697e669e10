"""Flow permits of one consumer: how many more messages it accepts.

Permits count messages, not entries. Sending a batch of ten costs ten, less the messages in it that
are already acked. An entry may be sent as soon as one permit is left, so the balance may go below
zero by at most one entry. The next grants fill that first. Invariant: granted - spent = available.
"""

from __future__ import annotations

from typing import final

PERMITS_MAX = 2**31 - 1


@final
class Permits:
    """The balance, derived from `granted` and `spent` so that it cannot drift."""

    __slots__ = ("granted", "spent")

    def __init__(self) -> None:
        self.granted = 0
        self.spent = 0

    @property
    def available(self) -> int:
        """May be negative after a batch larger than what was left."""
        return self.granted - self.spent

    def grant(self, messages: int) -> bool:
        """Add permits of a FLOW. True when this ended a shortage.

        A client that keeps granting is held at PERMITS_MAX available.
        Raises: ValueError: not a positive number.
        """
        if messages <= 0:
            raise ValueError(f"FLOW must grant at least one permit, got {messages}")
        before = self.granted - self.spent
        self.granted = min(self.granted + messages, self.spent + PERMITS_MAX)
        return before <= 0 and self.granted > self.spent

    def spend(self, messages: int) -> None:
        """Account for messages sent."""
        self.spent += messages
