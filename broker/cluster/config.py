"""The settings of a broker in a cluster: Pulsar's keys and defaults."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from broker.cluster.decisions import SheddingRules, SplitRules


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig:
    """See the module docstring."""

    clusterName: str = "standalone"
    metadataStoreSessionTimeoutMillis: int = 30_000
    namespaceBundleUnloadingTimeoutMs: int = 60_000
    """The longest time that topics of a bundle are given to close. The bundle is free after it."""
    loadBalancerEnabled: bool = True
    loadBalancerReportUpdateMinIntervalMillis: int = 5_000
    loadBalancerReportUpdateMaxIntervalMinutes: int = 15
    loadBalancerReportUpdateThresholdPercentage: float = 10.0
    loadBalancerSheddingEnabled: bool = True
    loadBalancerSheddingIntervalMinutes: float = 1.0
    loadBalancerResourceQuotaUpdateIntervalMinutes: float = 15.0
    loadBalancerAutoBundleSplitEnabled: bool = True
    loadBalancerAutoUnloadSplitBundlesEnabled: bool = True
    loadBalancerSplitIntervalMinutes: float = 1.0
    defaultNamespaceBundleSplitAlgorithm: str = "range_equally_divide"
    loadBalancerBrokerOverloadedThresholdPercentage: float = 85.0
    loadBalancerBrokerMaxTopics: int = 50_000
    failureDomainsEnabled: bool = False
    """Whether namespaces of an anti-affinity group are spread over failure domains first."""
    shedding: SheddingRules = field(default_factory=SheddingRules)
    splitting: SplitRules = field(default_factory=SplitRules)

    @property
    def doubt_seconds_max(self) -> float:
        """So long topics stay open while the store cannot be reached. A store ends a session in
        doubt after a third of the timeout or later, so as much again is left to close them."""
        return self.metadataStoreSessionTimeoutMillis / 6000

    @property
    def former_session_seconds_max(self) -> float:
        """So long an answer is held for the end of an earlier session of this broker: the store
        ends it after its timeout. Clients give up a request after 30 s."""
        return min(self.metadataStoreSessionTimeoutMillis / 1000 + 5.0, 25.0)
