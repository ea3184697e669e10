"""Memory that the entry windows of all broadcasts of a broker share.

Anybody who may subscribe can make broadcasts, so their windows are bounded together. A window that
adds entries makes room in itself first, down to an equal share of the whole. If the whole is still
exceeded, the windows that have added nothing for the longest time give up their oldest entries:
they grew when there were fewer windows, and their entries are needed least.

Every window may keep its newest entry, so each read has an effect, however many windows there are.
"""

from __future__ import annotations

from typing import Protocol, final


class Holder(Protocol):
    """A window with entries."""

    @property
    def count(self) -> int:
        """Its entries."""

    def drop_oldest(self) -> None:
        """Drop one. It reports its size to `released`."""


@final
class WindowMemory:
    """See the module docstring."""

    __slots__ = ("_bytes_max", "_holders", "used_bytes")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._holders: dict[Holder, None] = {}
        """Windows with entries; the one that has added nothing for the longest time is first."""
        self.used_bytes = 0

    def share_bytes(self, holder: Holder) -> int:
        """The bytes that this window may use, given the others with entries."""
        others = len(self._holders) - (holder in self._holders)
        return self._bytes_max // (others + 1)

    def taken(self, holder: Holder, size_bytes: int) -> None:
        """A window has added an entry. Others may lose theirs."""
        self.used_bytes += size_bytes
        self._holders.pop(holder, None)
        self._holders[holder] = None
        if self.used_bytes > self._bytes_max:
            self._reclaim(holder)

    def released(self, holder: Holder, size_bytes: int) -> None:
        """A window has dropped entries."""
        self.used_bytes -= size_bytes
        if not holder.count:
            self._holders.pop(holder, None)

    def _reclaim(self, adding: Holder) -> None:
        for holder in list(self._holders):
            if holder is adding:
                return
            while holder.count > 1:
                holder.drop_oldest()
                if self.used_bytes <= self._bytes_max:
                    return
