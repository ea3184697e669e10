"""The configuration of a broker and its embedded bookie: one frozen object, Pulsar's key names.

Every attribute is a key of Pulsar's `broker.conf`/`standalone.conf` or of BookKeeper's
`bookkeeper.conf`, with the type and the default of Pulsar 4.0 and BookKeeper 4.17, so a value from
Pulsar's documentation means the same here. Only keys that change the behaviour of Vela are here.
The other keys of real Pulsar are listed in `settings/upstream_keys.conf`.

Vela's default differs on purpose for these keys: `bindAddress` (loopback, since a laptop is not a
server), `clusterName` and the quorum sizes (one embedded bookie), `webServicePort` and
`brokerServicePort` (0 takes a free port), the cache sizes that Pulsar derives from the JVM's direct
memory, and a few sizes of the bookie (`journalBufferedWritesThreshold`,
`dbStorage_readAheadCacheBatchSize`) that Pulsar chose for another machine. `bookiePort` is off: the
broker does not need it.

Bounds are part of the types (`settings.kinds`); `settings.reading` enforces them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, Literal

from bookie.api import ENTRY_SIZE_BYTES_MAX
from bookie.config import INDEX_BLOCK_CACHE_BYTES
from security.authentication.config import AuthenticationConfig
from settings.kinds import (
    Bounds,
    Count,
    GroupWait,
    NoneAtZero,
    Pattern,
    PortOrOff,
    Positive,
    Rate,
    Ratio,
)

_MESSAGE_SIZE_BYTES_MAX: Final = ENTRY_SIZE_BYTES_MAX - 64 * 1024
"""With all that is stored with a message it must fit into an entry."""

DEFAULT_AUTHORIZATION: Final = "org.apache.pulsar.broker.authorization.PulsarAuthorizationProvider"
"""Pulsar's name of the only provider that Vela has."""

InactiveTopicMode = Literal["delete_when_no_subscriptions", "delete_when_subscriptions_caught_up"]
SchemaStrategy = Literal[
    "UNDEFINED",
    "ALWAYS_INCOMPATIBLE",
    "ALWAYS_COMPATIBLE",
    "BACKWARD",
    "FORWARD",
    "FULL",
    "BACKWARD_TRANSITIVE",
    "FORWARD_TRANSITIVE",
    "FULL_TRANSITIVE",
]

