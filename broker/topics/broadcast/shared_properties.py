"""Stores properties that most of 100,000 consumers have in common only once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from protocol.left_out import NO_PROPERTIES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.topics.subscription.consumer import Consumer

DISTINCT_MAX: Final = 1_000
"""Sets of properties that are shared. Above this number they differ too much to be worth it."""


@final
class SharedProperties:
    """Remembers properties that were seen."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[tuple[tuple[str, str], ...], Mapping[str, str]] = {}

    def share(self, consumer: Consumer) -> None:
        """Replace its properties by the equal ones of another consumer."""
        consumer.metadata = self._shared(consumer.metadata)
        consumer.subscription_properties = self._shared(consumer.subscription_properties)

    def _shared(self, properties: Mapping[str, str]) -> Mapping[str, str]:
        if not properties:
            return NO_PROPERTIES
        key = tuple(properties.items())
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= DISTINCT_MAX:
                return properties
            known = self._known[key] = properties
        return known
