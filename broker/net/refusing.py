"""How a failed request is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from protocol import commands
from protocol.connection import COMMANDS
from protocol.errors import BrokerError, ServerError

if TYPE_CHECKING:
    from protocol import pulsar_api_pb2 as pb

log = structlog.get_logger()


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
