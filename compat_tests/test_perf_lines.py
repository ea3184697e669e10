"""The benchmark reads pulsar-perf's own lines, of its producer and of its consumer."""

from __future__ import annotations

from compat_tests.bench.perf_client import parse_window

HEAD = "2026-01-02T03:04:05,500+0000 [main] INFO  org.apache.pulsar.testclient.Performance"


def test_a_line_of_the_producer():
    line = (
        f"{HEAD}Producer - Throughput produced:    6536 msg ---    653.6 msg/s ---      5.1 Mbit/s"
        "  --- failure      0.0 msg/s --- Latency: mean:  19.721 ms - med:  11.108 - 95pct:  66.354"
        " - 99pct: 149.443 - 99.9pct: 189.707 - 99.99pct: 194.091 - Max: 194.895"
    )
    window = parse_window(line, read_at=0.0)
    assert window is not None
    assert (window.messages, window.rate) == (6536, 653.6)
    assert (window.p50_ms, window.p99_ms) == (11.108, 149.443)
    assert window.printed_at % 1 == 0.5


def test_a_line_of_the_consumer():
    line = (
        f"{HEAD}Consumer - Throughput received:   33769 msg --- 3302.514  msg/s --- 25.801 Mbit/s"
        "  --- Latency: mean: 129.536 ms - med: 109 - 95pct: 328 - 99pct: 363 - 99.9pct: 394"
        " - 99.99pct: 412 - Max: 412"
    )
    window = parse_window(line, read_at=0.0)
    assert window is not None
    assert (window.messages, window.rate) == (33769, 3302.514)
    assert (window.p50_ms, window.p99_ms) == (109.0, 363.0)


def test_other_lines_are_none():
    assert parse_window("Aggregated throughput stats --- 7001 records sent", 0.0) is None
