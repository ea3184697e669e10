"""Where subscriptions are made: by kind, so that a topic need not know the kinds.

The kind is decided from what the first subscriber says and from the properties kept with an
existing cursor. `SubscriptionKinds` holds one opener per kind, asked in order; the first that
claims the request opens it. The stock kinds claim everything and stand last.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, final

if TYPE_CHECKING:
    from collections.abc import Mapping

    import trio

    from broker.operations import Operations
    from broker.seams import Clock
    from broker.subscription.api import Subscription, SubscriptionOwner
    from broker.subscription.config import SubscriptionConfig
    from broker.subscription.limits import BrokerUnacked
    from broker.subscription.ports import LedgerPort
    from protocol.position import Position


@final
@dataclass(slots=True)
class SubscriptionRequest:
    """What CommandSubscribe (or the admin API, or a cursor found at topic load) asks for. Nobody
    changes it; frozen it would take four times as long to make."""

    name: str
    durable: bool = True
    earliest: bool = False
    """CommandSubscribe.initialPosition is Earliest."""
    start_message_id: tuple[int, int, int] | None = None
    """(ledger id, entry id, batch index or -1), signed. Decides the start if not durable."""
    start_rollback_seconds: int = 0
    start_after: Position | None = None
    """Where that leads: the last position before it (`Subscription.locate`)."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Subscription properties: kept with the cursor."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """The first consumer's metadata: may select the kind."""
    read_compacted: bool = False


@final
@dataclass(frozen=True, slots=True)
class TopicContext:
    """What a subscription is given of its topic."""

    topic_name: str
    partition: int
    """Index of the partition, -1 when the topic is not partitioned."""
    ledger: LedgerPort | None
    """None for a non-persistent topic."""
    clock: Clock
    config: SubscriptionConfig
    nursery: trio.Nursery
    owner: SubscriptionOwner
    operations: Operations
    """What moves a subscription is begun here, by (its name,), so that it takes effect in order."""
    broker_unacked: BrokerUnacked | None = None


class SubscriptionKind(Protocol):
    """An opener of one kind of subscription."""

    def claims(self, request: SubscriptionRequest, context: TopicContext) -> bool:
        """Whether the request, or the cursor kept under its name, is of this kind."""

    def check(self, subscription: Subscription, request: SubscriptionRequest) -> None:
        """Raises: BrokerError: the request cannot be met by the open subscription of its name,
        because it asks for this kind, or for another one."""

    async def open(self, request: SubscriptionRequest, context: TopicContext) -> Subscription:
        """Open its cursor (or find it) and make the subscription."""


@final
class SubscriptionKinds:
    """All kinds of this broker."""

    __slots__ = ("_kinds",)

    def __init__(self, *kinds: SubscriptionKind) -> None:
        """The first one that claims a request opens it; the last one must claim everything."""
        self._kinds = kinds

    def check(self, subscription: Subscription, request: SubscriptionRequest) -> None:
        """Raises: BrokerError: the request cannot be met by the open subscription of its name."""
        for kind in self._kinds:
            kind.check(subscription, request)

    async def open(self, request: SubscriptionRequest, context: TopicContext) -> Subscription:
        """Make the subscription a request names, opening or creating its cursor.

        The caller adds it to the topic's map, and sees to it that one name is opened once at a
        time.
        """
        for kind in self._kinds:
            if kind.claims(request, context):
                return await kind.open(request, context)
        raise AssertionError("the last kind claims every request")
