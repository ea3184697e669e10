"""Which consumers may share a subscription. Texts of Pulsar 4.0. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.topics.subscription.sub_types import EXCLUSIVE, FAILOVER, KEY_SHARED, TYPE_NAMES
from protocol.errors import ConsumerBusy, NotAllowed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from broker.topics.subscription.consumer import Consumer

_DIFFERENT: Final = "Subscription is of different type."


def check_compatible(present: Iterable[Consumer], consumer: Consumer) -> None:
    """Whether a consumer may join those that are present, which are compatible with each other.

    Raises: BrokerError ConsumerBusy.
    """
    first = next(iter(present), None)
    if first is None:
        return
    if first.sub_type != consumer.sub_type:
        raise ConsumerBusy(
            f"{_DIFFERENT} Active subscription type of '{TYPE_NAMES[first.sub_type]}' is different"
            f" than the connecting consumer's type '{TYPE_NAMES[consumer.sub_type]}'."
        )
    if first.sub_type != KEY_SHARED:
        return
    active, wanted = first.key_shared, consumer.key_shared
    if active.sticky != wanted.sticky:
        raise ConsumerBusy(
            f"{_DIFFERENT} Active subscription key_shared mode of '{_mode(active.sticky)}' is"
            f" different than the connecting consumer's key_shared mode '{_mode(wanted.sticky)}'."
        )
    if active.out_of_order_allowed and not wanted.out_of_order_allowed:
        raise ConsumerBusy(
            f"{_DIFFERENT} Active subscription allows out of order delivery while the connecting"
            " consumer does not allow it."
        )
    if wanted.out_of_order_allowed and not active.out_of_order_allowed:
        raise ConsumerBusy(
            f"{_DIFFERENT} Active subscription does not allow out of order delivery while the"
            " connecting consumer allows it."
        )


def check_reads_compacted(sub_type: int, *, persistent: bool) -> None:
    """Whether a consumer of this type may read a topic compacted.

    Raises: BrokerError NotAllowedError.
    """
    if not persistent:
        raise NotAllowed("readCompacted only valid on persistent topics")
    if sub_type not in (EXCLUSIVE, FAILOVER):
        raise NotAllowed("readCompacted only allowed on failover or exclusive subscriptions")


def in_the_way(present: Iterable[Consumer], consumer: Consumer) -> Consumer | None:
    """The first one of another connection because of which a consumer cannot join.

    One of the same type, which shares the subscription, is not: then a limit refused the consumer.
    """
    others = (
        each
        for each in present
        if each.session is not consumer.session
        and (each.sub_type == EXCLUSIVE or each.sub_type != consumer.sub_type)
    )
    return next(others, None)


def _mode(sticky: bool) -> str:
    return "STICKY" if sticky else "AUTO_SPLIT"
