"""Figures of recorded runs: read right, compared right, and not compared in silence."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.latency import (
    RunFigures,
    UnknownRecording,
    compare,
    from_fanout,
    from_omb,
    from_pulsar_perf,
    gini,
    spread,
)

FANOUT = {
    "delivery": {"p50": 0.06, "p99": 0.17, "p99.9": None, "max": 0.18},
    "connect": {"p50": 0.3},
    "connect_histogram": {"edges_seconds": [0, 1, 2], "counts": [3, 4]},
    "delivery_histogram": {"edges_seconds": [0, 0.1, 0.2], "counts": [500, 200]},
    "expected": 702,
    "stages": {"preparing": {"mean": 0.001, "p50": None, "p99": None}},
    "received": 700,
    "failed": 0,
    "lost": 2,
    "corrupt": 0,
    "duplicated": 1,
}
OMB = {
    "workload": "1-topic-1-partition-1kb",
    "publishErrorRate": [0.0, 1.25, 0.0],
    "aggregatedPublishLatency50pct": 7.0,
    "aggregatedEndToEndLatency50pct": 1.5,
    "aggregatedEndToEndLatency95pct": 3.0,
    "aggregatedEndToEndLatency99pct": 9.25,
    "aggregatedEndToEndLatency999pct": 40.0,
    "aggregatedEndToEndLatencyMax": 55.5,
}
PERF = """\
2026-01-01T00:00:00,000+0000 [main] INFO  PerformanceConsumer - Throughput received:   1000 msg
... Aggregated throughput stats --- 12000 records received --- 1000.0 msg/s --- 8.0 Mbit/s
... Aggregated latency stats --- Latency: mean: 1.5 ms - med: 1 - 95pct: 2 - 99pct: 1,003 - \
99.9pct: 1,004 - 99.99pct: 1,005 - 99.999pct: 1,006 - Max: 1,007
"""


def test_a_fanout_report_becomes_milliseconds() -> None:
    run = from_fanout("a", FANOUT)

    assert run.delivery == {"p50": 60, "p99": 170, "max": 180}
    assert (run.messages, run.errors) == (700, 3)
    assert run.connect_histogram == ([0, 1000, 2000], [3, 4])
    assert run.delivery_histogram == ([0, 100, 200], [500, 200])
    assert run.expected == 702
    assert run.stages == {"preparing": {"mean": 1}}


def test_the_last_lines_of_pulsar_perf_are_read() -> None:
    run = from_pulsar_perf("a", PERF)

    assert run.delivery == {"p50": 1, "p95": 2, "p99": 1003, "p99.9": 1004, "max": 1007}
    assert run.messages == 12000


def test_a_result_of_the_openmessaging_benchmark_is_read_end_to_end() -> None:
    run = from_omb("a", OMB)

    assert run.delivery == {"p50": 1.5, "p95": 3.0, "p99": 9.25, "p99.9": 40.0, "max": 55.5}
    assert (run.messages, run.errors) == (None, 13)


def test_something_else_is_refused() -> None:
    with pytest.raises(UnknownRecording, match="publishErrorRate"):
        from_omb("a", {name: rate for name, rate in OMB.items() if name != "publishErrorRate"})
    with pytest.raises(UnknownRecording):
        from_fanout("a", {"delivery": {}})
    with pytest.raises(UnknownRecording):
        from_pulsar_perf("a", "nothing")


def _run(p99: float, messages: int = 10, errors: int = 0) -> RunFigures:
    return RunFigures("r", {"p99": p99}, messages, errors)


def test_medians_are_compared_with_the_first_system() -> None:
    rows, warnings = compare({"one": [_run(4), _run(2), _run(9)], "other": [_run(8)]})

    assert [(row.system, row.least, row.median, row.most, row.ratio) for row in rows] == [
        ("one", 2, 4, 9, 1),
        ("other", 8, 8, 8, 2),
    ]
    assert warnings == []


def test_runs_with_errors_or_other_counts_are_flagged() -> None:
    _, warnings = compare({"one": [_run(1, 10, errors=2)], "other": [_run(1, 11)]})

    assert len(warnings) == 2


@given(st.lists(st.floats(0, 1e6), min_size=1))
def test_the_gini_coefficient_is_a_share(values: list[float]) -> None:
    assert -1e-9 <= gini(values) <= 1


def test_equal_values_are_fair() -> None:
    assert gini([3.0] * 7) == pytest.approx(0)
    assert gini([0, 0, 0, 1]) == pytest.approx(0.75)


def test_a_figure_is_spread_over_consumers() -> None:
    found = spread([float(number) for number in range(1, 101)])

    assert found == {"least": 1, "p25": 25, "median": 50, "p75": 75, "p95": 95, "most": 100}
    assert set(spread([3.0]).values()) == {3}
