"""Deletes subscriptions that no consumer has used for long.

A subscription of a stored topic expires when its last consumer left, or when its topic was loaded,
longer ago than the policy of the namespace says (PersistentTopic.checkInactiveSubscriptions of
Pulsar 4.0). The topics are looked at in slices. A failure for one subscription is logged with its
name, and it is tried again in the next round.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import structlog
import trio

from broker.ground.slices import STEPS_PER_SLICE
from broker.topics.topic.errors import told

if TYPE_CHECKING:
    from broker.topics.subscription.api import Subscription
    from broker.topics.topic.housekeeping import Loaded
    from broker.topics.topic.services import TopicServices
    from broker.topics.topic.topic import Topic

log = structlog.get_logger()


@final
class SubscriptionExpiry:
    """The timer of all topics."""

    def __init__(self, loaded: Loaded, services: TopicServices) -> None:
        self._loaded = loaded
        self._services = services

    async def run(self) -> None:
        """Check until cancelled."""
        while True:
            minutes = self._services.config.subscriptionExpiryCheckIntervalInMinutes
            await trio.sleep(minutes * 60)
            await self.check()

    async def check(self) -> None:
        """Look at all subscriptions once."""
        steps = 0
        for topic in list(self._loaded.topics.values()):
            minutes = topic.policies.effective.subscription_expiration_minutes
            expires = minutes > 0 and topic.persistent
            for subscription in list(topic.subscriptions.values()) if expires else ():
                if not topic.closing and self._has_expired(subscription, minutes):
                    await self._delete(topic, subscription)
                steps += 1
                if steps % STEPS_PER_SLICE == 0:
                    await trio.lowlevel.checkpoint()
            steps += 1
            if steps % STEPS_PER_SLICE == 0:
                await trio.lowlevel.checkpoint()

    def _has_expired(self, subscription: Subscription, minutes: int) -> bool:
        inactive_s = self._services.clock.now() - subscription.active_at
        return not subscription.consumers and inactive_s > minutes * 60

    async def _delete(self, topic: Topic, subscription: Subscription) -> None:
        names = {"topic": topic.name.full, "subscription": subscription.name}
        try:
            await topic.delete_subscription(subscription.name)
        except Exception as error:
            log.warning("cannot delete an expired subscription", **names, **told(error))
        else:
            log.info("deleted an expired subscription", **names)
