"""Which broker gets a bundle, which bundles leave a broker, and which are split. Pure.

The rules are those of Pulsar's ModularLoadManagerImpl: LeastLongTermMessageRate for placement among
the brokers with the fewest bundles of the namespace, ThresholdShedder, BundleSplitterTask. What
Pulsar decides by chance is decided by a hash here, so that the same reports give the same decision.
"""

from __future__ import annotations

import math
from binascii import crc32
from collections import Counter
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, final

from broker.cluster.bundles import parse_bundle
from broker.cluster.heartbeat import heartbeat_broker
from broker.cluster.load_history import BundleHistory
from broker.cluster.records import NO_TRAFFIC

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from collections.abc import Set as AbstractSet

    from broker.cluster.anti_affinity import AntiAffinity
    from broker.cluster.bundles import Bundle
    from broker.cluster.config import SheddingRules, SplitRules
    from broker.cluster.isolation import Candidates
    from broker.cluster.records import BrokerReport, Traffic

_MEGABYTE: Final = 1024 * 1024
_SHEDDING_MARGIN: Final = 0.05
_SYSTEM_TENANT: Final = "pulsar/"
"""Bundles of heartbeats and of the system's own topics are not moved for load."""


# --- placement --------------------------------------------------------------------------------


@final
@dataclass(frozen=True, slots=True)
class Constraints:
    """The constraints that count before load when a bundle is placed."""

    candidates: Candidates | None = None
    """None: all brokers."""
    anti_affinity: AntiAffinity | None = None
    """The group of the bundle's namespace; None: it is in none."""


UNCONSTRAINED: Final = Constraints()


@final
class Assignments:
    """Bundles that were assigned and are not yet in the reports of the brokers.

    Without this every bundle between two reports would go to the same broker, and two clients of
    one bundle to two brokers.
    """

    SECONDS_MAX: Final = 60.0
    """An assignment that did not show up by then counts no more."""

    def __init__(self) -> None:
        self._assigned: dict[Bundle, tuple[str, float]] = {}
        self._outdated: dict[str, tuple[int, set[str]]] = {}
        """By broker: the time of its last report, and bundles in it that changed owners since."""

    def assign(
        self,
        bundle: Bundle,
        reports: Mapping[str, BrokerReport],
        histories: Mapping[str, BundleHistory],
        limits: PlacementLimits,
        now: float,
        constraints: Constraints = UNCONSTRAINED,
    ) -> str | None:
        """The id of the broker that is to own the bundle; None: there is no broker."""
        self._forget(reports, now)
        assigned = self._assigned.get(bundle)
        candidates = constraints.candidates
        if assigned is not None and (candidates is None or assigned[0] in candidates.brokers):
            return assigned[0]
        extra: dict[str, list[Bundle]] = {}
        for each, (broker_id, _since) in self._assigned.items():
            extra.setdefault(broker_id, []).append(each)
        outdated = {broker_id: names for broker_id, (_time, names) in self._outdated.items()}
        chosen = choose_broker(bundle, reports, histories, limits, extra, outdated, constraints)
        if chosen is not None:
            self._assigned[bundle] = (chosen, now)
        return chosen

    @property
    def namespaces(self) -> set[str]:
        """The namespaces of bundles that are assigned and not yet reported."""
        return {bundle.namespace_name for bundle in self._assigned}

    def free(self, bundle: Bundle) -> None:
        """The bundle was given up: it may go elsewhere."""
        self._assigned.pop(bundle, None)

    def changed(self, bundle: Bundle, reports: Mapping[str, BrokerReport]) -> None:
        """The bundle may have another owner than the reports say, until the next ones."""
        for broker_id, report in reports.items():
            if bundle.name in report.bundles:
                time, names = self._outdated.get(broker_id, (report.updated_ms, set()))
                if time != report.updated_ms:
                    names = set()
                names.add(bundle.name)
                self._outdated[broker_id] = (report.updated_ms, names)

    def _forget(self, reports: Mapping[str, BrokerReport], now: float) -> None:
        for broker_id, (time, _names) in list(self._outdated.items()):
            if broker_id not in reports or reports[broker_id].updated_ms != time:
                del self._outdated[broker_id]
        over = [
            bundle
            for bundle, (broker_id, since) in self._assigned.items()
            if broker_id not in reports
            or bundle.name in self._present(broker_id, reports[broker_id])
            or now - since > self.SECONDS_MAX
        ]
        for bundle in over:
            del self._assigned[bundle]

    def _present(self, broker_id: str, report: BrokerReport) -> AbstractSet[str]:
        """The bundles of a report that are still those of its broker, as far as is known."""
        _time, outdated = self._outdated.get(broker_id, (0, set[str]()))
        return report.bundles.keys() - outdated


@final
@dataclass(frozen=True, slots=True)
class PlacementLimits:
    """Brokers beyond these get a bundle only if all are."""

    usage_max: float = 0.85
    topics_max: int = 50_000


