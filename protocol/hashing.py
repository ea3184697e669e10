"""The hashes on which clients and broker have to agree.

Key_Shared maps the sticky key of a message to one of 65536 slots; producers map the key to a
partition. Both start from Murmur3 (32 bit, seed 0, x86 variant) or, for the Java client's default
routing, from `String.hashCode`; both drop the sign bit first.
"""

from __future__ import annotations

from typing import Final

import mmh3

SLOT_COUNT: Final = 1 << 16
"""Hash slots of a Key_Shared subscription; sticky consumers name ranges of 0 to 65535."""

_SIGN_MASK: Final = 0x7FFFFFFF


def key_hash(key: bytes) -> int:
    """The hash of a key in Pulsar: Murmur3_32, seed 0, without its sign bit."""
    value: int = mmh3.hash(key, 0, False)
    return value & _SIGN_MASK


def key_slot(key: bytes, slot_count: int = SLOT_COUNT) -> int:
    """The slot of a sticky key with auto split and sticky ranges: slot 0 means "no hash", and a key
    whose hash leads there has slot 1."""
    return key_hash(key) % slot_count or 1


def key_slot_on_ring(key: bytes, slot_count: int = SLOT_COUNT) -> int:
    """The slot of a sticky key with consistent hashing: 1 to `slot_count` - 1."""
    return key_hash(key) % (slot_count - 1) + 1


def java_string_hash(text: str) -> int:
    """`String.hashCode` of Java, as a signed number: over UTF-16 units, modulo 2^32."""
    value = 0
    encoded = text.encode("utf-16-le", "surrogatepass")
    for unit in memoryview(encoded).cast("H"):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value > _SIGN_MASK else value


def partition_by_java_string_hash(key: str, partition_count: int) -> int:
    """Where the default routing of the Java client sends a key."""
    return (java_string_hash(key) & _SIGN_MASK) % partition_count


def partition_by_murmur3(key: str, partition_count: int) -> int:
    """Where clients with Murmur3 routing send a key."""
    return key_hash(key.encode()) % partition_count
