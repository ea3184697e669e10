"""Transactions: not served, and said so with the text that clients compare."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from protocol import commands
from protocol.errors import ServerError

if TYPE_CHECKING:
    from broker.net.session import Session


def handle_transaction(session: Session, body: Any) -> None:  # noqa: ANN401 - any of seven commands
    """Refuse, in the way of a broker with transactionCoordinatorEnabled=false: a plain ERROR."""
    session.send(
        commands.error(body.request_id, ServerError.NotAllowedError, "Transactions are not enabled")
    )
