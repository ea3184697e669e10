"""How much OpenSSL is given, and asked for, in one turn of the event loop.

A record may hold one byte, or none: a peer that nobody knows may send records in which there is
nothing to read, and each costs the same.
"""

from __future__ import annotations

from typing import Final

FED_BYTES: Final = 32 * 1024
"""Given to OpenSSL at a time."""
FED_BYTES_MIN: Final = 4 * 1024
"""The same if the last ones brought less than `GAIN_MIN` of their size: OpenSSL handles a row of
key updates in one call, which takes 15 us for each. Such a turn also ends after them."""
GAIN_MIN: Final = 0.25
READS_PER_TURN: Final = 256
"""Calls of OpenSSL in a turn. Each gives one record, which may be of one byte."""
