"""A request for a subscription, from a client, an administrator or a stored cursor."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

from protocol.errors import BrokerError, ServerError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from protocol.position import Position


@final
class InvalidProperty(BrokerError):
    """A property of the request has a value that it cannot have. A MetadataError to clients, as
    errors of stored metadata are; only this one is a mistake of whoever asks."""

    def __init__(self, message: str) -> None:
        super().__init__(ServerError.MetadataError, message)


@final
@dataclass(slots=True)
class SubscriptionRequest:
    """The parameters of CommandSubscribe (or of the admin API, or of a cursor found at topic load).
    It is never changed. A frozen class would take four times as long to create."""

    name: str
    durable: bool = True
    earliest: bool = False
    """CommandSubscribe.initialPosition is Earliest."""
    start_message_id: tuple[int, int, int] | None = None
    """(ledger id, entry id, batch index or -1), signed. Decides the start if not durable."""
    start_rollback_seconds: int = 0
    start_after: Position | None = None
    """The start as a position: the last position before it (`Subscription.locate`)."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Subscription properties: kept with the cursor."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """The first consumer's metadata, which may select the kind."""
    read_compacted: bool = False
