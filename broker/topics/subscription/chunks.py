"""The chunks of large messages on a Shared subscription: all those of a message go to one consumer.

A client puts a message together only from all of its chunks, in their order. Each message in chunks
has a number, the slot of its entries in flight (`InFlight`): as long as a consumer holds one of
them, it gets the others. Clients acknowledge them all at once. So what is known of a message in
chunks ends with its entries in flight, which are bounded.

A chunk whose consumer cannot take it waits here, and holds up no other entry. There is a bound for
all that wait. A chunk above it is passed over: only the first one of each message is remembered,
and everything from there on is read again when fewer wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from broker.topics.subscription.redelivery import ReplayQueue
from broker.topics.subscription.unusual_fields import CHUNK_ID_TAG, may_have

if TYPE_CHECKING:
    from broker.ground.entry import Entry
    from broker.topics.subscription.consumer import Consumer
    from protocol.position import Position

WHOLE: Final = -1
"""The slot of an entry that is no chunk."""
_SLOT_MAX: Final = 2**60 - 1


def chunk_slot(entry: Entry) -> int:
    """The slot of an entry: a number that all chunks of a message have, or WHOLE. Two messages with
    the same number go to the same consumer, which harms neither."""
    if not may_have(entry.data, CHUNK_ID_TAG):
        return WHOLE
    metadata = entry.metadata
    if not metadata.HasField("chunk_id") or not metadata.HasField("uuid"):
        return WHOLE
    return hash(metadata.uuid) & _SLOT_MAX


@final
class ChunksSeen:
    """Whether a topic has had chunks since it was loaded. Until then no entry that is delivered is
    looked at for one."""

    __slots__ = ("any",)

    def __init__(self) -> None:
        self.any = False

    def look(self, entry: Entry) -> None:
        """The entry was read back: it may be the first chunk."""
        if not self.any and is_chunk(entry):
            self.any = True


def is_chunk(entry: Entry) -> bool:
    """Whether it is a part of a message."""
    return may_have(entry.data, CHUNK_ID_TAG) and entry.metadata.HasField("chunk_id")


@final
class ChunksWaiting:
    """Positions of chunks, by the consumer for which they wait, and by slot."""

    __slots__ = ("_consumers", "_members", "_slots")

    def __init__(self) -> None:
        self._members: dict[Position, int] = {}
        self._slots: dict[int, ReplayQueue] = {}
        self._consumers: dict[Consumer, dict[int, None]] = {}

    def __len__(self) -> int:
        return len(self._members)

    def __bool__(self) -> bool:
        return len(self) > 0

    def add(self, consumer: Consumer, position: Position, slot: int) -> None:
        """The chunk waits for the consumer, which holds others of the slot."""
        self._members[position] = slot
        queue = self._slots.get(slot)
        if queue is None:
            queue = self._slots[slot] = ReplayQueue()
        queue.add(position)
        self._consumers.setdefault(consumer, {})[slot] = None

    def discard(self, position: Position) -> None:
        """The chunk is acked."""
        slot = self._members.pop(position, WHOLE)
        if slot != WHOLE:
            self._slots[slot].discard(position)

    def __contains__(self, position: Position) -> bool:
        return position in self._members

    def drop_before(self, position: Position) -> None:
        """Chunks before the position are not delivered any more."""
        for each in [each for each in self._members if each < position]:
            self.discard(each)

    def consumers(self) -> list[Consumer]:
        """The consumers for which chunks may wait."""
        return list(self._consumers)

    def take(self, consumer: Consumer, count_max: int) -> list[tuple[Position, int]]:
        """Take chunks that wait for the consumer, those of a message in their order: position and
        slot, in position order. `add` gives them back, and they come first next time: what was read
        for them is asked for again."""
        taken: list[tuple[Position, int]] = []
        slots = self._consumers.get(consumer, {})
        for slot in list(slots):
            if len(taken) >= count_max:
                break
            queue = self._slots.get(slot)
            if not queue:
                self._slots.pop(slot, None)
                del slots[slot]
                continue
            for position in queue.pop_batch(count_max - len(taken)):
                del self._members[position]
                taken.append((position, slot))
        if not slots:
            self._consumers.pop(consumer, None)
        taken.sort()
        return taken

    def release(self, slot: int) -> list[Position]:
        """No consumer holds entries of the slot any more: any may get those that wait."""
        queue = self._slots.pop(slot, None)
        released = [] if queue is None else queue.pop_batch(len(queue))
        for position in released:
            del self._members[position]
        return released

    def leave(self, consumer: Consumer) -> None:
        """The consumer is gone, and what waited for it has been released."""
        self._consumers.pop(consumer, None)

    def clear(self) -> None:
        """Everything is read again."""
        self._members.clear()
        self._slots.clear()
        self._consumers.clear()
