"""The messages sent to consumers and not acknowledged yet.

Kept for Shared and Key_Shared only, where any consumer may hold any entry. Exclusive and Failover
need nothing but the cursor. The sums change only in this file, together with the maps they are sums
of. The property tests recompute them. There is no other unacked counter.

Limits: at `limit` messages the holder is blocked. It is freed at about half the limit, so that it
does not alternate quickly, and always at zero, so that a limit of one works.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from broker.ground.entry import Entry
    from protocol.position import Position


@final
class Pending:
    """One entry in flight: the messages of it not acked yet, and its key slot (-1: no key). Never
    changed: entries with one message and no key share one."""

    __slots__ = ("key_hash", "messages")

    def __init__(self, messages: int, key_hash: int) -> None:
        self.messages = messages
        self.key_hash = key_hash


_ONE: Final = Pending(1, -1)


def _position_of(item: tuple[Position, Pending]) -> Position:
    return item[0]


@final
class UnackedTally:
    """Unacked messages of all consumers of one subscription."""

    __slots__ = ("messages",)

    def __init__(self) -> None:
        self.messages = 0


@final
class PendingAcks:
    """Entries in flight at one consumer. They count into `tally` once it belongs to one."""

    __slots__ = ("_entries", "_tally", "messages")

    def __init__(self) -> None:
        self._entries: dict[Position, Pending] = {}
        self._tally = UnackedTally()
        self.messages = 0

    def join(self, tally: UnackedTally) -> None:
        """From now on, count into the sum of a subscription."""
        self._tally.messages -= self.messages
        self._tally = tally
        tally.messages += self.messages

    def __len__(self) -> int:
        return len(self._entries)

    def __bool__(self) -> bool:
        return len(self) > 0

    def __contains__(self, position: Position) -> bool:
        return position in self._entries

    def __iter__(self) -> Iterator[Position]:
        return iter(self._entries)

    def items(self) -> list[tuple[Position, Pending]]:
        """Everything in flight, in position order."""
        return sorted(self._entries.items(), key=_position_of)

    def values(self) -> Iterable[Pending]:
        """Pending entries, in order of sending."""
        return self._entries.values()

    def add(self, position: Position, messages: int, key_hash: int = -1) -> None:
        """The entry was sent. It must not be in flight here already."""
        is_usual = messages == 1 and key_hash == -1
        self._entries[position] = _ONE if is_usual else Pending(messages, key_hash)
        self.messages += messages
        self._tally.messages += messages

    def add_entries(self, entries: list[Entry], messages: int) -> None:
        """`add` of entries without a key, which hold so many messages."""
        pending = self._entries
        for entry in entries:
            count = entry.messages()
            pending[entry.position] = _ONE if count == 1 else Pending(count, -1)
        self.messages += messages
        self._tally.messages += messages

    def remove(self, position: Position) -> Pending | None:
        """The entry is acked or goes back to be redelivered."""
        # Compiled, these two are faster than `pop`.
        pending = self._entries.get(position)
        if pending is not None:
            del self._entries[position]
            self.messages -= pending.messages
            self._tally.messages -= pending.messages
        return pending

    def messages_of(self, position: Position) -> int:
        """Messages of the entry in flight; 0: there is none."""
        pending = self._entries.get(position)
        return 0 if pending is None else pending.messages

    def keep(self, position: Position, messages: int) -> int:
        """Part of the entry is acked: at most `messages` of it are left. Returns how many were
        freed."""
        pending = self._entries.get(position)
        if pending is None or messages >= pending.messages:
            return 0
        freed = pending.messages - messages
        self._entries[position] = Pending(messages, pending.key_hash)
        self.messages -= freed
        self._tally.messages -= freed
        return freed

    def take_all(self) -> list[tuple[Position, Pending]]:
        """Remove all entries. Returns them in position order."""
        taken = sorted(self._entries.items(), key=_position_of)
        self._entries = {}
        self._tally.messages -= self.messages
        self.messages = 0
        return taken


def is_within_half(messages: int, limit: int) -> bool:
    """Whether a consumer that waits because of its limit may go on."""
    return limit <= 0 or messages <= limit // 2


def is_below_half(messages: int, limit: int) -> bool:
    """The same of a subscription, or of all those of the broker: Pulsar wants less of them."""
    return limit <= 0 or not messages or messages < limit // 2
