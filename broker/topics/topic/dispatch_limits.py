"""The rates of dispatch that the subscriptions of one topic share: its own, the budget of its
resource group, and the broker's."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from broker.limits.dispatch_budget import TOPIC
from broker.tenancy.policies.delivery_rates import NO_DISPATCH_RATE

if TYPE_CHECKING:
    from broker.limits.dispatch_budget import Published
    from broker.limits.dispatch_limit import DispatchLimit
    from broker.tenancy.policies.delivery_rates import DeliveryRates
    from broker.topics.topic.services import TopicServices


@final
class TopicDispatchLimits:
    """See the module docstring."""

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
