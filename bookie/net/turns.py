"""The turns of a bookie's port: requests of a chunk in, answers of a group out.

The adds of a chunk are handed to the journals when it has been decoded. The answers of a journal
group are sent when all of them are known, with one system call for each connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, final

if TYPE_CHECKING:
    from collections.abc import Callable


class Output(Protocol):
    """A connection that has something to send."""

    def flush(self) -> None:
        """Send what can be sent now. Never raises."""


def _nothing() -> None:
    """A bookie that has other turns, or none."""


@final
class PortTurns:
    """A `bookie.api.Turn`."""

    __slots__ = ("_outputs", "in_turn", "kick_storage")

    def __init__(self) -> None:
        self.in_turn = False
        self.kick_storage: Callable[[], None] = _nothing
        """Hands all added entries to the journals. Set by the owner of the bookie, which makes
        these the turns of the bookie as well."""
        self._outputs: list[Output] = []

    def send(self, output: Output) -> None:
        """Flush this connection at the end of the turn; now, if there is none."""
        if self.in_turn:
            self._outputs.append(output)
        else:
            output.flush()

    def begin_turn(self) -> None:
        """Work begins that ends with `end_turn`, without an await in between."""
        self.in_turn = True

    def end_turn(self) -> None:
        """Hand to storage, then send."""
        self.in_turn = False
        try:
            self.kick_storage()
        finally:
            outputs, self._outputs = self._outputs, []
            for output in outputs:
                output.flush()
