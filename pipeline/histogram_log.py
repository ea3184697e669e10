"""Latencies from HdrHistogram's interval logs, such as pulsar-perf's `--histogram-file`.

A line is an interval: start, length, maximum, and the counts of all values in it, compressed
(format V2, base64). The log does not say what its values are in: pulsar-perf counts milliseconds
in `consume` and microseconds in `produce`, and writes no interval for what came after the last of
its reports, one every 10 s. Pure.

Source: the javadoc of HdrHistogram's HistogramLogReader, for the lines.
"""

from __future__ import annotations

import binascii
import zlib
from typing import TYPE_CHECKING, Final

from hdrh.codec import HdrCookieException, HdrLengthException
from hdrh.histogram import HdrHistogram

from pipeline.latency import BUCKETS, RunFigures, UnknownRecording

if TYPE_CHECKING:
    from collections.abc import Iterable

UNITS_MS: Final = {"ns": 1e-6, "us": 1e-3, "ms": 1.0}
_PERCENTS: Final = {"p50": 50.0, "p95": 95.0, "p99": 99.0, "p99.9": 99.9}
_DAMAGE: Final = (binascii.Error, zlib.error, HdrCookieException, HdrLengthException, ValueError)


def from_histogram_log(run: str, text: str, unit: str) -> RunFigures:
    """All intervals of the log together; `unit` is one of `UNITS_MS`. Figures are right within the
    precision the histograms were recorded with.

    Raises: UnknownRecording.
    """
    intervals: list[HdrHistogram] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith(("#", '"')):
            continue
        try:
            intervals.append(HdrHistogram.decode(line.rpartition(",")[2].strip()))
        except _DAMAGE:
            raise UnknownRecording(
                f"{run}: line {number} is no interval of an HdrHistogram log, as pulsar-perf "
                "--histogram-file writes it; --perf reads what pulsar-perf prints"
            ) from None
    if not any(interval.get_total_count() for interval in intervals):
        raise UnknownRecording(f"{run}: no interval of an HdrHistogram log with a value")
    # A recorder that resizes itself writes intervals of growing ranges: the widest holds all.
    intervals.sort(key=lambda interval: interval.highest_trackable_value, reverse=True)
    whole, *others = intervals
    for interval in others:
        whole.add(interval)
    scale = UNITS_MS[unit]
    delivery = {
        name: whole.get_value_at_percentile(percent) * scale for name, percent in _PERCENTS.items()
    }
    delivery["max"] = whole.get_max_value() * scale
    counted = (
        (item.value_iterated_to * scale, item.count_added_in_this_iter_step)
        for item in whole.get_recorded_iterator()
    )
    return RunFigures(
        run=run,
        delivery=delivery,
        messages=whole.get_total_count(),
        delivery_histogram=_equal_buckets(counted, delivery["max"]),
    )


def _equal_buckets(
    counted: Iterable[tuple[float, int]], most: float
) -> tuple[list[float], list[int]]:
    width = (most or 1.0) / BUCKETS
    counts = [0] * BUCKETS
    for value, count in counted:
        counts[min(int(value / width), BUCKETS - 1)] += count
    return [width * index for index in range(BUCKETS + 1)], counts
