"""Bit sets of the messages of a batch: `repeated int64` on the wire and on disk, an int in memory.

The words are those of `java.util.BitSet.toLongArray()`: bit i of the set is bit i % 64 of word
i // 64, words are signed, and zero words at the end are left out. A set bit is a message that is
still to be acked; so acknowledging is `&`, and 0 means that the whole entry is done.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection


def from_words(words: Collection[int]) -> int:
    """The bit set as a number."""
    if not words:
        return 0
    return int.from_bytes(struct.pack(f"<{len(words)}q", *words), "little")


def to_words(bits: int) -> tuple[int, ...]:
    """The words of a bit set; none for the empty set."""
    count = (bits.bit_length() + 63) // 64
    return struct.unpack(f"<{count}q", bits.to_bytes(8 * count, "little"))


def all_unacked(message_count: int) -> int:
    """The set for a batch of which nothing is acked."""
    return (1 << message_count) - 1


def without(bits: int, index: int) -> int:
    """The set after message `index` has been acked."""
    return bits & ~(1 << index)
