"""Producers that wait for exclusive access to a topic. `ProducerAccess` decides who is next."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import trio

if TYPE_CHECKING:
    from broker.topics.topic.producer import Producer


@final
class Turn:
    """The wait of one producer."""

    __slots__ = ("_decided", "_error")

    def __init__(self) -> None:
        self._decided = trio.Event()
        self._error: Exception | None = None

    async def wait(self) -> None:
        """Until it has access. Raises: the error of a refusal."""
        await self._decided.wait()
        if self._error is not None:
            raise self._error

    def end(self, error: Exception | None) -> None:
        """`error`: why the producer gets no access; None: it has it."""
        self._error = error
        self._decided.set()


@final
class ProducerTurns:
    """The turns of all producers of a topic that wait."""

    __slots__ = ("_turns",)

    def __init__(self) -> None:
        self._turns: dict[Producer, Turn] = {}

    def begin(self, producer: Producer) -> None:
        """It waits from now on."""
        self._turns[producer] = Turn()

    def of(self, producer: Producer) -> Turn:
        """The turn of a producer that waits."""
        return self._turns[producer]

    def waiting(self) -> list[Producer]:
        """The producers that wait, in the order in which they came."""
        return list(self._turns)

    def grant(self, producer: Producer) -> None:
        """A producer that waits has access."""
        self._turns.pop(producer).end(None)

    def refuse(self, producer: Producer, error: Exception) -> None:
        """It gets no access. Without effect if it does not wait."""
        turn = self._turns.pop(producer, None)
        if turn is not None:
            turn.end(error)
