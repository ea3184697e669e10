"""Counts the messages of a topic whose backlog is near its quota. Pure.

Far from the quota there is no gate, and a message costs nothing. At the gate each one takes its
bytes from the room that is left. The message that uses up the room still passes, as in Pulsar, so
the quota is exceeded by one message at most.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Callable


@final
class BacklogGate:
    """See the module docstring."""

    __slots__ = ("_find_room", "room_bytes")

    def __init__(self, find_room: Callable[[], int]) -> None:
        """`find_room` returns how many bytes there is room for now. It is called when those found
        before are used up."""
        self._find_room = find_room
        self.room_bytes = 0

    def takes(self, size_bytes: int) -> bool:
        """Whether a message passes. One that does not is dropped: its producer is sent away, and
        its client sends it again."""
        if self.room_bytes <= 0:
            self.room_bytes = self._find_room()
            if self.room_bytes <= 0:
                return False
        self.room_bytes -= size_bytes
        return True
