"""Series that a kind of subscription has in addition to the common ones: gauges and histograms."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.topics.subscription.series import Gauge
from web.prometheus import label_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.topics.subscription.series import HistogramSeries, Series
    from web.prometheus import Page


def add_series(page: Page, labels: dict[str, str], given: Sequence[Series]) -> None:
    """Series of one subscription."""
    for series in given:
        if isinstance(series, Gauge):
            page.add(series.name, "gauge", series.help_text, label_text(labels), series.value)
        else:
            _add_histogram(page, {**labels, **dict(series.labels)}, series)


def _add_histogram(page: Page, labels: dict[str, str], series: HistogramSeries) -> None:
    name = series.name
    lines = page.family(name, "histogram", series.help_text)
    count = 0
    for upper, number in zip((*series.uppers, None), series.counts, strict=True):
        count += number
        bucket = label_text({**labels, "le": "+Inf" if upper is None else f"{upper:g}"})
        lines.append(f"{name}_bucket{bucket} {count}")
    lines.append(f"{name}_sum{label_text(labels)} {series.total:.6f}")
    lines.append(f"{name}_count{label_text(labels)} {count}")
