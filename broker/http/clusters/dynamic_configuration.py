"""Configuration keys that can be changed while the broker runs, like Pulsar's dynamic
configuration.

Values are stored in the metadata store as given and read back unchanged. A value that is valid for
its key overrides the configuration files; an invalid one has no effect. Only keys that are read at
every use can be dynamic. A broker has those that are in its configuration: the ones of the load
balancer belong to brokers of a cluster.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

import structlog

from broker.configuration.config_keys import BROKER_KEYS
from broker.ground.config import BrokerConfig
from settings.reading import ConfigError, Setting, build_config, typed_values

if TYPE_CHECKING:
    from collections.abc import Mapping

log = structlog.get_logger()

_Config = TypeVar("_Config", bound=BrokerConfig)

_DYNAMIC_KEYS: Final = (
    "allowAutoSubscriptionCreation",
    "allowAutoTopicCreation",
    "allowAutoTopicCreationType",
    "brokerDeleteInactiveTopicsMode",
    "brokerPublisherThrottlingMaxByteRate",
    "brokerPublisherThrottlingMaxMessageRate",
    "defaultNamespaceBundleSplitAlgorithm",
    "defaultNumPartitions",
    "dispatchThrottlingOnBatchMessageEnabled",
    "dispatchThrottlingOnNonBacklogConsumerEnabled",
    "dispatchThrottlingRateInByte",
    "dispatchThrottlingRateInMsg",
    "dispatchThrottlingRatePerSubscriptionInByte",
    "dispatchThrottlingRatePerSubscriptionInMsg",
    "dispatchThrottlingRatePerTopicInByte",
    "dispatchThrottlingRatePerTopicInMsg",
    "dispatchThrottlingRateRelativeToPublishRate",
    "failureDomainsEnabled",
    "forceDeleteNamespaceAllowed",
    "forceDeleteTenantAllowed",
    "isSchemaValidationEnforced",
    "loadBalancerAutoBundleSplitEnabled",
    "loadBalancerAutoUnloadSplitBundlesEnabled",
    "loadBalancerBrokerMaxTopics",
    "loadBalancerBrokerOverloadedThresholdPercentage",
    "loadBalancerBrokerThresholdShedderPercentage",
    "loadBalancerBundleUnloadMinThroughputThreshold",
    "loadBalancerHistoryResourcePercentage",
    "loadBalancerNamespaceBundleMaxBandwidthMbytes",
    "loadBalancerNamespaceBundleMaxMsgRate",
    "loadBalancerNamespaceBundleMaxSessions",
    "loadBalancerNamespaceBundleMaxTopics",
    "loadBalancerNamespaceMaximumBundles",
    "loadBalancerReportUpdateMaxIntervalMinutes",
    "loadBalancerReportUpdateMinIntervalMillis",
    "loadBalancerReportUpdateThresholdPercentage",
    "loadBalancerSheddingEnabled",
    "loadBalancerSheddingGracePeriodMinutes",
    "loadBalancerSheddingIntervalMinutes",
    "maxConsumersPerTopic",
    "maxNamespacesPerTenant",
    "maxNumPartitionsPerPartitionedTopic",
    "maxProducersPerTopic",
    "maxPublishRatePerTopicInBytes",
    "maxPublishRatePerTopicInMessages",
    "maxSubscriptionsPerTopic",
    "maxTenants",
    "maxTopicsPerNamespace",
    "schemaCompatibilityStrategy",
    "subscribeRatePeriodPerConsumerInSecond",
    "subscribeThrottlingRatePerConsumer",
    "subscriptionTypesEnabled",
    "superUserRoles",
)


def dynamic_keys(config: BrokerConfig) -> list[str]:
    """The keys of this configuration that may be set at run time."""
    return [key for key in _DYNAMIC_KEYS if hasattr(config, key)]


def with_dynamic(config: _Config, dynamic: Mapping[str, str]) -> _Config:
    """The configuration of the files with the dynamic values over it."""
    rules = replace(BROKER_KEYS, config_type=type(config))
    known = dynamic_keys(config)
    values = typed_values(config)
    for key, value in dynamic.items():
        if key not in known:
            continue
        try:
            changed = build_config(rules, [Setting(key, value, "dynamic configuration")], {}).config
        except ConfigError as error:
            log.warning("dynamic configuration has no effect", reason=str(error))
            continue
        values[key] = getattr(changed, key)
    return type(config)(**values)
