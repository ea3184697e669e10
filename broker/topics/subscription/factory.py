"""Opens subscriptions by kind, so that a topic need not know the kinds.

The kind follows from the request of the first subscriber and from the properties of an existing
cursor. `SubscriptionKinds` holds one opener per kind and asks them in order. The first that claims
the request opens it. The stock kinds claim everything and come last.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, final

from broker.topics.subscription.chunks import ChunksSeen

if TYPE_CHECKING:
    import trio

    from broker.ground.operations import Operations
    from broker.ground.turn import Turns
    from broker.limits.delayed_budget import DelayedBudget
    from broker.topics.subscription.api import Subscription, SubscriptionOwner
    from broker.topics.subscription.config import SubscriptionConfig
    from broker.topics.subscription.limits import BrokerUnacked, SubscriptionLimits
    from broker.topics.subscription.ports import LedgerPort
    from broker.topics.subscription.request import SubscriptionRequest
    from runtime.clock import Clock


@final
@dataclass(frozen=True, slots=True)
class TopicContext:
    """The parts of its topic that a subscription uses."""

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
    """Runs operations that move a subscription, by its name, in the order of the requests."""
    limits: SubscriptionLimits
    """The limits in force now."""
    delayed: DelayedBudget
    """The delayed messages of all subscriptions of the broker."""
    turns: Turns
    """The turns of the broker, for work in steps."""
    broker_unacked: BrokerUnacked | None = None
    chunks: ChunksSeen = field(default_factory=ChunksSeen)
    """Those of all subscriptions of the topic."""


class SubscriptionKind(Protocol):
    """An opener of one kind of subscription."""

    def claims(self, request: SubscriptionRequest, context: TopicContext) -> bool:
        """Whether the request, or the cursor stored under its name, is of this kind."""

    def check(self, subscription: Subscription, request: SubscriptionRequest) -> None:
        """Raises: BrokerError: the open subscription of this name cannot serve the request, because
        only one of them is of this kind."""

    async def open(self, request: SubscriptionRequest, context: TopicContext) -> Subscription:
        """Open its cursor (or find it) and make the subscription."""


@final
class SubscriptionKinds:
    """All kinds of this broker."""

    __slots__ = ("_kinds",)

    def __init__(self, *kinds: SubscriptionKind) -> None:
        """The first kind that claims a request opens it. The last one must claim everything."""
        self._kinds = kinds

    def check(self, subscription: Subscription, request: SubscriptionRequest) -> None:
        """Raises: BrokerError: the open subscription of this name cannot serve the request."""
        for kind in self._kinds:
            kind.check(subscription, request)

    async def open(self, request: SubscriptionRequest, context: TopicContext) -> Subscription:
        """Make the subscription that a request names, opening or creating its cursor.

        The caller adds it to the topic's map and must not open the same name twice at the same
        time.
        """
        for kind in self._kinds:
            if kind.claims(request, context):
                return await kind.open(request, context)
        raise AssertionError("the last kind claims every request")
