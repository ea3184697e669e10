"""The figures of a latency report that need no Spark. Pure.

Three kinds of recordings: the JSON report of `vela perf fanout`, the text that Pulsar's
`pulsar-perf` prints (`Aggregated latency stats --- Latency: mean: ...`), and the JSON result of the
OpenMessaging Benchmark. All become `RunFigures`, as do histograms (`histogram_log`); times are
milliseconds.
"""

from __future__ import annotations

import math
import re
import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

BUCKETS: Final = 100
"""Of a histogram, equally wide from 0 to the maximum."""
PERCENTILES: Final = ("p50", "p95", "p99", "p99.9", "max")
_AGGREGATED: Final = re.compile(r"Aggregated latency stats --- Latency: (.*)")
_RECEIVED: Final = re.compile(r"Aggregated throughput stats --- (\d+) records (received|sent)")
_NAMES: Final = {
    "med": "p50",
    "95pct": "p95",
    "99pct": "p99",
    "99.9pct": "p99.9",
    "max": "max",
    "Max": "max",
}
_OMB_NAMES: Final = {
    "50pct": "p50",
    "95pct": "p95",
    "99pct": "p99",
    "999pct": "p99.9",
    "Max": "max",
}
_OMB_INTERVAL_SECONDS: Final = 10


class UnknownRecording(ValueError):
    """None of these; says what was looked for."""


@final
@dataclass(frozen=True, slots=True)
class RunFigures:
    """One run of one system. `errors`: messages lost, damaged, or consumers that failed."""

    run: str
    delivery: dict[str, float]
    messages: int | None = None
    errors: int = 0
    connect: dict[str, float] = field(default_factory=dict)
    connect_histogram: tuple[list[float], list[int]] = field(default_factory=lambda: ([], []))
    delivery_histogram: tuple[list[float], list[int]] = field(default_factory=lambda: ([], []))
    expected: int | None = None
    stages: dict[str, dict[str, float]] = field(default_factory=dict)


def _ms(figures: Mapping[str, float | None]) -> dict[str, float]:
    return {name: value * 1000 for name, value in figures.items() if value is not None}


def _histogram_ms(histogram: Mapping[str, Any]) -> tuple[list[float], list[int]]:
    edges = [edge * 1000 for edge in histogram.get("edges_seconds", [])]
    return edges, list(histogram.get("counts", []))


def from_fanout(run: str, report: Mapping[str, Any]) -> RunFigures:
    """What `vela perf fanout --json` wrote. Raises: UnknownRecording."""
    try:
        return RunFigures(
            run=run,
            delivery=_ms(report["delivery"]),
            messages=int(report["received"]),
            errors=sum(int(report[name]) for name in ("failed", "lost", "corrupt", "duplicated")),
            connect=_ms(report["connect"]),
            connect_histogram=_histogram_ms(report["connect_histogram"]),
            delivery_histogram=_histogram_ms(report["delivery_histogram"]),
            expected=int(report["expected"]),
            stages={name: _ms(stage) for name, stage in report["stages"].items()},
        )
    except KeyError as error:
        raise UnknownRecording(f"{run}: no report of vela perf fanout: it lacks {error}") from None
    except (TypeError, AttributeError):
        raise UnknownRecording(f"{run}: no report of vela perf fanout") from None


def from_pulsar_perf(run: str, text: str) -> RunFigures:
    """The figures that pulsar-perf printed; its last summary counts. Raises: UnknownRecording."""
    latencies = _AGGREGATED.findall(text)
    if not latencies:
        raise UnknownRecording(f"{run}: no line 'Aggregated latency stats', as pulsar-perf prints")
    delivery = {}
    for name, value in re.findall(r"([\w.]+):\s*([\d.,]+)", latencies[-1]):
        if name in _NAMES:
            delivery[_NAMES[name]] = float(value.replace(",", ""))
    counts = _RECEIVED.findall(text)
    return RunFigures(run=run, delivery=delivery, messages=int(counts[-1][0]) if counts else None)


def from_omb(run: str, result: Mapping[str, Any]) -> RunFigures:
    """The result file of the OpenMessaging Benchmark: what consumers saw, end to end. It has rates
    and no counts; errors of publishing are the rates over its intervals of 10 s.

    Raises: UnknownRecording.

    Source: the fields of TestResult in the benchmark's framework.
    """
    try:
        delivery = {
            name: float(result[f"aggregatedEndToEndLatency{field_name}"])
            for field_name, name in _OMB_NAMES.items()
        }
        errors = sum(result["publishErrorRate"]) * _OMB_INTERVAL_SECONDS
    except KeyError as error:
        raise UnknownRecording(
            f"{run}: no result of the OpenMessaging Benchmark: it lacks {error}"
        ) from None
    except (TypeError, ValueError):
        raise UnknownRecording(f"{run}: no result of the OpenMessaging Benchmark") from None
    return RunFigures(run=run, delivery=delivery, errors=math.ceil(errors))


@final
@dataclass(frozen=True, slots=True)
class Comparison:
    """A system's runs of one figure, and how its median relates to the first system's."""

    system: str
    figure: str
    least: float
    median: float
    most: float
    ratio: float | None


def compare(runs: Mapping[str, Sequence[RunFigures]]) -> tuple[list[Comparison], list[str]]:
    """Rows per system and percentile, and warnings about runs that cannot be compared."""
    rows: list[Comparison] = []
    base: dict[str, float] = {}
    for system, figures in runs.items():
        for name in PERCENTILES:
            values = [run.delivery[name] for run in figures if name in run.delivery]
            if not values:
                continue
            median = statistics.median(values)
            first = base.setdefault(name, median)
            ratio = median / first if first else None
            rows.append(Comparison(system, name, min(values), median, max(values), ratio))
    return rows, _warnings(runs)


def _warnings(runs: Mapping[str, Sequence[RunFigures]]) -> list[str]:
    found = [
        f"{system}: run {run.run} has {run.errors} errors (lost, doubled, damaged or failed)"
        for system, figures in runs.items()
        for run in figures
        if run.errors
    ]
    counts = {
        run.messages for figures in runs.values() for run in figures if run.messages is not None
    }
    if len(counts) > 1:
        texts = ", ".join(f"{count:,}" for count in sorted(counts))
        found.append(f"the runs differ in the number of messages: {texts}")
    return found


def gini(values: Sequence[float]) -> float:
    """0: all the same; towards 1: one has everything."""
    ordered = sorted(values)
    total = sum(ordered)
    if not ordered or not total:
        return 0.0
    weighted = sum(index * value for index, value in enumerate(ordered, start=1))
    count = len(ordered)
    return (2 * weighted) / (count * total) - (count + 1) / count


SPREAD: Final = {"least": 0.0, "p25": 0.25, "median": 0.5, "p75": 0.75, "p95": 0.95, "most": 1.0}


def spread(ordered: Sequence[float]) -> dict[str, float]:
    """How a figure of consumers is spread over them; `ordered` is ascending and not empty. The
    smallest value that at least that part of all is not above."""
    count = len(ordered)
    return {
        name: ordered[max(math.ceil(part * count - 1e-9) - 1, 0)] for name, part in SPREAD.items()
    }
