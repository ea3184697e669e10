"""Conclusions of the Spark benchmark from its figures."""

from __future__ import annotations

import json

import pytest

from bench import spark_report as report
from bench.spark import data_sets, in_time, variants
from bench.spark_load import values
from bench.spark_report import Backfill, Latencies, Measured, Results

ABOUT = {
    "date": "d",
    "commit": "c",
    "vela": "v",
    "pulsar": "p",
    "machine": "m",
    "cores": 2,
    "connector": "3",
    "spark": {"connector": "3.4.4", "source": "4.2"},
    "tail_rate": 200,
    "backfill_bytes": 2 * 10**9,
}


def figures(seconds: float, served_bytes: int = 2000) -> report.Figures:
    cpu = {"JVM": 1.0, "Python": 0.5, "server": 0.25}
    return report.figures_of(1000, 1_000_000, seconds, cpu, served_bytes)


def test_cpu_is_told_for_a_million_rows_and_served_bytes_for_each_payload_byte():
    found = figures(2.0)

    assert (found["rows/s"], found["MB/s"]) == (500.0, 0.5)
    assert found["JVM CPU s/M rows"] == 1000.0
    assert found["CPU s/M rows"] == 1750.0
    assert found["served"] == 0.002


def test_reads_that_lost_doubled_or_changed_a_row_are_not_timed():
    right = {"rows": 5, "ids": 5, "sum": "1"}

    assert report.disagreement({"a": right, "b": right}, 5) is None
    assert "b gave 4 rows" in str(report.disagreement({"a": right, "b": right | {"rows": 4}}, 5))
    assert "with 4 ids" in str(report.disagreement({"b": right | {"ids": 4}}, 5))
    assert "differ" in str(report.disagreement({"a": right, "b": right | {"sum": "2"}}, 5))


def test_a_round_that_would_end_too_late_is_not_begun():
    def rounds(seconds, deadline):
        clock = [0.0]
        for _ in in_time(3, deadline, lambda: clock[0]):
            clock[0] += seconds
        return clock[0] / seconds

    assert rounds(10, deadline=100) == 3
    assert rounds(10, deadline=29) == 2
    assert rounds(10, deadline=19) == 1
    assert rounds(10, deadline=0) == 1


def test_both_engines_are_compared_with_the_connector_on_one_spark_too():
    names = [each.name for each in variants(["pulsar", "vela"])]

    assert len(names) == len(set(names)) == 8
    assert names[-2:] == ["broker on Spark 3.4.4, vela", "bookie on Spark 3.4.4, vela"]
    assert not [each for each in variants(["pulsar"]) if "on Spark" in each.name]


def test_percentiles_are_those_of_the_nearest_rank():
    found = Latencies.of([float(number) for number in range(100, 0, -1)])

    assert (found.count, found.p50, found.p99, found.max) == (100, 50.0, 99.0, 100.0)
    with pytest.raises(ValueError, match="no message came"):
        Latencies.of([])


def test_values_are_all_different_of_their_size_and_the_same_again():
    first = list(values(2000, 1000))

    assert {len(value) for value in first} == {1000}
    assert len(set(first)) == 2000
    assert first == list(values(2000, 1000))


def test_a_failure_is_told_without_the_trace_before_it():
    assert report.last_line(OSError("trace:\n  File x\nlost: y\n")) == "lost: y"
    assert report.last_line(OSError()) == "OSError"


def test_the_document_holds_every_row_and_every_failure(tmp_path):
    measured = [
        Measured(data.name, each, [figures(1.0), figures(3.0), figures(2.0)])
        for data in data_sets(quick=False)
        for each in variants(["pulsar", "vela"])
    ]
    measured[0].rounds.clear()
    measured[0].failed.append("no answer")
    backfills = [Backfill("broker", [Latencies.of([1.0, 9.0])], [figures(1.0)]), Backfill("bookie")]
    results = Results(ABOUT, measured, backfills, ["out of order"])

    text = report.document(results)
    report.plot(results, tmp_path / "spark.png")

    assert text.count("connector, ") >= 6
    assert "| 1 KB in batches | broker, pulsar | ? | 500 (333-1,000) |" in text
    assert "| 1 KB one by one | broker, vela | 1 | 500 (333-1,000) |" in text
    assert "no answer" in text
    assert "out of order" in text
    assert "| bookie | ? |" in text
    assert (tmp_path / "spark.png").read_bytes()[:4] == b"\x89PNG"
    assert json.loads(json.dumps(report.as_json(results)))["backfills"][0]["p99_ms_median"] == 9.0
