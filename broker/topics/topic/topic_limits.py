"""The limits on one topic.

Its producers have its publish rate, the budget of its resource group, the rate of the whole broker,
the size of a message, how late it may be due, and the quota of the backlog if that is near. Its
subscriptions share its rate of dispatch, the budget of its resource group, and the broker's rate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from broker.limits.dispatch_budget import TOPIC
from broker.tenancy.policies.delivery_rates import NO_DISPATCH_RATE
from broker.tenancy.policies.rates import NO_PUBLISH_RATE
from broker.topics.topic.producer import NO_LIMITS, ProducerLimits

if TYPE_CHECKING:
    from collections.abc import Iterable

    from broker.limits.backlog_rules import BacklogGate
    from broker.limits.dispatch_budget import Published
    from broker.limits.dispatch_limit import DispatchLimit
    from broker.limits.publish_limit import PublishLimit
    from broker.tenancy.policies.delivery_rates import DeliveryRates
    from broker.tenancy.policies.effective import EffectivePolicies
    from broker.topics.topic.producer import Producer
    from broker.topics.topic.services import TopicServices


@final
class TopicPublishLimits:
    """The limits on producers. Invariant: every open producer of the topic uses `in_force`."""

    __slots__ = ("_backlog", "_of_topic", "_rate", "_services", "in_force")

    def __init__(self, services: TopicServices) -> None:
        self._services = services
        self._rate = NO_PUBLISH_RATE
        self._of_topic: PublishLimit | None = None
        self._backlog: BacklogGate | None = None
        self.in_force = NO_LIMITS

    def apply(self, policies: EffectivePolicies, producers: Iterable[Producer]) -> None:
        """Take up the rates of these policies. Cheap when they are the same as before."""
        rates = policies.rates
        if rates.publish != self._rate:
            self._rate = rates.publish
            self._of_topic = self._services.publish_limit(self._rate)
        of_broker = self._services.broker_publish_limit(rates.broker_publish)
        of_group = self._services.resource_groups.publish(policies.resource_group)
        shared = (self._of_topic, of_group, of_broker)
        limits = tuple(each for each in shared if each is not None)
        size_max = policies.counts.message_size_bytes_max
        delay_max = policies.delays.refused_above_ms
        self._use(ProducerLimits(limits, size_max, delay_max, self._backlog), producers)

    def use_backlog_gate(self, gate: BacklogGate | None, producers: Iterable[Producer]) -> None:
        """Messages have to pass this gate from now on; None: there is none."""
        self._backlog = gate
        now = self.in_force
        limits = ProducerLimits(now.rates, now.message_size_bytes_max, now.delay_ms_max, gate)
        self._use(limits, producers)

    def _use(self, limits: ProducerLimits, producers: Iterable[Producer]) -> None:
        if limits.same_as(self.in_force):
            return
        self.in_force = NO_LIMITS if limits.same_as(NO_LIMITS) else limits
        for producer in producers:
            if producer.open:
                producer.use_limits(self.in_force)

    @property
    def times_held(self) -> int:
        """How often a producer had to wait for the topic's own rate."""
        return 0 if self._of_topic is None else self._of_topic.times_held


@final
class TopicDispatchLimits:
    """The rates of dispatch that the subscriptions share."""

    __slots__ = ("_of_topic", "_rate", "_services")

    def __init__(self, services: TopicServices) -> None:
        self._services = services
        self._rate = NO_DISPATCH_RATE
        self._of_topic: DispatchLimit | None = None

    def of(
        self, rates: DeliveryRates, resource_group: str, published: Published
    ) -> tuple[DispatchLimit, ...]:
        """The limits of these rates; the same objects as long as the rates are the same."""
        services = self._services
        if rates.topic != self._rate:
            self._rate = rates.topic
            self._of_topic = services.dispatch_limit(rates.topic, TOPIC, published)
        of_broker = services.broker_dispatch_limit(rates.broker)
        of_group = services.resource_groups.dispatch(resource_group)
        return tuple(each for each in (of_broker, of_group, self._of_topic) if each is not None)
