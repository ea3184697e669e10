"""The settings of managed ledgers. Defaults and meanings are those of Pulsar's `managedLedger*`
keys."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from broker.ground.config import BrokerConfig
    from ledgers.replication import Replication

_MIB = 1024 * 1024
_EVICTION_FREQUENCY_MIN: Final = 0.001
_EVICTION_FREQUENCY_MAX: Final = 1_000.0
"""Per second."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPolicy:
    """How long consumed ledgers are kept. -1 = for ever, 0 and 0 = not at all (Pulsar's rule: a
    ledger is deleted when it is older than the time *or* the topic is larger than the size)."""

    time_minutes: int = 0
    size_mb: int = 0


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerPolicies:
    """The settings that may differ between topics, and change while they are loaded."""

    retention: RetentionPolicy = RetentionPolicy()
    replication: Replication | None = None
    """The replication of ledgers made from now on; None: as the ledger client is configured."""
    mark_delete_rate_max: float = 1.0
    """How many times per second a cursor that changes is stored; 0 or less: no limit. A crash may
    lose the acks since the last time."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ManagedLedgerConfig:
    """One object for all topics of a broker."""

    max_entries_per_ledger: int = 50_000
    max_size_per_ledger_bytes: int = 2048 * _MIB
    min_rollover_time_s: float = 600.0
    max_rollover_time_s: float = 240 * 60.0

    policies: LedgerPolicies = LedgerPolicies()
    """The policies of ledgers that are opened without any."""
    retention_check_interval_s: float = 120.0

    cache_size_bytes: int = 64 * _MIB
    cache_eviction_watermark: float = 0.9
    cache_eviction_time_s: float = 1.0
    cache_eviction_interval_s: float = 0.1
    read_ahead_size_bytes: int = 1 * _MIB
    """Size of one backlog read. The next one is fetched while this one is being consumed."""

    cursor_flush_interval_max_s: float = 60.0
    """Bounds that of each topic."""
    cursor_max_entries_per_ledger: int = 50_000
    cursor_rollover_time_s: float = 14_400.0
    cursor_flushes_in_flight_max: int = 64
    force_recovery: bool = False
    """A cursor whose ledger cannot be read continues from its record in the metadata store."""
    max_ranges_as_ranges: int = 500
    """Above it a cursor ledger stores individual acks as bit words: 8 bytes per 64 entries and a
    hundred times cheaper to write. Pulsar 4.0 reads both forms."""
    max_ranges_to_persist: int = 10_000
    """Only bounds ranges stored inline because no cursor ledger can be written."""
    max_ranges_in_metadata_store: int = 1_000
    max_batch_indexes_to_persist: int = 10_000
    max_cursor_entry_size_bytes: int = 4 * _MIB

    roll_attempts_max: int = 3
    roll_retry_delay_s: float = 0.2
    broken_delay_max_s: float = 10.0
    """A topic that cannot be written tries a new ledger at most this seldom. The delay starts at
    `roll_retry_delay_s` and doubles after each failure."""

    young_ledger_s: float = 0.2
    young_ledger_entries: int = 2
    """A ledger that fails earlier, or after so few entries, is young. The second one in a row is
    replaced after a pause. In an ensemble of three with one bookie gone at most two entries in a
    row find bookies."""
    rolls_per_second_max: float = 20.0
    """New ledgers of all topics together in the place of ledgers that failed. Each costs about
    seven writes to the metadata store."""
    rolls_per_second_recovering_max: float = 1000.0
    """The same while entries of such topics are stored: see `roll_pace`."""

    @classmethod
    def from_broker_config(cls, config: BrokerConfig) -> ManagedLedgerConfig:
        """The settings from the configuration file."""
        rollover_minutes_min = config.managedLedgerMinLedgerRolloverTimeMinutes
        rollover_minutes_max = config.managedLedgerMaxLedgerRolloverTimeMinutes
        return cls(
            max_entries_per_ledger=max(1, config.managedLedgerMaxEntriesPerLedger),
            max_size_per_ledger_bytes=max(1, config.managedLedgerMaxSizePerLedgerMbytes * _MIB),
            min_rollover_time_s=rollover_minutes_min * 60.0,
            max_rollover_time_s=max(rollover_minutes_min, rollover_minutes_max) * 60.0,
            retention_check_interval_s=config.retentionCheckIntervalInSeconds or math.inf,
            cache_size_bytes=config.managedLedgerCacheSizeMB * _MIB,
            cache_eviction_watermark=config.managedLedgerCacheEvictionWatermark,
            cache_eviction_time_s=config.managedLedgerCacheEvictionTimeThresholdMillis / 1000,
            cache_eviction_interval_s=_eviction_interval_s(config),
            cursor_flush_interval_max_s=config.managedLedgerCursorPositionFlushSeconds,
            cursor_max_entries_per_ledger=config.managedLedgerCursorMaxEntriesPerLedger,
            cursor_rollover_time_s=config.managedLedgerCursorRolloverTimeInSeconds,
            force_recovery=config.managedLedgerForceRecovery,
            max_ranges_to_persist=config.managedLedgerMaxUnackedRangesToPersist,
            max_ranges_in_metadata_store=(
                config.managedLedgerMaxUnackedRangesToPersistInMetadataStore
            ),
            max_batch_indexes_to_persist=config.managedLedgerMaxBatchDeletedIndexToPersist,
        )


def _eviction_interval_s(config: BrokerConfig) -> float:
    """The older key, evictions per second, wins if it is above 0, as in `ServiceConfiguration` of
    Pulsar 4.0."""
    frequency = config.managedLedgerCacheEvictionFrequency
    if frequency > 0:
        return 1 / min(max(frequency, _EVICTION_FREQUENCY_MIN), _EVICTION_FREQUENCY_MAX)
    return min(config.managedLedgerCacheEvictionIntervalMs / 1000, 1 / _EVICTION_FREQUENCY_MIN)
