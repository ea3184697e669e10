"""Where subscriptions are made: by kind, so that a topic need not know the kinds.

The kind is decided from what the first subscriber says and from the properties kept with an
existing cursor. `KINDS` holds one opener per kind, asked in order; the first that claims the
request opens it. The stock kinds claim everything and stand last.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, final

if TYPE_CHECKING:
    from collections.abc import Mapping

    import trio

    from broker.seams import Clock
    from broker.subscription.api import Subscription, SubscriptionOwner
    from broker.subscription.config import SubscriptionConfig
    from broker.subscription.limits import BrokerUnacked
    from broker.subscription.ports import LedgerPort


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
    broker_unacked: BrokerUnacked | None = None


class SubscriptionKind(Protocol):
    """An opener of one kind of subscription."""

    def claims(self, request: SubscriptionRequest, context: TopicContext) -> bool:
        """Whether the request, or the cursor kept under its name, is of this kind."""

    async def open(self, request: SubscriptionRequest, context: TopicContext) -> Subscription:
        """Open its cursor (or find it) and make the subscription."""


async def open_subscription(request: SubscriptionRequest, context: TopicContext) -> Subscription:
    """Make the subscription a request names, opening or creating its cursor.

    The caller adds it to the topic's map, and sees to it that one name is opened once at a time.
    """
    for kind in kinds():
        if kind.claims(request, context):
            return await kind.open(request, context)
    raise AssertionError("the stock kind claims every request")


def kinds() -> tuple[SubscriptionKind, ...]:
    """All kinds, special ones first."""
    from broker.broadcast.selection import BROADCAST
    from broker.subscription.stock import STOCK

    return (BROADCAST, STOCK)
