"""Services that the broker gives each of its topics. None of them knows the topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from broker.limits.delayed_budget import DelayedBudget
from broker.limits.dispatch_budget import BROKER
from broker.limits.dispatch_limit import DispatchLimit
from broker.limits.group_limits import GroupLimits
from broker.limits.producer_bytes import ProducerBytes
from broker.limits.publish_limit import PublishLimit
from broker.tenancy.policies.delivery_rates import NO_DISPATCH_RATE
from broker.tenancy.policies.rates import NO_PUBLISH_RATE
from broker.topics.topic.message_expiry import MessageExpiry

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import trio

    from broker.ground.config import BrokerConfig
    from broker.ground.turn import Turns
    from broker.limits.dispatch_budget import Published
    from broker.tenancy.policies.delivery_rates import DispatchRate
    from broker.tenancy.policies.rates import PublishRate
    from broker.topics.subscription.config import SubscriptionConfig
    from broker.topics.subscription.factory import SubscriptionKinds
    from broker.topics.subscription.limits import BrokerUnacked
    from broker.topics.topic.entry_index import EntryInterceptor
    from broker.topics.topic.parts import PartKind
    from broker.topics.topic.producer import ProducerSession
    from broker.topics.topic.topic_ledger import TopicLedgers
    from protocol.topic_name import TopicName
    from runtime.clock import Clock


@final
class TopicServices:
    """See the module docstring."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        clock: Clock,
        factory: TopicLedgers,
        subscription_kinds: SubscriptionKinds,
        part_kinds: tuple[PartKind[Any], ...],
        subscription_config: SubscriptionConfig,
        broker_unacked: BrokerUnacked,
        entry_interceptor: EntryInterceptor | None,
        turns: Turns,
        unload: Callable[[TopicName], Awaitable[None]],
    ) -> None:
        self.config = config
        """The policies in force now. An administrator may change them while the broker runs."""
        self.clock = clock
        self.factory = factory
        self.subscription_kinds = subscription_kinds
        self.part_kinds = part_kinds
        """A topic has a part of each kind that is wanted there."""
        self.internal_cursors = frozenset[str]().union(*[each.cursors for each in part_kinds])
        """Cursors that do not belong to subscriptions."""
        self.subscription_config = subscription_config
        self.broker_unacked = broker_unacked
        self.entry_interceptor = entry_interceptor
        self.turns = turns
        self.unload = unload
        """For a topic that cannot continue. It is loaded again on the next request."""
        self.producer_bytes: ProducerBytes[ProducerSession] = ProducerBytes(
            config.maxProducerMetadataSizeInMB * 1024 * 1024
        )
        """The bytes that the names and the metadata of all producers take."""
        self.delayed = DelayedBudget(
            config.delayedDeliveryMaxEntriesPerBroker, config.delayedDeliveryMaxEntriesPerTopic
        )
        """The messages that are not due, of all subscriptions."""
        self.message_expiry = MessageExpiry(config, clock)
        """The expiry of messages of the topics with a time to live."""
        self.running_in: trio.Nursery | None = None
        self.nursery_of: Callable[[], trio.Nursery] = lambda: self.nursery
        """One object for all topics."""
        self.resource_groups = GroupLimits(clock, self.nursery_of)
        self._broker_publish_rate = NO_PUBLISH_RATE
        self._broker_publish_limit: PublishLimit | None = None
        self._broker_dispatch_rate = NO_DISPATCH_RATE
        self._broker_dispatch_limit: DispatchLimit | None = None

    @property
    def nursery(self) -> trio.Nursery:
        """Runs the operations of topics and subscriptions."""
        assert self.running_in is not None, "the broker is not running"
        return self.running_in

    def publish_limit(self, rate: PublishRate) -> PublishLimit | None:
        """A new limit; None: the rate has none."""
        if not rate:
            return None
        return PublishLimit(
            rate.messages_per_second, rate.bytes_per_second, self.clock, self.nursery_of
        )

    def broker_publish_limit(self, rate: PublishRate) -> PublishLimit | None:
        """The limit that all topics share, of the rate in force now."""
        if rate != self._broker_publish_rate:
            self._broker_publish_rate = rate
            self._broker_publish_limit = self.publish_limit(rate)
        return self._broker_publish_limit

    def dispatch_limit(
        self, rate: DispatchRate, level: str, published: Published | None = None
    ) -> DispatchLimit | None:
        """A new limit; None: the rate has none."""
        if not rate:
            return None
        return DispatchLimit(rate, level, self.clock, self.nursery_of, published)

    def broker_dispatch_limit(self, rate: DispatchRate) -> DispatchLimit | None:
        """The limit that all subscriptions share, of the rate in force now."""
        if rate != self._broker_dispatch_rate:
            self._broker_dispatch_rate = rate
            self._broker_dispatch_limit = self.dispatch_limit(rate, BROKER)
        return self._broker_dispatch_limit
