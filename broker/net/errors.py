"""What handlers raise for the session alone: the end of a connection, or a pause of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

if TYPE_CHECKING:
    from collections.abc import Coroutine


@final
class ConnectionRefused(Exception):
    """The peer broke the protocol so that its connection cannot continue. The text says how.

    The session logs it, tells the peer with an ERROR command and closes this connection only.
    """


@final
class Held(Exception):
    """The command cannot be handled before something was read.

    The session awaits `until`, which says no by raising, and then handles the command again.
    Meanwhile it handles no other one, so that commands take effect in the order of their arrival.
    """

    def __init__(self, until: Coroutine[Any, Any, object]) -> None:
        super().__init__("the command is held")
        self.until = until