def choose_broker(
    bundle: Bundle,
    reports: Mapping[str, BrokerReport],
    histories: Mapping[str, BundleHistory],
    limits: PlacementLimits,
    assigned: Mapping[str, Iterable[Bundle]],
    outdated: Mapping[str, AbstractSet[str]] = MappingProxyType({}),
    constraints: Constraints = UNCONSTRAINED,
) -> str | None:
    """The broker for a bundle without an owner; None: there is no broker. By broker id: bundles
    that were `assigned` since its report, and names in its report that are `outdated`.

    Of the candidates that are best for the anti-affinity group, those within the limits; of these
    the ones with the fewest bundles of the namespace; of these, the one with the lowest long-term
    message rate; of equals the one with the fewest bundles in all, then by a hash.
    """
    candidates = constraints.candidates
    brokers = frozenset(reports) if candidates is None else candidates.brokers & reports.keys()
    if not brokers:
        return None
    avoided = frozenset[str]() if candidates is None else candidates.avoided
    owned = {
        broker_id: (report.bundles.keys() - {bundle.name} - outdated.get(broker_id, frozenset()))
        | {each.name for each in assigned.get(broker_id, ())}
        for broker_id, report in reports.items()
    }
    if constraints.anti_affinity is not None:
        namespaces = {
            broker_id: {name.rpartition("/")[0] for name in names}
            for broker_id, names in owned.items()
        }
        brokers = constraints.anti_affinity.best(brokers, namespaces)

    def rank(broker_id: str) -> tuple[bool, int, float, int, int, str]:
        names = owned[broker_id]
        report = reports[broker_id]
        rate = sum(_long_term(histories, name).msg_rate for name in names)
        return (
            broker_id in avoided
            or report.usage > limits.usage_max
            or report.topics >= limits.topics_max,
            sum(name.startswith(f"{bundle.namespace_name}/") for name in names),
            rate,
            len(names),
            crc32(f"{bundle.name} {broker_id}".encode()),
            broker_id,
        )

    return min(brokers, key=rank)


def _long_term(histories: Mapping[str, BundleHistory], name: str) -> Traffic:
    history = histories.get(name)
    return history.long_term.traffic if history is not None else NO_TRAFFIC


# --- shedding ---------------------------------------------------------------------------------


def smoothed_usage(
    earlier: Mapping[str, float], reports: Mapping[str, BrokerReport], rules: SheddingRules
) -> dict[str, float]:
    """The usage by broker after one more round of reports, 0 to 1. That of a broker that is new
    begins with its report: from 0, one that joined would hide for many rounds that it is busy, and
    lower the average by which the others are judged."""
    weight = rules.loadBalancerHistoryResourcePercentage
    return {
        broker_id: earlier.get(broker_id, report.usage) * weight + (1 - weight) * report.usage
        for broker_id, report in reports.items()
    }


def bundles_to_shed(
    reports: Mapping[str, BrokerReport],
    histories: Mapping[str, BundleHistory],
    usage: Mapping[str, float],
    recently_moved: frozenset[str],
    rules: SheddingRules,
) -> dict[str, list[str]]:
    """Names of bundles to unload, by broker: the busiest ones of brokers whose usage is above the
    average by more than the threshold, until what is above it is covered. A broker's only bundle
    stays."""
    if not reports:
        return {}
    average = sum(usage.get(broker_id, 0.0) for broker_id in reports) / len(reports)
    threshold = rules.loadBalancerBrokerThresholdShedderPercentage / 100
    least = rules.loadBalancerBundleUnloadMinThroughputThreshold * _MEGABYTE
    chosen: dict[str, list[str]] = {}
    for broker_id, report in sorted(reports.items()):
        excess = usage.get(broker_id, 0.0) - average - threshold
        to_offload = report.traffic.throughput * (excess + _SHEDDING_MARGIN)
        if excess <= 0 or to_offload < least or len(report.bundles) < 2:
            continue
        names = _busiest_first(report, histories, recently_moved)[: len(report.bundles) - 1]
        offloaded = 0.0
        for throughput, name in names:
            if offloaded >= to_offload and broker_id in chosen:
                break
            chosen.setdefault(broker_id, []).append(name)
            offloaded += throughput
    return chosen


def _busiest_first(
    report: BrokerReport, histories: Mapping[str, BundleHistory], left_out: frozenset[str]
) -> list[tuple[float, str]]:
    ranked = [
        (histories.get(name, BundleHistory()).short_term.traffic.throughput, name)
        for name in report.bundles
        if name not in left_out and not name.startswith(_SYSTEM_TENANT)
    ]
    return sorted(ranked, key=lambda each: (-each[0], each[1]))


# --- splitting --------------------------------------------------------------------------------


def bundles_to_split(
    reports: Mapping[str, BrokerReport],
    histories: Mapping[str, BundleHistory],
    bundle_counts: Mapping[str, int],
    rules: SplitRules,
) -> list[Bundle]:
    """Bundles beyond one of the limits, in namespaces that may have more bundles. A bundle with one
    topic is left alone: splitting it would close the topic, and divide nothing.

    `bundle_counts` has the present number of bundles by namespace; one without is left alone. A
    namespace gets one more bundle for each of its bundles chosen, up to the maximum.
    """
    chosen: list[Bundle] = []
    added: Counter[str] = Counter()
    sessions_max = rules.loadBalancerNamespaceBundleMaxSessions or math.inf
    for _broker_id, report in sorted(reports.items()):
        for name, load in sorted(report.bundles.items()):
            bundle = parse_bundle(name)
            traffic = _long_term(histories, name)
            if bundle is None or load.topics < 2 or heartbeat_broker(bundle.namespace_name):
                continue
            if not (
                load.topics > rules.loadBalancerNamespaceBundleMaxTopics
                or load.producers + load.consumers > sessions_max
                or traffic.msg_rate > rules.loadBalancerNamespaceBundleMaxMsgRate
                or traffic.throughput
                > rules.loadBalancerNamespaceBundleMaxBandwidthMbytes * _MEGABYTE
            ):
                continue
            namespace_name = bundle.namespace_name
            count = bundle_counts.get(namespace_name, rules.loadBalancerNamespaceMaximumBundles)
            if count + added[namespace_name] < rules.loadBalancerNamespaceMaximumBundles:
                added[namespace_name] += 1
                chosen.append(bundle)
    return chosen
