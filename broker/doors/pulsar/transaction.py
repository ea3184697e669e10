"""Transactions: refused with the text that clients compare."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from protocol import commands
from protocol.errors import ServerError

if TYPE_CHECKING:
    from broker.doors.pulsar.session import ClientSession


def handle_transaction(session: ClientSession, body: Any) -> None:  # noqa: ANN401 - any of seven commands
    """Refuse like a broker with transactionCoordinatorEnabled=false: with a plain ERROR."""
    session.send(
        commands.error(body.request_id, ServerError.NotAllowedError, "Transactions are not enabled")
    )
