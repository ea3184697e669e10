"""Metrics that a kind of subscription has in addition to the common ones.

Pure. The page adds the labels of the topic and the subscription.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Sequence


@final
@dataclass(frozen=True, slots=True)
class Gauge:
    """One gauge value."""

    name: str
    help_text: str
    value: float


@final
@dataclass(frozen=True, slots=True)
class HistogramSeries:
    """Counts per bucket. `labels` are its own, in addition to those of the subscription."""

    name: str
    help_text: str
    labels: tuple[tuple[str, str], ...]
    uppers: Sequence[float]
    """Upper ends of the buckets; `counts` has one more, for values above the last."""
    counts: Sequence[int]
    total: float


Series = Gauge | HistogramSeries
