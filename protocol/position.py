"""Positions: the address of one entry of a topic.

A position is a plain tuple `(ledger_id, entry_id)`: the hot path makes and compares millions of
them, and tuples compare in C. Ledger ids of one topic only ever increase and entry ids of a
ledger have no holes, so tuple order is publish order.
"""

from __future__ import annotations

from typing import Final

Position = tuple[int, int]

ID_MAX: Final = 2**63 - 1

EARLIEST: Final[Position] = (-1, -1)
"""Clients send it as two times 2^64-1: start with the first entry that is still held."""

LATEST: Final[Position] = (ID_MAX, ID_MAX)
"""Start with what is published from now on."""


def position_text(position: Position) -> str:
    """The form `ledger:entry` that Pulsar's statistics and tools print."""
    return f"{position[0]}:{position[1]}"


def signed_id(value: int) -> int:
    """A ledger or entry id of the wire (uint64) as the signed number it stands for."""
    return value - 2**64 if value > ID_MAX else value


def unsigned_id(value: int) -> int:
    """A signed ledger or entry id as the uint64 of the wire."""
    return value + 2**64 if value < 0 else value
