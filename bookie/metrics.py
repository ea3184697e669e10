"""The series of a bookie on a Prometheus page, under BookKeeper's names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bookie.statistics import LATENCY_BUCKETS_MS
from web.prometheus import label_text, quantile

if TYPE_CHECKING:
    from bookie.bookie import Bookie
    from bookie.net.server import BookieServer
    from web.prometheus import Page

_OF_BOOKIE: Final = "Of the bookie in this process"
_QUANTILES: Final = (0.5, 0.95, 0.99, 0.999, 0.9999, 1.0)


def add_bookie_series(page: Page, bookie: Bookie, server: BookieServer | None) -> None:
    """All there is of a bookie and of its port."""
    statistics = bookie.statistics()
    histograms = statistics.histograms()
    counted = {f"{name}_count" for name, _ in histograms}
    single = [
        *statistics.series(),
        ("bookie_read_cache_hits", statistics.read_cache_hits),
        ("bookie_read_cache_misses", statistics.read_cache_misses),
    ]
    for name, value in single:
        if name not in counted:
            page.add(name, "gauge", _OF_BOOKIE, "", value)
    for name, histogram in histograms:
        lines = page.family(name, "summary", f"Milliseconds. {_OF_BOOKIE}")
        for fraction in _QUANTILES:
            labels = label_text({"success": "true", "quantile": str(fraction)})
            value = quantile(histogram.counts, LATENCY_BUCKETS_MS, fraction)
            lines.append(f"{name}{labels} {value}")
        lines.append(f"{name}_count {histogram.count}")
        lines.append(f"{name}_sum {histogram.sum_seconds * 1000}")
    if server is not None:
        for name, kind, help_text, value in server.series():
            page.add(name, kind, help_text, "", value)
