"""The stock kinds: persistent subscriptions over a cursor, and those of non-persistent topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from broker.topics.subscription.non_persistent import NonPersistentSubscription
from broker.topics.subscription.start import initial_mark_delete
from broker.topics.subscription.subscription import PersistentSubscription

if TYPE_CHECKING:
    from broker.topics.subscription.api import Subscription
    from broker.topics.subscription.factory import TopicContext
    from broker.topics.subscription.request import SubscriptionRequest


@final
class StockKind:
    """The subscription types of Pulsar."""

    def claims(self, request: SubscriptionRequest, context: TopicContext) -> bool:
        """Requests that no other kind claims."""
        return True

    def check(self, subscription: Subscription, request: SubscriptionRequest) -> None:
        """Any stock consumer may request to attach."""

    async def open(self, request: SubscriptionRequest, context: TopicContext) -> Subscription:
        """Find the cursor, or create it at the requested start."""
        ledger = context.ledger
        if ledger is None:
            return NonPersistentSubscription(request.name, context)
        start = request.start_message_id
        initial = initial_mark_delete(
            ledger,
            earliest=request.earliest,
            start=None if start is None else (start[0], start[1]),
            durable=request.durable,
        )
        if request.start_rollback_seconds > 0 and request.name not in ledger.cursors:
            since_ms = context.clock.wall_ms() - 1000 * request.start_rollback_seconds
            initial = await ledger.find_by_publish_time(since_ms)
        cursor = await ledger.open_cursor(
            request.name, initial, dict(request.properties), durable=request.durable
        )
        if request.replicated and request.durable:
            cursor.set_replicated(is_wanted=True)
        return PersistentSubscription(context, cursor, durable=request.durable)


STOCK: Final = StockKind()
