"""Makes one of 100,000 consumers small: what is alike is shared, what is kept in arrays is dropped.

A consumer brings properties of its own and counters that other kinds of subscription keep in
objects. In a broadcast the properties of most consumers are equal, and permits, acknowledgements
and counters are in the arrays of `FanoutGroups` and `VirtualCursors`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from broker.subscription.consumer import Counters, KeySharedOptions
from broker.subscription.permits import Permits
from broker.subscription.unacked import PendingAcks

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.subscription.consumer import Consumer

DISTINCT_MAX: Final = 1_000
"""Sets of properties that are shared; more differ too much to be worth it."""
PERMITS: Final = Permits()
PENDING: Final = PendingAcks()
COUNTERS: Final = Counters()
"""Of all consumers of broadcasts: nothing is counted in them."""
_KEY_SHARED: Final = KeySharedOptions()


@final
class LeanConsumers:
    """Remembers properties that were seen."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[tuple[tuple[str, str], ...], Mapping[str, str]] = {}

    def trim(self, consumer: Consumer) -> None:
        """Share what it has in common with others. It has not been used yet."""
        consumer.permits = PERMITS
        consumer.pending = PENDING
        consumer.counters = COUNTERS
        consumer.key_shared = _KEY_SHARED
        consumer.metadata = self._shared(consumer.metadata)
        consumer.subscription_properties = self._shared(consumer.subscription_properties)

    def _shared(self, properties: Mapping[str, str]) -> Mapping[str, str]:
        key = tuple(properties.items())
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= DISTINCT_MAX:
                return properties
            known = self._known[key] = properties
        return known
