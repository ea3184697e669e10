"""Chooses brokers for bundles, and remembers what was chosen since the last reports.

The choice is `decisions`, a pure function. This reads what it needs: reports, histories, isolation
policies, anti-affinity groups, failure domains.

A broker that was sent a bundle asks here, too, whether it may own it. The broker that sent it may
have known other policies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import trio

from broker.cluster.anti_affinity import AntiAffinity
from broker.cluster.decisions import Assignments, Constraints, PlacementLimits
from broker.cluster.isolation_records import IsolationRecords
from metadata.store import MetadataUnavailable
from protocol.errors import MetadataError, ServiceNotReady, TopicNotFound

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.cluster.bundles import Bundle
    from broker.cluster.config import ConfigInForce
    from broker.cluster.isolation import IsolationPolicies
    from broker.cluster.load_history import BundleHistory
    from broker.cluster.members import Members
    from broker.cluster.namespace_bundles import NamespaceBundles
    from broker.cluster.records import BrokerReport
    from metadata.store import MetadataStore
    from runtime.clock import Clock

_NAMESPACES_PER_SLICE: Final = 200


@final
class Placement:
    """See the module docstring."""

    def __init__(
        self,
        store: MetadataStore,
        bundles: NamespaceBundles,
        members: Members,
        in_force: ConfigInForce,
        clock: Clock,
    ) -> None:
        self._bundles = bundles
        self._members = members
        self._clock = clock
        self._in_force = in_force
        self._isolation = IsolationRecords(store, in_force.now.clusterName)
        self._assignments = Assignments()
        self.histories: dict[str, BundleHistory] = {}
        """The load of bundles over time by name, kept while this broker is the leader."""

    @property
    def _limits(self) -> PlacementLimits:
        config = self._in_force.now
        return PlacementLimits(
            config.loadBalancerBrokerOverloadedThresholdPercentage / 100,
            config.loadBalancerBrokerMaxTopics,
        )

    def close(self) -> None:
        """Follow the store no more."""
        self._isolation.close()

    def changed(self, bundle: Bundle) -> None:
        """The bundle may have another owner than the reports say."""
        self._assignments.changed(bundle, self._members.reports)

    def free(self, bundle: Bundle) -> None:
        """The bundle was given up: it may go elsewhere."""
        self._assignments.free(bundle)

    async def choose(self, bundle: Bundle) -> str:
        """The id of the broker that is to own the bundle.

        Raises: ServiceNotReady: there is none. MetadataError.
        """
        policies = await self._isolation.policies()
        affinity = await self._anti_affinity(bundle.namespace_name)
        reports = self._members.reports  # as they are after the last await
        constraints = Constraints(policies.candidates(bundle.namespace_name, reports), affinity)
        chosen = self._assignments.assign(
            bundle, reports, self.histories, self._limits, self._clock.now(), constraints
        )
        if chosen is None:
            raise ServiceNotReady(f"No broker was available to own {bundle.name}")
        return chosen

    async def check_may_own(self, bundle: Bundle) -> None:
        """With expressions that are not understood here, who sent the bundle knows better.

        Raises: ServiceNotReady: isolation policies keep the bundle from this broker. MetadataError.
        """
        policies = await self._isolation.policies()
        if policies.refused_patterns:
            return
        if policies.standing_of(bundle.namespace_name, self._members.broker_id) is None:
            raise ServiceNotReady(
                f"Isolation policies keep {bundle.name} from this broker; look up again"
            )

    async def policies(self) -> IsolationPolicies:
        """In force now. Raises: MetadataError."""
        return await self._isolation.policies()

    async def bundles_that_stay(self, reports: Mapping[str, BrokerReport]) -> set[str]:
        """Names of bundles for which no broker is better than their own, however loaded that is.

        Raises: MetadataError.
        """
        policies = await self._isolation.policies()
        owned = _namespaces_of(reports)
        staying: set[str] = set()
        for number, namespace_name in enumerate(set().union(*owned.values())):
            if number % _NAMESPACES_PER_SLICE == 0:
                await trio.lowlevel.checkpoint()
            brokers = policies.candidates(namespace_name, reports).brokers
            affinity = await self._anti_affinity(namespace_name)
            for broker_id, namespaces in owned.items():
                if namespace_name in namespaces and not (
                    brokers - {broker_id}
                    and (affinity is None or affinity.may_leave(broker_id, brokers, owned))
                ):
                    staying.update(namespaces[namespace_name])
        return staying

    async def _anti_affinity(self, namespace_name: str) -> AntiAffinity | None:
        """The group of a namespace. Raises: MetadataError."""
        group = await self._group_of(namespace_name)
        if not group:
            return None
        names = set().union(*_namespaces_of(self._members.reports).values())
        names |= self._assignments.namespaces | {namespace_name}
        members: set[str] = set()
        for number, name in enumerate(names):
            if number % _NAMESPACES_PER_SLICE == 0:
                await trio.lowlevel.checkpoint()
            if await self._group_of(name) == group:
                members.add(name)
        are_domains_on = self._in_force.now.failureDomainsEnabled
        domains = await self._isolation.domain_by_broker() if are_domains_on else None
        return AntiAffinity(frozenset(members), domains)

    async def _group_of(self, namespace_name: str) -> str:
        try:
            return await self._bundles.anti_affinity_group_of(namespace_name)
        except MetadataUnavailable:
            raise
        except (MetadataError, TopicNotFound):
            return ""  # its record is damaged, or it is being deleted: no other suffers


def _namespaces_of(reports: Mapping[str, BrokerReport]) -> dict[str, dict[str, list[str]]]:
    """Names of bundles by broker and namespace."""
    owned: dict[str, dict[str, list[str]]] = {}
    for broker_id, report in reports.items():
        namespaces = owned[broker_id] = {}
        for name in report.bundles:
            namespaces.setdefault(name.rpartition("/")[0], []).append(name)
    return owned
