"""How often entries were read from the broker's memory, under Pulsar's names and labels.

Rates are those of the last full minute, as for topics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from broker.ground.histograms import MinuteCounts
from web.prometheus import label_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.managed_ledger.entry_cache import EntryCache
    from web.prometheus import Page

_OF_A_MINUTE: Final = (
    ("pulsar_ml_cache_hits_rate", "Entries per second read from memory"),
    ("pulsar_ml_cache_hits_throughput", "Bytes per second read from memory"),
    ("pulsar_ml_cache_misses_rate", "Entries per second read from bookies"),
    ("pulsar_ml_cache_misses_throughput", "Bytes per second read from bookies"),
)


@final
class CacheSeries:
    """The series of one cache."""

    def __init__(self, cache: EntryCache) -> None:
        self._cache = cache
        self._minute = MinuteCounts()

    def close_minute(self) -> None:
        """A minute is over."""
        self._minute.close(self._numbers())

    def add(self, page: Page, ledgers: int, cluster: Mapping[str, str], seconds: float) -> None:
        """All of them. `seconds`: of a minute. `cluster`: the label of every series."""
        labels = label_text(cluster)
        counts = self._cache.counts
        *read, evictions = self._minute.last(self._numbers())
        for (name, help_text), value in zip(_OF_A_MINUTE, read, strict=True):
            page.add(name, "gauge", help_text, labels, value / seconds)
        for name, kind, help_text, value in (
            ("count", "gauge", "Managed ledgers that are open", ledgers),
            ("cache_used_size", "gauge", "Bytes of entries in memory", self._cache.size_bytes),
            ("cache_entries", "gauge", "Entries in memory", counts.inserted - counts.removed),
            ("cache_inserted_entries_total", "counter", "Entries kept in memory", counts.inserted),
            ("cache_evicted_entries_total", "counter", "Entries removed again", counts.removed),
            ("cache_evictions", "gauge", "Evictions in the last minute", evictions),
        ):
            page.add(f"pulsar_ml_{name}", kind, help_text, labels, value)

    def _numbers(self) -> list[float]:
        counts = self._cache.counts
        return [
            counts.hits,
            counts.hit_bytes,
            counts.misses,
            counts.miss_bytes,
            counts.evictions,
        ]
