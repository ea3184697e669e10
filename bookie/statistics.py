"""Counters of the bookie as plain integers, and their frozen snapshot for the metrics page.

Names of exported series are BookKeeper's. `BookieStatistics.series()` returns them, so an exporter
needs no table of its own.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import Final, final

LATENCY_BUCKETS_MS: Final = (0.5, 1, 2, 5, 10, 20, 50, 100, 200, 1000)
_BUCKETS_SECONDS = tuple(value / 1000 for value in LATENCY_BUCKETS_MS)


@final
class LatencyHistogram:
    """Counts per bucket (upper bounds LATENCY_BUCKETS_MS, then overflow), total count and sum."""

    __slots__ = ("count", "counts", "sum_seconds")

    def __init__(self) -> None:
        self.counts = [0] * (len(_BUCKETS_SECONDS) + 1)
        self.count = 0
        self.sum_seconds = 0.0

    def observe(self, seconds: float) -> None:
        """One measurement."""
        self.counts[bisect_left(_BUCKETS_SECONDS, seconds)] += 1
        self.count += 1
        self.sum_seconds += seconds

    def merge(self, other: LatencyHistogram) -> None:
        """Add another histogram's counts."""
        self.counts = [a + b for a, b in zip(self.counts, other.counts, strict=True)]
        self.count += other.count
        self.sum_seconds += other.sum_seconds

    def snapshot(self) -> HistogramSnapshot:
        """The current counts."""
        return HistogramSnapshot(tuple(self.counts), self.count, self.sum_seconds)


@final
@dataclass(frozen=True, slots=True)
class HistogramSnapshot:
    """Frozen LatencyHistogram."""

    counts: tuple[int, ...]
    count: int
    sum_seconds: float


@final
@dataclass(frozen=True, slots=True)
class BookieStatistics:
    """The state of a bookie at one moment."""

    state: str
    """`writable`, `read-only` or `failed`."""
    adds: int
    adds_refused: int
    add_bytes: int
    adds_waiting: int
    reads: int
    reads_failed: int
    read_bytes: int
    reads_waiting: int
    read_cache_hits: int
    read_cache_misses: int
    read_cache_bytes: int
    read_cache_entries: int
    write_cache_hits: int
    entry_log_reads: int
    write_cache_bytes: int
    ledgers: int
    journal_queue_entries: int
    journal_groups: int
    journal_entries: int
    journal_bytes: int
    journal_sync: HistogramSnapshot
    add_entry: HistogramSnapshot
    read_entry: HistogramSnapshot
    flush: HistogramSnapshot
    checkpoints: int
    entry_logs: int
    entry_log_bytes: int
    entry_logs_missing: int
    minor_compactions: int
    major_compactions: int
    reclaimed_compaction_bytes: int
    reclaimed_deletion_bytes: int

    def series(self) -> list[tuple[str, float]]:
        """(metric name, value) of every single number, under BookKeeper's names."""
        return [
            ("bookkeeper_server_ADD_ENTRY_count", self.adds),
            ("bookkeeper_server_READ_ENTRY_count", self.reads),
            ("bookkeeper_server_READ_ENTRY_REQUEST", self.reads),
            ("bookkeeper_server_ADD_ENTRY_IN_PROGRESS", self.journal_queue_entries),
            ("bookkeeper_server_ADD_ENTRY_BLOCKED", self.adds_waiting),
            ("bookkeeper_server_READ_ENTRY_BLOCKED", self.reads_waiting),
            ("bookkeeper_server_ADD_ENTRY_REJECTED", self.adds_refused),
            ("bookkeeper_server_READ_ENTRY_FAILED", self.reads_failed),
            ("bookie_journal_JOURNAL_ADD_ENTRY_count", self.journal_entries),
            ("bookie_journal_JOURNAL_QUEUE_SIZE", self.journal_queue_entries),
            ("bookie_journal_JOURNAL_FORCE_WRITE_QUEUE_SIZE", 0),
            ("bookie_journal_JOURNAL_CB_QUEUE_SIZE", 0),
            ("bookie_journal_JOURNAL_NUM_FLUSH_GROUPS", self.journal_groups),
            ("bookie_journal_JOURNAL_WRITE_BYTES", self.journal_bytes),
            ("bookie_write_cache_size", self.write_cache_bytes),
            ("bookie_read_cache_size", self.read_cache_bytes),
            ("bookie_read_cache_count", self.read_cache_entries),
            ("bookie_write_cache_hits", self.write_cache_hits),
            ("bookie_write_cache_misses", self.read_cache_hits + self.read_cache_misses),
            ("bookie_read_cache_hits_count", self.read_cache_hits),
            ("bookie_read_cache_misses_count", self.read_cache_misses),
            ("bookie_entries_count", self.adds),
            ("bookie_ledgers_count", self.ledgers),
            ("bookie_SERVER_STATUS", 1 if self.state == "writable" else 0),
            ("bookie_READ_BYTES", self.read_bytes),
            ("bookie_WRITE_BYTES", self.add_bytes),
            ("bookie_checkpoint_count", self.checkpoints),
            ("bookie_ACTIVE_ENTRY_LOG_COUNT", self.entry_logs),
            ("bookie_ACTIVE_ENTRY_LOG_SPACE_BYTES", self.entry_log_bytes),
            ("bookie_missing_entry_logs", self.entry_logs_missing),
            ("bookie_MINOR_COMPACTION_COUNT", self.minor_compactions),
            ("bookie_MAJOR_COMPACTION_COUNT", self.major_compactions),
            ("bookie_RECLAIMED_COMPACTION_SPACE_BYTES", self.reclaimed_compaction_bytes),
            ("bookie_RECLAIMED_DELETION_SPACE_BYTES", self.reclaimed_deletion_bytes),
        ]

    def histograms(self) -> list[tuple[str, HistogramSnapshot]]:
        """(metric name, histogram) of the latencies."""
        return [
            ("bookkeeper_server_ADD_ENTRY", self.add_entry),
            ("bookkeeper_server_READ_ENTRY", self.read_entry),
            ("bookie_journal_JOURNAL_SYNC", self.journal_sync),
            ("bookie_journal_JOURNAL_ADD_ENTRY", self.add_entry),
            ("bookie_flush", self.flush),
        ]
