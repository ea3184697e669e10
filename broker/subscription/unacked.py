"""What one consumer was sent and has not acknowledged yet.

Kept for Shared and Key_Shared only, where any consumer may hold any entry; Exclusive and Failover
need nothing but the cursor. `messages` is always the sum of the counts held: it changes only
together with the map, and the property tests recompute it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from protocol.position import Position


class Pending(NamedTuple):
    """One entry in flight: the messages of it not acked yet, and its key slot (-1: no key)."""

    messages: int
    key_hash: int


@final
class PendingAcks:
    """Entries in flight at one consumer."""

    __slots__ = ("_entries", "messages")

    def __init__(self) -> None:
        self._entries: dict[Position, Pending] = {}
        self.messages = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, position: Position) -> bool:
        return position in self._entries

    def __iter__(self) -> Iterator[Position]:
        return iter(self._entries)

    def get(self, position: Position) -> Pending | None:
        """What is pending of the entry, if anything."""
        return self._entries.get(position)

    def add(self, position: Position, messages: int, key_hash: int = -1) -> None:
        """The entry was sent. Sending it again replaces what was pending."""
        before = self._entries.get(position)
        if before is not None:
            self.messages -= before.messages
        self._entries[position] = Pending(messages, key_hash)
        self.messages += messages

    def remove(self, position: Position) -> Pending | None:
        """The entry is acked or goes back to be redelivered."""
        pending = self._entries.pop(position, None)
        if pending is not None:
            self.messages -= pending.messages
        return pending

    def keep(self, position: Position, messages: int) -> int:
        """Part of the entry is acked: `messages` of it are left. Returns how many were freed."""
        pending = self._entries.get(position)
        if pending is None:
            return 0
        self._entries[position] = Pending(messages, pending.key_hash)
        self.messages += messages - pending.messages
        return pending.messages - messages

    def take_all(self) -> list[tuple[Position, Pending]]:
        """Empty it; what was held in position order."""
        taken = sorted(self._entries.items())
        self._entries = {}
        self.messages = 0
        return taken
