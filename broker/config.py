"""The configuration of a broker and its embedded bookie: one frozen object, Pulsar's key names.

Every attribute is a key of Pulsar's `broker.conf`/`standalone.conf` or of BookKeeper's
`bookkeeper.conf`, with the type and the default of Pulsar 4.0 and BookKeeper 4.17, so that a value
looked up in Pulsar's documentation means the same here. Only keys that change what Vela does are
here; the other keys of real Pulsar are listed in `pulsar_keys.conf` (see `broker.config_file`).

Where Vela's default differs on purpose: `bindAddress` (loopback, a laptop is not a server),
`clusterName` and the quorum sizes (one embedded bookie), `webServicePort`/`brokerServicePort` (0
takes a free port), the cache sizes that Pulsar derives from the JVM's direct memory, and a few
sizes of the bookie (`journalBufferedWritesThreshold`, `dbStorage_readAheadCacheBatchSize`) that
Pulsar chose for another machine. `bookiePort` is off: the broker does not need it.

Bounds are part of the type (`Annotated` with a `Bounds` or `Pattern`); `broker.config_file`
enforces them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, Literal, final


@final
@dataclass(frozen=True, slots=True)
class Bounds:
    """The closed range in which a number must lie; None = open on that side."""

    minimum: float | None
    maximum: float | None = None


@final
@dataclass(frozen=True, slots=True)
class Pattern:
    """The text must be a regular expression of Python; empty = none."""


Count = Annotated[int, Bounds(0)]
Positive = Annotated[int, Bounds(1)]
Port = Annotated[int, Bounds(0, 65535)]
Ratio = Annotated[float, Bounds(0, 1)]
Rate = Annotated[float, Bounds(0)]
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


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """All settings. Numbers that are limits mean "no limit" when 0, as in Pulsar."""

    # --- where it listens ---------------------------------------------------------------
    clusterName: str = "standalone"
    bindAddress: str = "127.0.0.1"
    advertisedAddress: str = ""
    brokerServicePort: Port = 6650
    webServicePort: Port = 8080

    # --- connections --------------------------------------------------------------------
    keepAliveIntervalSeconds: Positive = 30
    maxMessageSize: Annotated[int, Bounds(1, 2**31 - 10240 - 1)] = 5 * 1024 * 1024
    brokerMaxConnections: Count = 0
    brokerMaxConnectionsPerIp: Count = 0
    maxConcurrentTopicLoadRequest: Positive = 5_000
    maxPendingPublishRequestsPerConnection: Positive = 1_000
    maxMessagePublishBufferSizeInMB: Positive = 256
    connectionLivenessCheckTimeoutMillis: Count = 5_000
    topicLoadTimeoutSeconds: Positive = 60
    brokerShutdownTimeoutMs: Positive = 60_000

    # --- topics and namespaces ----------------------------------------------------------
    enablePersistentTopics: bool = True
    enableNonPersistentTopics: bool = True
    allowAutoTopicCreation: bool = True
    allowAutoTopicCreationType: Literal["non-partitioned", "partitioned"] = "non-partitioned"
    defaultNumPartitions: Positive = 1
    maxNumPartitionsPerPartitionedTopic: Count = 0
    maxTenants: Count = 0
    maxNamespacesPerTenant: Count = 0
    maxTopicsPerNamespace: Count = 0
    defaultNumberOfNamespaceBundles: Positive = 4
    forceDeleteTenantAllowed: bool = False
    forceDeleteNamespaceAllowed: bool = False
    brokerDeleteInactiveTopicsEnabled: bool = True
    brokerDeleteInactiveTopicsMode: Literal[
        "delete_when_no_subscriptions", "delete_when_subscriptions_caught_up"
    ] = "delete_when_no_subscriptions"
    brokerDeleteInactiveTopicsFrequencySeconds: Positive = 60
    brokerDeleteInactiveTopicsMaxInactiveDurationSeconds: Count = 0
    defaultRetentionTimeInMinutes: Annotated[int, Bounds(-1)] = 0
    defaultRetentionSizeInMB: Annotated[int, Bounds(-1)] = 0
    retentionCheckIntervalInSeconds: Positive = 120
    statsUpdateFrequencyInSecs: Positive = 60

    # --- producers ----------------------------------------------------------------------
    maxProducersPerTopic: Count = 0
    encryptionRequireOnProducer: bool = False
    brokerDeduplicationEnabled: bool = False
    brokerDeduplicationEntriesInterval: Positive = 1_000
    brokerDeduplicationMaxNumberOfProducers: Positive = 10_000
    brokerDeduplicationProducerInactivityTimeoutMinutes: Positive = 360
    brokerEntryMetadataInterceptors: tuple[str, ...] = ()
    exposingBrokerEntryMetadataToClientEnabled: bool = False

    # --- schemas ------------------------------------------------------------------------
    isSchemaValidationEnforced: bool = False
    isAllowAutoUpdateSchemaEnabled: bool = True
    schemaCompatibilityStrategy: SchemaStrategy = "FULL"

    # --- subscriptions and dispatch -----------------------------------------------------
    allowAutoSubscriptionCreation: bool = True
    maxSubscriptionsPerTopic: Count = 0
    maxConsumersPerTopic: Count = 0
    maxConsumersPerSubscription: Count = 0
    maxUnackedMessagesPerConsumer: Count = 50_000
    maxUnackedMessagesPerSubscription: Count = 200_000
    maxUnackedMessagesPerBroker: Count = 0
    acknowledgmentAtBatchIndexLevelEnabled: bool = False
    activeConsumerFailoverDelayTimeMillis: Count = 1_000
    subscriptionKeySharedUseConsistentHashing: bool = True
    subscriptionKeySharedConsistentHashingReplicaPoints: Positive = 100
    keySharedLookAheadMsgInReplayThresholdPerConsumer: Count = 2_000
    keySharedLookAheadMsgInReplayThresholdPerSubscription: Count = 20_000
    dispatcherMaxReadBatchSize: Positive = 100
    dispatcherMaxReadSizeBytes: Positive = 5 * 1024 * 1024
    dispatcherMaxRoundRobinBatchSize: Positive = 20
    delayedDeliveryEnabled: bool = True

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
    managedLedgerCacheSizeMB: Positive = 64
    managedLedgerCacheEvictionTimeThresholdMillis: Positive = 1_000
    managedLedgerCacheEvictionIntervalMs: Positive = 10
    managedLedgerMaxEntriesPerLedger: Positive = 50_000
    managedLedgerMaxSizePerLedgerMbytes: Positive = 2_048
    managedLedgerMinLedgerRolloverTimeMinutes: Count = 10
    managedLedgerMaxLedgerRolloverTimeMinutes: Positive = 240
    managedLedgerCursorMaxEntriesPerLedger: Positive = 50_000
    managedLedgerCursorRolloverTimeInSeconds: Positive = 14_400
    managedLedgerCursorPositionFlushSeconds: Positive = 60
    managedLedgerDefaultMarkDeleteRateLimit: Rate = 1.0
    managedLedgerMaxUnackedRangesToPersist: Positive = 10_000
    managedLedgerMaxUnackedRangesToPersistInMetadataStore: Count = 1_000
    managedLedgerMaxBatchDeletedIndexToPersist: Count = 10_000

    # --- metrics ------------------------------------------------------------------------
    exposeTopicLevelMetricsInPrometheus: bool = True
    exposeConsumerLevelMetricsInPrometheus: bool = False

    # --- bookie: reads over TCP ---------------------------------------------------------
    bookiePort: Annotated[int, Bounds(-1, 65535)] = -1
    nettyMaxFrameSizeBytes: Positive = 5_253_120
    maxBatchReadSize: Positive = 5 * 1024 * 1024
    bookieMaxConnections: Positive = 256

    # --- bookie: journal ----------------------------------------------------------------
    journalDirectories: tuple[str, ...] = ()
    journalSyncData: bool = True
    journalMaxSizeMB: Positive = 2_048
    journalMaxBackups: Count = 5
    journalPreAllocSizeMB: Positive = 16
    journalAlignmentSize: Annotated[int, Bounds(512)] = 4096
    journalBufferedWritesThreshold: Positive = 8 * 1024 * 1024
    maxPendingAddRequestsPerThread: Count = 10_000

    # --- bookie: ledger storage ---------------------------------------------------------
    ledgerDirectories: tuple[str, ...] = ()
    flushInterval: Positive = 60_000
    logSizeLimit: Annotated[int, Bounds(4096, 2**30)] = 1_073_741_824
    dbStorage_writeCacheMaxSizeMb: Positive = 128
    dbStorage_readAheadCacheMaxSizeMb: Positive = 64
    dbStorage_readAheadCacheBatchSize: Positive = 100
    dbStorage_maxThrottleTimeMs: Positive = 10_000
    numReadWorkerThreads: Positive = 8
    maxPendingReadRequestsPerThread: Count = 2_500
    gcWaitTime: Positive = 900_000
    minorCompactionThreshold: Ratio = 0.2
    minorCompactionInterval: Count = 3_600
    majorCompactionThreshold: Ratio = 0.5
    majorCompactionInterval: Count = 86_400
    compactionRateByEntries: Positive = 1_000
    minUsableSizeForHighPriorityWrites: Count = 256 * 1024 * 1024
    diskUsageThreshold: Ratio = 0.95
    diskUsageWarnThreshold: Ratio = 0.90
    diskCheckInterval: Positive = 10_000

    @property
    def advertised_host(self) -> str:
        """The host that lookups answer: what clients will connect to next."""
        if self.advertisedAddress:
            return self.advertisedAddress
        return "localhost" if self.bindAddress in _WILDCARDS else self.bindAddress


_WILDCARDS: Final = ("0.0.0.0", "::", "")


DEFAULT_CONFIG: Final = BrokerConfig()
"""Pulsar's defaults with Vela's few exceptions; immutable, so that everything may share it."""
