"""The handler of SENDs, which is called for a frame without a look-up of a command."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from protocol.send_fields import Send
    from protocol.send_runs import SendRun


class SendHandler(ABC):
    """Takes the messages of all connections. A class and no Protocol, because compiled code
    calls the methods of a class directly."""

    @abstractmethod
    def handle(self, session: Any, send: Send) -> None:  # noqa: ANN401 - of any kind of producers
        """Hand a message to its producer's topic, or refuse it.

        Raises: ConnectionRefused: the connection ends with this reason.
        """

    @abstractmethod
    def handle_run(self, session: Any, run: SendRun) -> None:  # noqa: ANN401 - of any kind of producers
        """The same for several messages of one producer, whose checksums are verified.

        Raises: as `handle`.
        """

    @abstractmethod
    def admits(self, session: Any, send: Send) -> bool:  # noqa: ANN401 - of any kind of producers
        """Whether the limits of its topic let the message pass now. Asked before `handle`, on
        connections with a limited producer. False: it has been refused, or (`Session.admitted_by`)
        the session is notified when to ask again.
        """
