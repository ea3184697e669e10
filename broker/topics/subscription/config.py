"""The settings of subscriptions, under Pulsar's names in snake case.

`BrokerConfig` has the defaults. 0 in a limit means no limit, as in Pulsar.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from settings.kinds import NO_LIMIT

if TYPE_CHECKING:
    from broker.ground.config import BrokerConfig

LINGER_SECONDS: Final = 60.0
"""No key of the configuration: see the field of `SubscriptionConfig`."""
SLICE_BYTES_MAX: Final = 256 * 1024
"""Sent in one step, and one entry more: a few tenths of a millisecond."""


@final
@dataclass(frozen=True, slots=True)
class SubscriptionConfig:
    """One immutable set, shared by all subscriptions of a topic."""

    dispatcher_max_read_batch_size: int
    """Entries read at once and sent to one consumer before others are served."""
    dispatcher_max_read_size_bytes: int
    dispatcher_max_round_robin_batch_size: int
    """Entries that one Shared consumer gets before it is the next one's turn."""
    active_consumer_failover_delay_time_millis: int
    acknowledgment_at_batch_index_level_enabled: bool
    managed_ledger_max_unacked_ranges: int
    """managedLedgerMaxUnackedRangesToPersist: so many ranges of acknowledged entries are stored."""
    subscription_key_shared_use_consistent_hashing: bool
    subscription_key_shared_consistent_hashing_replica_points: int
    key_shared_look_ahead_msg_in_replay_threshold_per_consumer: int
    key_shared_look_ahead_msg_in_replay_threshold_per_subscription: int
    expose_broker_entry_metadata: bool
    """exposingBrokerEntryMetadataToClientEnabled: leave 0x0e02 headers for clients that ask."""
    broadcast_subscription_name_pattern: str
    """A new subscription whose whole name matches is a broadcast; empty: none is."""
    broadcast_virtual_cursor_retention_minutes: int
    """How long the position of a consumer that has left a broadcast is kept; 0: for ever."""
    broadcast_snapshot_interval_millis: int
    """How often changed positions of a broadcast are stored."""
    force_recovery: bool
    """managedLedgerForceRecovery: give up positions of a broadcast that cannot be read."""
    non_durable_linger_seconds: float
    """How long a reader's position is kept for its reconnect after a seek."""

    @classmethod
    def from_broker_config(cls, config: BrokerConfig) -> SubscriptionConfig:
        """The settings from the configuration file."""
        return cls(
            dispatcher_max_read_batch_size=config.dispatcherMaxReadBatchSize,
            dispatcher_max_read_size_bytes=(
                NO_LIMIT
                if config.dispatcherMaxReadSizeBytes < 0
                else max(1, config.dispatcherMaxReadSizeBytes)
            ),
            dispatcher_max_round_robin_batch_size=max(1, config.dispatcherMaxRoundRobinBatchSize),
            active_consumer_failover_delay_time_millis=config.activeConsumerFailoverDelayTimeMillis,
            acknowledgment_at_batch_index_level_enabled=config.acknowledgmentAtBatchIndexLevelEnabled,
            managed_ledger_max_unacked_ranges=config.managedLedgerMaxUnackedRangesToPersist,
            broadcast_subscription_name_pattern=config.broadcastSubscriptionNamePattern,
            broadcast_virtual_cursor_retention_minutes=config.broadcastVirtualCursorRetentionMinutes,
            broadcast_snapshot_interval_millis=config.broadcastSnapshotIntervalMillis,
            force_recovery=config.managedLedgerForceRecovery,
            subscription_key_shared_use_consistent_hashing=(
                config.subscriptionKeySharedUseConsistentHashing
            ),
            subscription_key_shared_consistent_hashing_replica_points=(
                config.subscriptionKeySharedConsistentHashingReplicaPoints
            ),
            key_shared_look_ahead_msg_in_replay_threshold_per_consumer=(
                config.keySharedLookAheadMsgInReplayThresholdPerConsumer
            ),
            key_shared_look_ahead_msg_in_replay_threshold_per_subscription=(
                config.keySharedLookAheadMsgInReplayThresholdPerSubscription
            ),
            expose_broker_entry_metadata=config.exposingBrokerEntryMetadataToClientEnabled,
            non_durable_linger_seconds=LINGER_SECONDS,
        )
