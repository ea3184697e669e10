"""The benchmark reads pulsar-perf's own lines, of its producer and of its consumer."""

from __future__ import annotations

import pytest

from bench.perf_client import parse_window, problem_in

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


def test_a_line_with_failures_is_a_problem():
    line = f"{HEAD}Producer - Throughput produced: 6536 msg --- 653.6 msg/s --- failure {{}} msg/s"
    assert problem_in(line.format("0.0")) is None
    assert problem_in(line.format("1,234.5")) == line.format("1,234.5")


@pytest.mark.parametrize(
    ("level", "text", "counts"),
    [
        ("ERROR", "anything", True),
        ("WARN", "Write message error with exception", True),
        ("WARN", "[/127.0.0.1:6650] Connection closed", True),
        ("WARN", "a setting is deprecated", False),
        ("INFO", "Producer closed", False),
    ],
)
def test_errors_of_the_client_are_problems(level: str, text: str, counts: bool):
    line = f"2026-01-02T03:04:05,500+0000 [pulsar-client-io-1-1] {level} org.apache.Some - {text}\n"
    assert (problem_in(line) is not None) is counts
