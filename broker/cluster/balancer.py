"""The periodic work of the leader: it keeps the history of loads, sheds load and splits bundles.

The decisions are in `decisions`; this carries them out, through the owners of the bundles. Every
broker runs it, and it acts while its broker is the leader. A new leader begins with the histories
that the last one wrote.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, final

import structlog
import trio

from broker.cluster.bundles import parse_bundle
from broker.cluster.decisions import bundles_to_shed, bundles_to_split, smoothed_usage
from broker.cluster.load_history import BundleHistory, broker_averages_record
from broker.cluster.records import BROKER_AVERAGES_PATH, BUNDLE_DATA_PATH, NO_TRAFFIC, encode
from broker.ground.refusal import Refusal
from protocol.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from broker.cluster.bundles import Bundle
    from broker.cluster.cluster import ClusterOwnership
    from broker.cluster.config import ClusterConfig
    from metadata.store import MetadataStore
    from runtime.clock import Clock

log = structlog.get_logger()


@final
class Balancer:
    """See the module docstring. Run it with `nursery.start_soon(run)`."""

    def __init__(self, store: MetadataStore, cluster: ClusterOwnership, clock: Clock) -> None:
        self._store = store
        self._cluster = cluster
        self._in_force = cluster.in_force
        self._clock = clock
        self._usage: dict[str, float] = {}
        """Smoothed usage of brokers, 0 to 1."""
        self._moved: dict[str, float] = {}
        """When bundles were unloaded for load."""
        self._counted: dict[str, int] = {}
        """Time of the last report of a broker that is in the histories."""

    async def run(self) -> None:
        """Until cancelled."""
        if not self._in_force.now.loadBalancerEnabled:
            return
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._at_intervals, self._store_histories, _minutes_to_store)
            nursery.start_soon(self._at_intervals, self.shed, _minutes_to_shed)
            nursery.start_soon(self._at_intervals, self.split, _minutes_to_split)

    async def _at_intervals(
        self, act: Callable[[], Awaitable[None]], minutes: Callable[[ClusterConfig], float]
    ) -> None:
        while True:
            await self._pause(minutes)
            if not self._cluster.is_leader:
                continue
            try:
                await self._cluster.members.refresh()
                await self._count()
                await act()
            except (BrokerError, Refusal) as error:
                log.warning("load is not balanced now", reason=str(error))

    async def _pause(self, minutes: Callable[[ClusterConfig], float]) -> None:
        """Sleep as long as the configuration says. A change of it holds at once: for the pause
        under way, too, which begins again when what was off is turned on."""
        began = trio.current_time()
        while True:
            seconds = minutes(self._in_force.now) * 60
            if math.isinf(seconds):
                await self._in_force.wait_changed()
                began = trio.current_time()
                continue
            with trio.move_on_at(began + seconds):
                await self._in_force.wait_changed()
                continue
            return

    async def _count(self) -> None:
        """Add the reports that are new to the histories."""
        histories = self._cluster.placement.histories
        for broker_id, report in self._cluster.members.reports.items():
            if self._counted.get(broker_id) == report.updated_ms:
                continue
            self._counted[broker_id] = report.updated_ms
            for name, load in report.bundles.items():
                history = histories.get(name)
                if history is None:
                    history = await self._stored(name)
                histories[name] = history.with_sample(load)
        owned = {
            name for report in self._cluster.members.reports.values() for name in report.bundles
        }
        for name in histories.keys() - owned:
            del histories[name]

    async def _stored(self, name: str) -> BundleHistory:
        found = await self._store.get(f"{BUNDLE_DATA_PATH}/{name}")
        return BundleHistory() if found is None else BundleHistory.parse(found[0])

    async def _store_histories(self) -> None:
        """Raises: MetadataUnavailable."""
        histories = dict(self._cluster.placement.histories)
        for name, history in histories.items():
            if parse_bundle(name) is not None:
                await self._store.put(f"{BUNDLE_DATA_PATH}/{name}", encode(history.record), None)
        for broker_id, report in list(self._cluster.members.reports.items()):
            own = [histories[name] for name in report.bundles if name in histories]
            short = sum((each.short_term.traffic for each in own), NO_TRAFFIC)
            long = sum((each.long_term.traffic for each in own), NO_TRAFFIC)
            record = encode(broker_averages_record(short, long))
            await self._store.put(f"{BROKER_AVERAGES_PATH}/{broker_id}", record, None)

    async def shed(self) -> None:
        """Unload bundles of brokers with too much load. Clients that return are sent elsewhere."""
        cluster, now = self._cluster, self._clock.now()
        rules = self._in_force.now
        grace = rules.loadBalancerSheddingGracePeriodMinutes * 60
        self._moved = {name: since for name, since in self._moved.items() if now - since < grace}
        reports = dict(cluster.members.reports)
        self._usage = smoothed_usage(self._usage, reports, rules)
        left_out = await cluster.placement.bundles_that_stay(reports) | self._moved.keys()
        chosen = bundles_to_shed(
            reports, cluster.placement.histories, self._usage, frozenset(left_out), rules
        )
        for broker_id, names in chosen.items():
            for name in names:
                bundle = parse_bundle(name)
                if bundle is not None:
                    log.info("unloading a bundle for load", bundle=name, broker=broker_id)
                    self._moved[name] = now
                    await _attempt(cluster.unload_anywhere, bundle)

    async def split(self) -> None:
        """Split bundles that are beyond a limit."""
        cluster = self._cluster
        reports = dict(cluster.members.reports)
        counts: dict[str, int] = {}
        for report in reports.values():
            for name in report.bundles:
                bundle = parse_bundle(name)
                if bundle is not None and bundle.namespace_name not in counts:
                    await _attempt(self._count_bundles, bundle, counts)
        rules = self._in_force.now
        for bundle in bundles_to_split(reports, cluster.placement.histories, counts, rules):
            log.info("splitting a bundle", bundle=bundle.name)
            await _attempt(cluster.split_anywhere, bundle)

    async def _count_bundles(self, bundle: Bundle, counts: dict[str, int]) -> None:
        boundaries = await self._cluster.boundaries(bundle.namespace_name)
        counts[bundle.namespace_name] = len(boundaries) - 1


def _minutes_to_store(config: ClusterConfig) -> float:
    return config.loadBalancerResourceQuotaUpdateIntervalMinutes


def _minutes_to_shed(config: ClusterConfig) -> float:
    is_on = config.loadBalancerSheddingEnabled
    return config.loadBalancerSheddingIntervalMinutes if is_on else math.inf


def _minutes_to_split(config: ClusterConfig) -> float:
    is_on = config.loadBalancerAutoBundleSplitEnabled
    return config.loadBalancerSplitIntervalMinutes if is_on else math.inf


async def _attempt(act: Callable[..., Awaitable[None]], bundle: Bundle, *arguments: object) -> None:
    """A bundle that cannot be moved or split does not hinder the others."""
    try:
        await act(bundle, *arguments)
    except (BrokerError, Refusal) as error:
        log.warning("bundle is left as it is", bundle=bundle.name, reason=str(error))
