"""The door of Pulsar's binary protocol: what the listener is given."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from broker.net.session import AnySession, Session
from protocol import commands
from protocol.errors import ServerError

if TYPE_CHECKING:
    from broker.doors.pulsar.table import BrokerCommands
    from broker.limits.connections import Connections
    from runtime.transport import Transport


@final
class PulsarDoor:
    """See `broker.net.listener.Door`."""

    protocol = "binary"

    def __init__(self, commands: BrokerCommands) -> None:
        self._commands = commands

    def connection(self, connections: Connections, transport: Transport) -> AnySession:
        """See Door."""
        return Session(connections, self._commands, transport)

    def refusal(self, reason: str) -> bytes:
        """See Door."""
        return commands.error(commands.NO_REQUEST, ServerError.NotAllowedError, reason)
