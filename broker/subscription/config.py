"""The settings of subscriptions, under Pulsar's names in snake case, with Pulsar's defaults.

The broker's configuration supplies them. 0 in a limit means no limit, as in Pulsar.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True, slots=True)
class SubscriptionConfig:
    """One immutable set, shared by all subscriptions of a topic."""

    max_unacked_messages_per_consumer: int = 50_000
    max_unacked_messages_per_subscription: int = 200_000
    max_unacked_messages_per_broker: int = 0
    max_consumers_per_subscription: int = 0
    dispatcher_max_read_batch_size: int = 1_000
    """Entries read at once and sent to one consumer before others are served."""
    dispatcher_max_read_size_bytes: int = 1_048_576
    dispatcher_max_round_robin_batch_size: int = 20
    """Entries that one Shared consumer gets before it is the next one's turn."""
    active_consumer_failover_delay_time_millis: int = 1_000
    acknowledgment_at_batch_index_level_enabled: bool = False
    delayed_delivery_enabled: bool = True
    delayed_delivery_entries_max: int = 1_000_000
    """Delayed entries that one subscription indexes in memory. At the bound it reads no further
    until some are due, so later entries wait after them."""
    subscription_key_shared_use_consistent_hashing: bool = False
    subscription_key_shared_consistent_hashing_replica_points: int = 100
    key_shared_look_ahead_msg_in_replay_threshold_per_consumer: int = 2_000
    key_shared_look_ahead_msg_in_replay_threshold_per_subscription: int = 20_000
    expose_broker_entry_metadata: bool = False
    """exposingBrokerEntryMetadataToClientEnabled: leave 0x0e02 headers for clients that ask."""
    broadcast_subscription_name_pattern: str = ""
    """A new subscription whose whole name matches is a broadcast; empty: none is."""
    broadcast_virtual_cursor_retention_minutes: int = 60
    """How long the position of a consumer that has left a broadcast is kept; 0: for ever."""
    broadcast_snapshot_interval_millis: int = 1_000
    """How often changed positions of a broadcast are stored."""
    non_durable_linger_seconds: float = 60.0
    """How long a reader's position is kept for its reconnect after a seek."""
