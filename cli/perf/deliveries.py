"""Tracks deliveries: lost, duplicated and out of order, by the publisher's sequence numbers.

Pure. A consumer expects the sequence numbers from 0 on, one by one. A skipped message is missing
until it arrives (then it was out of order) or the run ends (then it is lost). A message that
arrives again is a duplicate. In the good case this costs one comparison per message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Iterable


@final
class Deliveries:
    """The consumers of one connection, by index."""

    __slots__ = ("_expected", "_missing", "duplicated", "out_of_order", "received")

    def __init__(self, consumers: int) -> None:
        self.received = 0
        """Different messages, over all consumers."""
        self.duplicated = 0
        self.out_of_order = 0
        """Messages that arrived after a later one."""
        self._expected = [0] * consumers
        self._missing: set[tuple[int, int]] = set()

    def take(self, indexes: Iterable[int], sequence: int) -> list[int]:
        """These consumers received the message. Returns those that had it before."""
        expected = self._expected
        following = sequence + 1
        count = 0
        again: list[int] = []
        for index in indexes:
            if expected[index] == sequence:
                expected[index] = following
                count += 1
            elif self._take_unexpected(index, sequence):
                count += 1
            else:
                again.append(index)
        self.received += count
        return again

    def _take_unexpected(self, index: int, sequence: int) -> bool:
        """Whether the message is new to the consumer."""
        expected = self._expected[index]
        if sequence > expected:
            self._missing.update((index, skipped) for skipped in range(expected, sequence))
            self._expected[index] = sequence + 1
            return True
        if (index, sequence) in self._missing:
            self._missing.discard((index, sequence))
            self.out_of_order += 1
            return True
        self.duplicated += 1
        return False

    def lost(self, published: int, left_out: frozenset[int] = frozenset()) -> int:
        """Published messages that have not arrived at consumers that are not excluded."""
        count = sum(
            max(0, published - expected)
            for index, expected in enumerate(self._expected)
            if index not in left_out
        )
        return count + sum(
            index not in left_out and sequence < published for index, sequence in self._missing
        )
