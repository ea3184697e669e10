"""Namespaces that should not be at the same broker: anti-affinity groups, failure domains. Pure.

The namespaces of a group are spread: first over failure domains, which are sets of brokers that may
fail together, then over brokers. A broker of no domain is in one with all such brokers. The rules
are those of Pulsar 4.0.8 (LoadManagerShared: filterAntiAffinityGroupOwnedBrokers,
shouldAntiAffinityNamespaceUnload).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

DEFAULT_DOMAIN: Final = "default"
Owned = Mapping[str, Container[str]]
"""Names of namespaces with bundles there, by broker."""


@final
@dataclass(frozen=True, slots=True)
class AntiAffinity:
    """The known state of one group."""

    namespaces: frozenset[str]
    """All members of the group."""
    domains: Mapping[str, str] | None = None
    """The domain by broker id; None: domains do not count."""

    def best(self, brokers: AbstractSet[str], owned: Owned) -> frozenset[str]:
        """Of these brokers, those with the fewest namespaces of the group, in the domains with the
        fewest."""
        counts = self._counts(brokers, owned)
        if not any(counts.values()):
            return frozenset(brokers)
        left = set(brokers)
        if self.domains:
            by_domain: Counter[str] = Counter()
            for broker_id in brokers:
                by_domain[self._domain_of(broker_id)] += counts[broker_id]
            fewest = min(by_domain.values())
            left = {each for each in left if by_domain[self._domain_of(each)] == fewest}
        fewest = min(counts[each] for each in left)
        return frozenset(each for each in left if counts[each] == fewest)

    def may_leave(self, broker_id: str, brokers: AbstractSet[str], owned: Owned) -> bool:
        """Whether a bundle of the group that leaves this broker for load would find a better
        one among `brokers`."""
        counts = self._counts(brokers, owned)
        if not counts or not any(counts.values()):
            return True
        fewest = min(counts.values())
        if fewest == 0 or counts.get(broker_id, 0) > fewest:
            return True
        return any(count != fewest for count in counts.values())

    def _counts(self, brokers: AbstractSet[str], owned: Owned) -> dict[str, int]:
        return {
            each: sum(name in owned.get(each, ()) for name in self.namespaces) for each in brokers
        }

    def _domain_of(self, broker_id: str) -> str:
        return (
            DEFAULT_DOMAIN if self.domains is None else self.domains.get(broker_id, DEFAULT_DOMAIN)
        )
