"""The settings of a broker in a cluster: Pulsar's keys and defaults, and those in force now.

The configuration of `vela broker` is a `ClusterConfig` besides a `BrokerConfig`. A class can have
one parent with slots, so these have none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, final

import trio

from settings.kinds import Bounds, Count, Positive, Rate, Ratio

if TYPE_CHECKING:
    from collections.abc import Callable

_Minutes = Annotated[float, Bounds(0.001)]


@dataclass(frozen=True, kw_only=True)
class SheddingRules:
    """The rules by which bundles leave a broker with too much load."""

    loadBalancerBrokerThresholdShedderPercentage: Rate = 10.0
    loadBalancerHistoryResourcePercentage: Ratio = 0.9
    """The weight of earlier reports."""
    loadBalancerBundleUnloadMinThroughputThreshold: Rate = 10.0
    """Megabytes per second: less than this is not worth an unload."""
    loadBalancerSheddingGracePeriodMinutes: Rate = 30.0
    """A bundle that was moved is left alone for this long."""


@dataclass(frozen=True, kw_only=True)
class SplitRules:
    """The rules by which bundles are split."""

    loadBalancerNamespaceBundleMaxTopics: Count = 1_000
    loadBalancerNamespaceBundleMaxSessions: Count = 1_000
    """0: any number."""
    loadBalancerNamespaceBundleMaxMsgRate: Rate = 30_000
    loadBalancerNamespaceBundleMaxBandwidthMbytes: Rate = 100
    loadBalancerNamespaceMaximumBundles: Positive = 128


@dataclass(frozen=True, kw_only=True)
class ClusterConfig(SheddingRules, SplitRules):
    """See the module docstring."""

    clusterName: str = "standalone"
    metadataStoreConfigPath: str = ""
    metadataStoreSessionTimeoutMillis: Annotated[int, Bounds(1_000)] = 30_000
    namespaceBundleUnloadingTimeoutMs: Positive = 60_000
    """The longest time that topics of a bundle are given to close. The bundle is free after it."""
    defaultNamespaceBundleSplitAlgorithm: Literal[
        "range_equally_divide", "topic_count_equally_divide"
    ] = "range_equally_divide"
    loadBalancerEnabled: bool = True
    loadBalancerReportUpdateMinIntervalMillis: Positive = 5_000
    loadBalancerReportUpdateMaxIntervalMinutes: Positive = 15
    loadBalancerReportUpdateThresholdPercentage: Rate = 10.0
    loadBalancerSheddingEnabled: bool = True
    loadBalancerSheddingIntervalMinutes: _Minutes = 1.0
    loadBalancerResourceQuotaUpdateIntervalMinutes: _Minutes = 15.0
    loadBalancerAutoBundleSplitEnabled: bool = True
    loadBalancerAutoUnloadSplitBundlesEnabled: bool = True
    loadBalancerSplitIntervalMinutes: _Minutes = 1.0
    loadBalancerBrokerOverloadedThresholdPercentage: Rate = 85.0
    loadBalancerBrokerMaxTopics: Positive = 50_000
    failureDomainsEnabled: bool = False
    """Whether namespaces of an anti-affinity group are spread over failure domains first."""

    @property
    def doubt_seconds_max(self) -> float:
        """How long topics stay open while the store cannot be reached. A store ends a session in
        doubt after a quarter of the timeout or later, and its nodes go a twelfth after that, so
        as much again is left to close them."""
        return self.metadataStoreSessionTimeoutMillis / 6000

    @property
    def former_session_seconds_max(self) -> float:
        """How long an answer is held for the end of an earlier session of this broker: the store
        ends it after its timeout. Clients give up a request after 30 s."""
        return min(self.metadataStoreSessionTimeoutMillis / 1000 + 5.0, 25.0)


@final
class ConfigInForce:
    """The configuration of a broker of a cluster as it is now: dynamic configuration may change it.

    Who uses it reads `now` at every use. A task that waits for a time that depends on it is
    notified of a change.
    """

    def __init__(self, config: ClusterConfig) -> None:
        self.now = config
        self._changed = trio.Event()
        self._watchers: list[Callable[[], None]] = []

    def watch(self, on_change: Callable[[], None]) -> None:
        """Call back after every change, as long as this object is used."""
        self._watchers.append(on_change)

    def use(self, config: ClusterConfig) -> None:
        """It holds from now on."""
        if config == self.now:
            return
        self.now = config
        self._changed.set()
        self._changed = trio.Event()
        for on_change in self._watchers:
            on_change()

    async def wait_changed(self) -> None:
        """Return when another configuration than that of the call holds."""
        await self._changed.wait()
