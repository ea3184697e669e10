"""How often rates of dispatch allowed a subscription less than it could have sent. Pure.

Field names: SubscriptionStats of Pulsar 4.0.8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, final

if TYPE_CHECKING:
    from collections.abc import Mapping

BROKER: Final = "broker"
TOPIC: Final = "topic"
SUBSCRIPTION: Final = "subscription"
GROUP: Final = "resource group"
"""Pulsar's statistics have no field for it."""
LEVELS: Final = (SUBSCRIPTION, TOPIC, BROKER)
"""What a rate is of."""


@final
class Throttled(NamedTuple):
    """By the messages, and by the bytes of a rate."""

    messages: int = 0
    size_bytes: int = 0


NEVER: Final = Throttled()


def throttled_json(by_level: Mapping[str, Throttled]) -> dict[str, int]:
    """The fields of a subscription's statistics."""
    fields: dict[str, int] = {}
    for level in LEVELS:
        times = by_level.get(level, NEVER)
        fields[f"dispatchThrottledMsgEventsBy{level.title()}Limit"] = times.messages
        fields[f"dispatchThrottledBytesEventsBy{level.title()}Limit"] = times.size_bytes
    return fields
