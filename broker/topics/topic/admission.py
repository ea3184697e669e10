"""The clients that the limits of a topic admit. Statuses and texts of Pulsar 4.0. Pure.

The number and the types of subscriptions of a non-persistent topic are not limited, as in Pulsar.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.errors import ConsumerBusy, NotAllowed, ProducerBusy
from protocol.topic_name import is_entity_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from broker.ground.config import BrokerConfig
    from broker.tenancy.policies.effective import EffectivePolicies


def host_of(remote_address: str) -> str:
    """The host in `host:port`."""
    return remote_address.rpartition(":")[0]


def check_producers(
    topic_name: str,
    policies: EffectivePolicies,
    config: BrokerConfig,
    address: str,
    count: int,
    others: Callable[[], Iterable[str]],
) -> None:
    """Whether one more producer may come from this address. `others` has the addresses of the
    `count` present ones, and is called only if that matters.

    Raises: BrokerError ProducerBusy.
    """
    if 0 < policies.counts.producers_max <= count:
        raise ProducerBusy(f"Topic '{topic_name}' reached max producers limit")
    if _too_many(config.maxSameAddressProducersPerTopic, address, others):
        raise ProducerBusy(f"Topic '{topic_name}' reached max same address producers limit")


def check_consumers(
    policies: EffectivePolicies,
    config: BrokerConfig,
    address: str,
    count: int,
    others: Callable[[], Iterable[str]],
) -> None:
    """As `check_producers`. Raises: BrokerError ConsumerBusy."""
    if 0 < policies.counts.consumers_max <= count:
        raise ConsumerBusy("Topic reached max consumers limit")
    if _too_many(config.maxSameAddressConsumersPerTopic, address, others):
        raise ConsumerBusy("Topic reached max same address consumers limit")


def _too_many(limit: int, address: str, others: Callable[[], Iterable[str]]) -> bool:
    if limit <= 0:
        return False
    host = host_of(address)
    return sum(host_of(other) == host for other in others()) >= limit


def check_subscriptions(policies: EffectivePolicies, count: int, topic_name: str) -> None:
    """Whether there may be one more subscription. Raises: BrokerError NotAllowedError."""
    if 0 < policies.counts.subscriptions_max <= count:
        raise NotAllowed(f"Exceed the maximum number of subscriptions of the topic: {topic_name}")


def type_not_enabled(name: str, topic_name: str) -> NotAllowed:
    """The refusal of consumers of this type."""
    return NotAllowed(f"Topic[{{{topic_name}}}] doesn't support {name} sub type!")


def check_strictly(name: str) -> None:
    """Whether a subscription may have this name under `strictlyVerifySubscriptionName`.

    Raises: BrokerError ProducerBusy, the code that Pulsar uses.
    """
    if not is_entity_name(name):
        raise ProducerBusy(
            f"The name of subscription {name!r} must consist of letters, digits and _ - = : . only"
            " (strictlyVerifySubscriptionName)"
        )
