"""The promises of a broadcast subscription to its consumers over kills of the server; no I/O.

Messages are numbered by their publisher. A consumer is owed every durable message from the moment
its first SUBSCRIBE was answered. In each life of the server the messages come in order, and what is
left out of that order was acknowledged by this consumer: so it resumed at or before its last
acknowledgement, and nothing was lost. Acknowledgements older than the flush interval are kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Collection

TOLD_MAX = 5


@final
@dataclass
class ConsumerHistory:
    """One consumer name. Times are seconds of one clock."""

    name: str
    start: int | None = None
    """The first message it is owed; None until it was told that it is subscribed."""
    received: set[int] = field(default_factory=set)
    acked: dict[int, float] = field(default_factory=dict)
    """When the server had taken the acknowledgement; infinite if that is not known, or if it was
    killed too soon after it."""
    _kept: set[int] = field(default_factory=set)
    _newest: int | None = None
    """The last message of this life."""

    def subscribed(self, published: int) -> None:
        """SUBSCRIBE was answered, when so many messages had been sent by the publisher."""
        self._newest = None
        if self.start is None:
            self.start = published

    def receive(self, number: int, durable: Collection[int]) -> str:
        """A message came, when these had been confirmed to the publisher. What is wrong, if
        anything."""
        newest, self._newest = self._newest, number
        self.received.add(number)
        if newest is not None and number <= newest:
            return f"{self.name}: {number} came after {newest}"
        if number in self._kept:
            return f"{self.name}: {number} came again, though its acknowledgement was long stored"
        first = (self.start or 0) if newest is None else newest + 1
        lost = [each for each in range(first, number) if each not in self.acked and each in durable]
        if lost:
            how = "resumed" if newest is None else "went on"
            return f"{self.name}: {how} at {number} without {lost[:TOLD_MAX]}"
        return ""

    def ack(self, number: int) -> None:
        """This message alone is acknowledged: from now on it may stay away."""
        self.acked.setdefault(number, inf)

    def ack_through(self, number: int) -> None:
        """Everything up to this message is acknowledged."""
        for each in range(number, -1, -1):
            if each in self.acked:
                break
            self.acked[each] = inf

    def ack_taken(self, number: int, now: float, *, cumulative: bool) -> None:
        """The server has taken that acknowledgement, in this life."""
        for each in range(number, -1 if cumulative else number - 1, -1):
            if self.acked.get(each) != inf:
                break
            self.acked[each] = now

    def killed(self, at: float, flush_seconds: float) -> None:
        """The life ends. What was acknowledged shortly before may be stored or not, and counts as
        stored only when it is acknowledged again."""
        stored_before = at - flush_seconds
        for number, acked in self.acked.items():
            if acked < stored_before:
                self._kept.add(number)
            else:
                self.acked[number] = inf

    def missing(self, durable: Collection[int]) -> list[int]:
        """The messages that it should have got and never got."""
        start = self.start
        if start is None:
            return []
        return sorted(each for each in durable if each >= start and each not in self.received)
