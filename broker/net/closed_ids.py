"""The producers of one connection that the broker has closed.

The client sends messages until it notices. They are dropped; it sends them again through a new
producer. Messages for any other unknown id end the connection.
"""

from __future__ import annotations

from typing import Final, final

REMEMBERED_MAX: Final = 10_000


@final
class ClosedIds:
    """The ids closed last, `REMEMBERED_MAX` at most: a connection may open producers for ever."""

    __slots__ = ("_ids",)

    def __init__(self) -> None:
        self._ids: dict[int, None] = {}

    def __contains__(self, producer_id: int) -> bool:
        return producer_id in self._ids

    def add(self, producer_id: int) -> None:
        """The broker closes it now."""
        self._ids.pop(producer_id, None)
        self._ids[producer_id] = None
        if len(self._ids) > REMEMBERED_MAX:
            del self._ids[next(iter(self._ids))]

    def discard(self, producer_id: int) -> None:
        """The client has opened it again."""
        self._ids.pop(producer_id, None)
