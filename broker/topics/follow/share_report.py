"""Reports the slowest position of a share to the owner of the source.

Pure. A share is the consumers of one subscription that a follower serves. At the owner it is one
consumer of the broadcast, with one virtual cursor. The owner keeps entries from there on.

One rule keeps every consumer at or before its last acknowledgement: a position is reported only
after all consumers of the share have acknowledged it. Positions only grow, except when a consumer
moves back (a seek, or a new name with an earlier start). Before such a move takes effect the owner
has to be moved back. Until that is decided nothing is reported, because an acknowledgement that
overtook the move would undo it.

The follower need not store its reports. If it crashes, its successor raises the main cursor, and
with it every stored position before it, to where the owner keeps the share: every consumer had
acknowledged that much.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from protocol.position import Position


@final
class ShareReport:
    """See the module docstring. Positions are mark-delete positions."""

    __slots__ = ("_is_attached", "_moves", "told")

    def __init__(self) -> None:
        self.told: Position | None = None
        """Where the owner keeps the share, as far as is known."""
        self._is_attached = False
        self._moves = 0

    def attached(self, position: Position) -> None:
        """The owner has the share as a consumer, at this position."""
        self.told = position
        self._is_attached = True

    def detached(self) -> None:
        """It is not connected with the owner any more, and the last report may be lost."""
        self._is_attached = False

    @property
    def is_attached(self) -> bool:
        """Whether reports reach the owner."""
        return self._is_attached

    @property
    def is_moving(self) -> bool:
        """Whether a move back is being decided."""
        return self._moves > 0

    def begin_move(self, position: Position) -> bool:
        """The share will move back to this position. Returns whether the owner must be moved
        first."""
        self._moves += 1
        return not self._is_attached or self.told is None or position < self.told

    def end_move(self) -> None:
        """It has, or it was refused and nothing has changed."""
        self._moves -= 1

    def next(self, slowest: Position) -> Position | None:
        """The position to report to the owner now, if it is new; `slowest`: that of the share. It
        counts as reported."""
        if not self._is_attached or self._moves or self.told is None or slowest <= self.told:
            return None
        self.told = slowest
        return slowest
