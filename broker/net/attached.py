"""The interfaces of a session to the objects opened on it, and to the handlers of its commands.

`net` does not know producers and consumers. It calls them through these interfaces.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from broker.net.send_handler import SendHandler
    from protocol.plain_acks import PlainAck


class AttachedProducer(Protocol):
    """The entry of a connection under a producer id: the producer or its placeholder."""

    def remove(self) -> None:
        """The connection has ended."""


class AttachedConsumer(Protocol):
    """The entry of a connection under a consumer id: the consumer or its placeholder."""

    @property
    def consumer(self) -> object:
        """The consumer; None while it is being created."""

    @property
    def writable_group(self) -> object:
        """Consumers of a connection with the same key share one call of `on_writable`."""

    def on_writable(self) -> None:
        """The connection has room again."""

    def remove(self) -> None:
        """The connection has ended."""


P = TypeVar("P", bound=AttachedProducer)
C = TypeVar("C", bound=AttachedConsumer)
PS = TypeVar("PS")
"""What topics know of the producers of a connection."""
CS = TypeVar("CS")
"""What subscriptions know of the consumers of a connection."""


class Commands(Protocol):
    """The handlers of commands."""

    @property
    def handlers(self) -> Mapping[int, Callable[[Any, Any], Coroutine[Any, Any, None] | None]]:
        """By type of command. Called with the session and the command's own message."""

    @property
    def on_frame(self) -> Mapping[type, Callable[[Any, Any], bool | None]]:
        """`broker.net.frame_handlers.ON_FRAME`, which knows the session, with the handlers of
        SENDs. Called with the session and the frame. True: the turn ends after it."""

    @property
    def send_handler(self) -> SendHandler:
        """Whose `handle` and `handle_run` are in `on_frame`."""

    @property
    def handle_plain_ack(self) -> Callable[[Any, PlainAck], None]:
        """For an ACK that came without a message of its own."""
