"""Exceptions by which handlers end or pause a connection, and the refusal of a request that
failed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import structlog

from protocol import commands
from protocol.connection import COMMANDS
from protocol.errors import BrokerError, ServerError

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from protocol import pulsar_api_pb2 as pb

log = structlog.get_logger()


@final
class ConnectionRefused(Exception):
    """The peer broke the protocol so that its connection cannot continue. The text says how.

    The session logs it, sends the peer an ERROR command and closes this connection only.
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


def refusal_of(command: pb.BaseCommand, error: Exception) -> tuple[bytes | None, str]:
    """The answer that tells the client why its command failed (None: such a command has no answer),
    and the reason. The only place where a failure becomes an answer; one that is a fault of the
    broker's is logged."""
    if isinstance(error, BrokerError):
        server_error, reason = error.server_error, str(error)
    else:
        name = COMMANDS[command.type].name
        log.error("request failed", command=name, exc_info=error)
        server_error = ServerError.UnknownError
        reason = f"the broker failed to handle {name}: {error!r}"
    return commands.refusal(command, server_error, reason), reason
