"""The settings of a broker in a cluster: Pulsar's keys and defaults.

The configuration of `vela broker` is a `ClusterConfig` besides a `BrokerConfig`. A class can have
one parent with slots, so these have none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from settings.kinds import Bounds, Count, Positive, Rate, Ratio

_Minutes = Annotated[float, Bounds(0.001)]


@dataclass(frozen=True, kw_only=True)
class SheddingRules:
    """Which bundles leave a broker with too much load."""

    loadBalancerBrokerThresholdShedderPercentage: Rate = 10.0
    loadBalancerHistoryResourcePercentage: Ratio = 0.9
    """The weight of earlier reports."""
    loadBalancerBundleUnloadMinThroughputThreshold: Rate = 10.0
    """Megabytes per second: less than this is not worth an unload."""
    loadBalancerSheddingGracePeriodMinutes: Rate = 30.0
    """A bundle that was moved is left alone for this long."""


@dataclass(frozen=True, kw_only=True)
class SplitRules:
    """Which bundles are split."""

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
        """So long topics stay open while the store cannot be reached. A store ends a session in
        doubt after a quarter of the timeout or later, and its nodes go a twelfth after that, so
        as much again is left to close them."""
        return self.metadataStoreSessionTimeoutMillis / 6000

    @property
    def former_session_seconds_max(self) -> float:
        """So long an answer is held for the end of an earlier session of this broker: the store
        ends it after its timeout. Clients give up a request after 30 s."""
        return min(self.metadataStoreSessionTimeoutMillis / 1000 + 5.0, 25.0)
