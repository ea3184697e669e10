"""A request for a subscription, from a client, an administrator or a stored cursor."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from protocol.errors import BrokerError, ServerError
from protocol.left_out import NO_PROPERTIES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from protocol.position import Position


@final
class InvalidProperty(BrokerError):
    """A property of the request has a value that it cannot have. A MetadataError to clients, as
    errors of stored metadata are; only this one is a mistake of the client."""

    def __init__(self, message: str) -> None:
        super().__init__(ServerError.MetadataError, message)


@final
class SubscriptionRequest:
    """The parameters of CommandSubscribe (or of the admin API, or of a cursor found at topic load).
    It is never changed."""

    __slots__ = (
        "durable",
        "earliest",
        "metadata",
        "name",
        "properties",
        "read_compacted",
        "replicated",
        "start_after",
        "start_message_id",
        "start_rollback_seconds",
    )

    def __init__(
        self,
        name: str,
        durable: bool = True,
        earliest: bool = False,
        start_message_id: tuple[int, int, int] | None = None,
        start_rollback_seconds: int = 0,
        start_after: Position | None = None,
        properties: Mapping[str, str] = NO_PROPERTIES,
        metadata: Mapping[str, str] = NO_PROPERTIES,
        read_compacted: bool = False,
        replicated: bool = False,
    ) -> None:
        self.name = name
        self.durable = durable
        self.earliest = earliest
        """CommandSubscribe.initialPosition is Earliest."""
        self.start_message_id = start_message_id
        """(ledger id, entry id, batch index or -1), signed. Decides the start if not durable."""
        self.start_rollback_seconds = start_rollback_seconds
        self.start_after = start_after
        """The start as a position: the last position before it (`Subscription.locate`)."""
        self.properties = properties
        """Subscription properties: kept with the cursor."""
        self.metadata = metadata
        """The first consumer's metadata, which may select the kind."""
        self.read_compacted = read_compacted
        self.replicated = replicated
        """Other clusters are to know its position. Vela keeps the wish with the cursor, for a
        cluster that replicates."""

    def located(self, start_after: Position) -> SubscriptionRequest:
        """The same with its start as a position, instead of a time before now."""
        return SubscriptionRequest(
            self.name,
            self.durable,
            self.earliest,
            self.start_message_id,
            0,
            start_after,
            self.properties,
            self.metadata,
            self.read_compacted,
            self.replicated,
        )
