"""A topic: its producers and its subscriptions. The part common to stored and unstored topics.

It is made of classes on top of each other, which cost neither memory nor calls: a broker has tens
of thousands of topics, most of them at rest. From below: what its producers see (`ProducerTopic`),
what every topic has (`TopicBase`), producers (`TopicProducers`), subscriptions
(`TopicSubscriptions`), and here its life: rest, policies, the end. Each uses only those below.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.topics.topic.topic_base import AT_REST, ATTENDED
from broker.topics.topic.topic_limits import TopicDispatchLimits
from broker.topics.topic.topic_subscriptions import TopicSubscriptions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from broker.tenancy.policies.effective import EffectivePolicies
    from broker.tenancy.policies.scopes import TopicPolicies
    from broker.topics.topic.services import TopicServices
    from protocol.topic_name import TopicName


class Topic(TopicSubscriptions):
    """One topic (or one partition of a partitioned topic) in this broker."""

    __slots__ = ("_dispatch_limits",)

    def __init__(self, services: TopicServices, name: TopicName, policies: TopicPolicies) -> None:
        super().__init__(services, name, policies)
        self._dispatch_limits = TopicDispatchLimits(services)

    def rest_is_due(self, now: float, after_seconds: float) -> bool:
        """Whether it has been without clients and operations for so long, and not put to rest
        since it was last used, or moved by expiry or an administrator. Asked again and again: it
        counts from the first time it sees no client."""
        if self.unattended_since == AT_REST:
            if not self.needs_rest:
                return False  # A client that comes touches it.
            self.unattended_since = ATTENDED
        if self.closing or len(self.operations) or self.access.producers or self.consumer_count():
            self.unattended_since = ATTENDED
            return False
        if self.unattended_since == ATTENDED:
            self.unattended_since = now
        since = max(self.unattended_since, self.active_at)
        return now - since >= after_seconds

    @property
    def needs_rest(self) -> bool:
        """Whether a part that `rest` gave up has been made again, by something that is no client
        and does not touch the topic."""
        return False

    async def rest(self) -> None:
        """Give up what the next use makes again. Whoever comes meanwhile finds everything.

        Raises: OwnershipLost, MetadataUnavailable: a cursor could not be stored.
        """
        self.unattended_since = AT_REST
        self.operations.rest()
        self.rest_subscriptions()
        self.rest_producers()

    def is_idle(self) -> bool:
        """Whether idle-topic collection may remove it: no client publishes, nothing is kept."""
        if self.closing or self.access.producers or self.access.waiting:
            return False
        if not self.policies.effective.idle.when_caught_up:
            return not self.subscriptions
        return all(
            not each.consumers and not each.backlog_entries for each in self.subscriptions.values()
        )

    def update_rates(self, seconds: float, now: float) -> Iterator[None]:
        """Close a rate window of the topic, its producers and its subscriptions. A generator of
        steps, so that very many subscriptions do not hold up other work."""
        for producer in list(self.access.producers.values()):
            producer.update_rates(seconds)
            yield
        self.published.end_window(seconds)
        for subscription in list(self.subscriptions.values()):
            subscription.update_rates(now)
            yield

    async def close(self, reason: str) -> None:
        """Unload: connected clients are disconnected and return, here or to another broker."""
        self.closing = reason
        self.policies.unwatch()
        try:
            await self._dismiss_everybody()
        finally:
            await self.close_storage()
            self.subscriptions.clear()

    async def _dismiss_everybody(self) -> None:
        try:
            await self.finish_publishes()
        finally:
            self.disconnect_producers()
            await self.close_subscriptions()

    async def delete(self) -> None:
        """Disconnect all clients as `close` does, then delete the stored data."""
        self.closing = self.closing or "it is being deleted"
        self.policies.unwatch()
        await self._dismiss_everybody()
        self.subscriptions.clear()
        await self.delete_storage()

    async def apply_policies(self) -> None:
        """Apply the policies in force now. Cheap when nothing has changed."""
        self.apply_limits(self.policies.effective)

    def apply_limits(self, policies: EffectivePolicies) -> None:
        """Apply those that need no storage."""
        self.publish_limits.apply(policies, self.access.producers.values())
        shared = self._dispatch_limits.of(
            policies.delivery, policies.resource_group, self.published
        )
        if self._subscription_limits.use(policies, shared):
            for subscription in list(self.subscriptions.values()):
                subscription.limits_changed()