SUBSCRIPTION_TYPES: Final = ("Exclusive", "Shared", "Failover", "Key_Shared")


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig(AuthenticationConfig):
    """All settings. 0 means the same as in Pulsar and BookKeeper
    (docs/operations/configuration.md). Those of authentication are in `AuthenticationConfig`."""

    # --- where it listens ---------------------------------------------------------------
    clusterName: str = "standalone"
    bindAddress: str = "127.0.0.1"
    advertisedAddress: str = ""
    advertisedListeners: str = ""
    internalListenerName: str = ""
    brokerServicePort: PortOrOff = 6650
    brokerServicePortTls: PortOrOff = None
    webServicePort: PortOrOff = 8080
    webServicePortTls: PortOrOff = None

    # --- TLS ----------------------------------------------------------------------------
    tlsCertificateFilePath: str = ""
    tlsKeyFilePath: str = ""
    tlsTrustCertsFilePath: str = ""
    tlsAllowInsecureConnection: bool = False
    tlsRequireTrustedClientCertOnConnect: bool = False
    tlsProtocols: tuple[str, ...] = ()
    tlsCiphers: tuple[str, ...] = ()
    webServiceTlsProtocols: tuple[str, ...] = ()
    webServiceTlsCiphers: tuple[str, ...] = ()
    tlsCertRefreshCheckDurationSec: Count = 300

    # --- connections --------------------------------------------------------------------
    keepAliveIntervalSeconds: NoneAtZero = 30
    maxMessageSize: Annotated[int, Bounds(1, _MESSAGE_SIZE_BYTES_MAX)] = 5 * 1024 * 1024
    brokerMaxConnections: NoneAtZero = 0
    brokerMaxConnectionsPerIp: NoneAtZero = 0
    maxConcurrentTopicLoadRequest: Positive = 5_000
    maxPendingPublishRequestsPerConnection: NoneAtZero = 1_000
    maxMessagePublishBufferSizeInMB: NoneAtZero = 256
    maxUnfinishedFramesSizeInMB: Positive = 256
    connectionLivenessCheckTimeoutMillis: NoneAtZero = 5_000
    topicRestAfterSeconds: Count = 60
    """Vela's own. 0: never."""
    topicLoadTimeoutSeconds: Positive = 60
    brokerShutdownTimeoutMs: NoneAtZero = 60_000

    # --- authorization --------------------------------------------------------------------
    authorizationEnabled: bool = False
    authorizationProvider: str = DEFAULT_AUTHORIZATION
    superUserRoles: tuple[str, ...] = ()
    authorizationAllowWildcardsMatching: bool = False
    allowAclChangesOnNonExistentTopics: bool = False

    # --- HTTP -----------------------------------------------------------------------------
    maxHttpServerConnections: Count = 2_048
    httpMaxRequestHeaderSize: Annotated[int, Bounds(1_024, 1024 * 1024)] = 8_192
    httpRequestsLimitEnabled: bool = False
    httpRequestsMaxPerSecond: Annotated[float, Bounds(0.001)] = 100.0
    webServiceAllowedHosts: tuple[str, ...] = ()
    webServiceMaxBufferedMB: Positive = 64
    webServiceRequestTimeoutSeconds: Positive = 30
    webServiceIdleTimeoutSeconds: Positive = 60
    webServiceAnswerTimeoutSeconds: Positive = 120

    # --- topics and namespaces ----------------------------------------------------------
    enablePersistentTopics: bool = True
    enableNonPersistentTopics: bool = True
    allowAutoTopicCreation: bool = True
    allowAutoTopicCreationType: Literal["non-partitioned", "partitioned"] = "non-partitioned"
    defaultNumPartitions: Positive = 1
    maxNumPartitionsPerPartitionedTopic: NoneAtZero = 0
    maxTenants: NoneAtZero = 0
    maxNamespacesPerTenant: NoneAtZero = 0
    maxTopicsPerNamespace: NoneAtZero = 0
    defaultNumberOfNamespaceBundles: Positive = 4
    forceDeleteTenantAllowed: bool = False
    forceDeleteNamespaceAllowed: bool = False
    brokerDeleteInactiveTopicsEnabled: bool = True
    brokerDeleteInactiveTopicsMode: InactiveTopicMode = "delete_when_no_subscriptions"
    brokerDeleteInactiveTopicsFrequencySeconds: Positive = 60
    brokerDeleteInactiveTopicsMaxInactiveDurationSeconds: Annotated[int, Bounds(-1)] = -1
    brokerDeleteInactivePartitionedTopicMetadataEnabled: bool = False
    defaultRetentionTimeInMinutes: Annotated[int, Bounds(-1)] = 0
    defaultRetentionSizeInMB: Annotated[int, Bounds(-1)] = 0
    retentionCheckIntervalInSeconds: NoneAtZero = 120
    backlogQuotaCheckEnabled: bool = True
    backlogQuotaCheckIntervalInSeconds: Positive = 60
    backlogQuotaDefaultLimitGB: float = -1.0
    backlogQuotaDefaultLimitBytes: int = -1
    backlogQuotaDefaultLimitSecond: int = -1
    backlogQuotaDefaultRetentionPolicy: Literal[
        "producer_request_hold", "producer_exception", "consumer_backlog_eviction"
    ] = "producer_request_hold"
    preciseTimeBasedBacklogQuotaCheck: bool = False
    ttlDurationDefaultInSeconds: Count = 0
    messageExpiryCheckIntervalInMinutes: Positive = 5
    brokerServiceCompactionMonitorIntervalInSeconds: Positive = 60
    subscriptionExpirationTimeMinutes: Count = 0
    subscriptionExpiryCheckIntervalInMinutes: Positive = 5
    statsUpdateFrequencyInSecs: Positive = 60

    # --- producers ----------------------------------------------------------------------
    maxProducersPerTopic: NoneAtZero = 0
    maxSameAddressProducersPerTopic: NoneAtZero = 0
    maxPublishRatePerTopicInMessages: NoneAtZero = 0
    maxPublishRatePerTopicInBytes: NoneAtZero = 0
    brokerPublisherThrottlingMaxMessageRate: NoneAtZero = 0
    brokerPublisherThrottlingMaxByteRate: NoneAtZero = 0
    encryptionRequireOnProducer: bool = False
    brokerDeduplicationEnabled: bool = False
    brokerDeduplicationEntriesInterval: Count = 1_000
    brokerDeduplicationMaxNumberOfProducers: Count = 10_000
    brokerDeduplicationProducerInactivityTimeoutMinutes: Positive = 360
    brokerDeduplicationSnapshotFrequencyInSeconds: NoneAtZero = 120
    brokerDeduplicationSnapshotIntervalSeconds: NoneAtZero = 120
    brokerEntryMetadataInterceptors: tuple[str, ...] = ()
    exposingBrokerEntryMetadataToClientEnabled: bool = False

    # --- schemas ------------------------------------------------------------------------
    isSchemaValidationEnforced: bool = False
    isAllowAutoUpdateSchemaEnabled: bool = True
    schemaCompatibilityStrategy: SchemaStrategy = "FULL"
    schemaMaxSizeBytes: Positive = 256 * 1024
    schemaCheckMaxSteps: Positive = 1_000_000
    schemaCheckTimeoutMillis: Positive = 10_000
    schemaCheckThreads: Positive = 1
    schemaCheckMaxPending: Positive = 1_000

    # --- subscriptions and dispatch -----------------------------------------------------
    allowAutoSubscriptionCreation: bool = True
    strictlyVerifySubscriptionName: bool = False
    maxSubscriptionsPerTopic: NoneAtZero = 0
    maxConsumersPerTopic: NoneAtZero = 0
    maxConsumersPerSubscription: NoneAtZero = 0
    maxSameAddressConsumersPerTopic: NoneAtZero = 0
    subscribeThrottlingRatePerConsumer: NoneAtZero = 0
    subscribeRatePeriodPerConsumerInSecond: Positive = 30
    maxConsumerMetadataSize: Count = 1024
    maxConsumerNameSize: Positive = 65_536
    maxProducerMetadataSize: Positive = 65_536
    maxProducerMetadataSizeInMB: Positive = 128
    subscriptionTypesEnabled: tuple[str, ...] = SUBSCRIPTION_TYPES
    systemTopicEnabled: bool = True
    topicLevelPoliciesEnabled: bool = True
    maxUnackedMessagesPerConsumer: NoneAtZero = 50_000
    maxUnackedMessagesPerSubscription: NoneAtZero = 200_000
    maxUnackedMessagesPerBroker: NoneAtZero = 0
    maxUnackedMessagesPerSubscriptionOnBrokerBlocked: Ratio = 0.16
    dispatchThrottlingRateInMsg: NoneAtZero = 0
    dispatchThrottlingRateInByte: NoneAtZero = 0
    dispatchThrottlingRatePerTopicInMsg: NoneAtZero = 0
    dispatchThrottlingRatePerTopicInByte: NoneAtZero = 0
    dispatchThrottlingRatePerSubscriptionInMsg: NoneAtZero = 0
    dispatchThrottlingRatePerSubscriptionInByte: NoneAtZero = 0
    dispatchThrottlingRateRelativeToPublishRate: bool = False
    dispatchThrottlingOnBatchMessageEnabled: bool = False
    dispatchThrottlingOnNonBacklogConsumerEnabled: bool = True
    managedLedgerCursorBackloggedThreshold: Count = 1_000
    acknowledgmentAtBatchIndexLevelEnabled: bool = False
    activeConsumerFailoverDelayTimeMillis: Count = 1_000
    subscriptionKeySharedUseConsistentHashing: bool = True
    subscriptionKeySharedConsistentHashingReplicaPoints: Positive = 100
    keySharedLookAheadMsgInReplayThresholdPerConsumer: NoneAtZero = 2_000
    keySharedLookAheadMsgInReplayThresholdPerSubscription: NoneAtZero = 20_000
    dispatcherMaxReadBatchSize: Positive = 100
    dispatcherMaxReadSizeBytes: Annotated[int, Bounds(-1)] = 5 * 1024 * 1024
    dispatcherMaxRoundRobinBatchSize: Count = 20
    dispatcherPauseOnAckStatePersistentEnabled: bool = False
    delayedDeliveryEnabled: bool = True
    delayedDeliveryTickTimeMillis: Count = 1_000
    delayedDeliveryMaxDelayInMillis: NoneAtZero = 0
    delayedDeliveryMaxEntriesPerTopic: Positive = 500_000
    delayedDeliveryMaxEntriesPerBroker: Positive = 2_000_000

    # --- broadcast subscriptions (Vela's own) -------------------------------------------
    broadcastSubscriptionNamePattern: Annotated[str, Pattern()] = ""
    broadcastVirtualCursorRetentionMinutes: Count = 60
    broadcastSnapshotIntervalMillis: Positive = 1_000

    # --- managed ledgers ----------------------------------------------------------------
    managedLedgerDefaultEnsembleSize: Positive = 1
    managedLedgerDefaultWriteQuorum: Positive = 1
    managedLedgerDefaultAckQuorum: Positive = 1
    managedLedgerDigestType: Literal["CRC32C", "CRC32", "MAC", "DUMMY"] = "CRC32C"
    managedLedgerPassword: str = ""
    managedLedgerCacheSizeMB: Count = 64
    managedLedgerCacheEvictionTimeThresholdMillis: Count = 1_000
    managedLedgerCacheEvictionWatermark: Ratio = 0.9
    managedLedgerCacheEvictionIntervalMs: Positive = 100
    managedLedgerCacheEvictionFrequency: Rate = 0.0
    managedLedgerMaxEntriesPerLedger: Count = 50_000
    managedLedgerMaxSizePerLedgerMbytes: Count = 2_048
    managedLedgerMinLedgerRolloverTimeMinutes: Count = 10
    managedLedgerMaxLedgerRolloverTimeMinutes: Count = 240
    managedLedgerCursorMaxEntriesPerLedger: Positive = 50_000
    managedLedgerCursorRolloverTimeInSeconds: Positive = 14_400
    managedLedgerCursorPositionFlushSeconds: Positive = 60
    managedLedgerDefaultMarkDeleteRateLimit: Rate = 1.0
    managedLedgerForceRecovery: bool = False
    managedLedgerMaxUnackedRangesToPersist: Count = 10_000
    managedLedgerMaxUnackedRangesToPersistInMetadataStore: Count = 1_000
    managedLedgerMaxBatchDeletedIndexToPersist: Count = 10_000

    # --- metrics ------------------------------------------------------------------------
    exposeTopicLevelMetricsInPrometheus: bool = True
    exposeConsumerLevelMetricsInPrometheus: bool = False
    eventLoopWatchdogEnabled: bool = True
    """Vela's own."""

    # --- bookie: reads over TCP ---------------------------------------------------------
    bookiePort: Annotated[int, Bounds(-1, 65535)] = -1
    nettyMaxFrameSizeBytes: Positive = 5_253_120
    maxBatchReadSize: Positive = 5 * 1024 * 1024
    bookieMaxConnections: NoneAtZero = 256

    # --- bookie: journal ----------------------------------------------------------------
    journalDirectories: tuple[str, ...] = ()
    journalSyncData: bool = True
    journalMaxSizeMB: Positive = 2_048
    journalMaxBackups: Count = 5
    journalPreAllocSizeMB: Positive = 16
    journalAlignmentSize: Annotated[int, Bounds(512)] = 4096
    journalBufferedWritesThreshold: Count = 8 * 1024 * 1024
    journalAdaptiveGroupWrites: bool = True
    journalMaxGroupWaitMSec: GroupWait = 1
    journalFlushWhenQueueEmpty: bool = False
    maxPendingAddRequestsPerThread: NoneAtZero = 10_000

    # --- bookie: ledger storage ---------------------------------------------------------
    ledgerDirectories: tuple[str, ...] = ()
    allowStorageExpansion: bool = False
    flushInterval: Positive = 60_000
    logSizeLimit: Annotated[int, Bounds(4096, 2**30)] = 1_073_741_824
    dbStorage_writeCacheMaxSizeMb: Positive = 128
    dbStorage_readAheadCacheMaxSizeMb: Count = 64
    dbStorage_readAheadCacheBatchSize: Count = 100
    dbStorage_rocksDB_blockCacheSize: Count = INDEX_BLOCK_CACHE_BYTES
    dbStorage_maxThrottleTimeMs: Count = 10_000
    numReadWorkerThreads: Count = 8
    maxPendingReadRequestsPerThread: NoneAtZero = 2_500
    gcWaitTime: Positive = 900_000
    minorCompactionThreshold: Ratio = 0.2
    minorCompactionInterval: NoneAtZero = 3_600
    majorCompactionThreshold: Ratio = 0.5
    majorCompactionInterval: NoneAtZero = 86_400
    compactionRateByEntries: Positive = 1_000
    minUsableSizeForHighPriorityWrites: Count = 256 * 1024 * 1024
    diskUsageThreshold: Annotated[float, Bounds(0.001, 0.999)] = 0.95
    diskUsageWarnThreshold: Ratio = 0.90
    diskCheckInterval: Positive = 10_000

    @property
    def advertised_host(self) -> str:
        """The host in answers to lookups, to which clients connect next."""
        if self.advertisedAddress:
            return self.advertisedAddress
        return "localhost" if self.bindAddress in WILDCARD_ADDRESSES else self.bindAddress


WILDCARD_ADDRESSES: Final = ("0.0.0.0", "::", "")


DEFAULT_CONFIG: Final = BrokerConfig()
"""Pulsar's defaults with Vela's few exceptions; immutable, so that it can be shared."""
