"""`latency-report` and recordings whose figures are known from plain Python or their text."""

from __future__ import annotations

import json
import math
import random
import statistics
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogWriter
from hypothesis import given
from hypothesis import strategies as st
from pulsar.schema import AvroSchema, Integer, Long, Record

from pipeline.histogram_log import from_histogram_log
from pipeline.jobs import latency_report
from pipeline.jobs.command import JobError
from pipeline.latency import UnknownRecording
from tests.pipeline.topics import publish

if TYPE_CHECKING:
    import pulsar
    from pyspark.sql import SparkSession

PULSAR_PERF = Path(__file__).parent / "recordings" / "pulsar-perf-consume.txt"
PARTS = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p99.9": 0.999, "max": 1.0}
CONSUMERS, MESSAGES = 8, 400


def exact(values: list[float], part: float) -> float:
    """The smallest value that at least that part of all is not above."""
    return sorted(values)[max(math.ceil(part * len(values) - 1e-9) - 1, 0)]


def report(tmp_path: Path, *arguments: str) -> dict[str, Any]:
    summary = tmp_path / "summary.json"
    given = [*arguments, "--output", str(tmp_path / "report"), "--summary", str(summary)]
    assert latency_report.main(given) == 0
    return json.loads(summary.read_text())


def test_percentiles_are_exact_and_the_histogram_is_right_within_a_bucket(
    spark: SparkSession, tmp_path: Path
) -> None:
    chance = random.Random(11)
    of: dict[int, list[float]] = {}
    lines = ["consumer_id,seq,publish_ns,recv_ns"]
    for consumer in range(CONSUMERS):
        taken = [round(chance.lognormvariate(15 + consumer / 10, 0.7)) for _ in range(MESSAGES)]
        of[consumer] = [ns / 1e6 for ns in taken]
        for seq, ns in enumerate(taken):
            lines.append(f"{consumer},{seq},{seq * 10**10},{seq * 10**10 + ns}")
    chance.shuffle(lines[1:])
    (tmp_path / "run.csv").write_text("\n".join(lines) + "\n")

    found = report(tmp_path, "--samples", f"one={tmp_path}/run.csv")["samples"]["one-0"]

    every = [ms for values in of.values() for ms in values]
    assert found["delivery_ms"] == {
        name: pytest.approx(exact(every, part)) for name, part in PARTS.items()
    }
    rows = spark.read.parquet(f"{tmp_path}/report/consumers-one-0").collect()
    assert {int(row["consumer_id"]): [row[name] for name in PARTS] for row in rows} == {
        consumer: pytest.approx([exact(values, part) for part in PARTS.values()])
        for consumer, values in of.items()
    }
    p99s = [exact(values, 0.99) for values in of.values()]
    assert found["per_consumer_ms"]["p99"]["most"] == pytest.approx(max(p99s))
    edges, counts = found["histogram"]["edges_ms"], found["histogram"]["counts"]
    assert sum(counts) == found["deliveries"] == CONSUMERS * MESSAGES
    for part in PARTS.values():
        rank = math.ceil(part * len(every) - 1e-9)
        bucket = next(index for index, upto in enumerate(accumulate(counts)) if upto >= rank)
        value = exact(every, part)
        assert edges[bucket] - 1e-9 <= value <= edges[bucket + 1] + 1e-9


def histogram_log(path: Path, values_us: list[int]) -> str:
    """In two intervals, as HdrHistogram writes them."""
    with path.open("w") as file:
        log = HistogramLogWriter(file)
        log.output_log_format_version()
        log.output_legend()
        for part in (values_us[::2], values_us[1::2]):
            interval = HdrHistogram(1, 24 * 60 * 60 * 1_000_000, 3)
            for value in part:
                interval.record_value(value)
            log.output_interval_histogram(interval)
    return str(path)


def test_a_histogram_log_gives_the_figures_of_its_samples_within_its_precision(
    tmp_path: Path,
) -> None:
    chance = random.Random(12)
    values = [round(chance.lognormvariate(8, 1.2)) for _ in range(5000)]
    log = histogram_log(tmp_path / "run.hgrm", values)

    summary = report(tmp_path, "--hgrm", f"a={log}", "--hgrm-unit", "us")

    found = {row["figure"]: row["median_ms"] for row in summary["comparison"]}
    assert found == {
        name: pytest.approx(exact([us / 1000 for us in values], part), rel=0.001)
        for name, part in PARTS.items()
    }
    run = from_histogram_log("a", Path(log).read_text(), "us")
    edges, counts = run.delivery_histogram
    assert (sum(counts), run.messages) == (5000, 5000)
    assert edges[-1] == pytest.approx(found["max"])
    slow = sum(us > 2 * edges[1] * 1000 for us in values)
    assert sum(counts[2:]) == pytest.approx(slow, rel=0.01)


def test_a_recording_of_pulsar_perf_gives_what_it_printed_at_its_end() -> None:
    run = from_histogram_log("a", PULSAR_PERF.with_suffix(".hgrm").read_text(), "ms")

    # "med: 5 - 95pct: 13 - 99.9pct: 126 - Max: 145", of these and what came after the last report.
    figures = {name: run.delivery[name] for name in ("p50", "p95", "p99.9", "max")}
    assert figures == {"p50": 5, "p95": 13, "p99.9": 126, "max": 145}
    assert run.messages == 2644


class Delivery(Record):
    consumer_id = Integer(required=True)
    seq = Long(required=True)
    publish_ns = Long(required=True)
    recv_ns = Long(required=True)


def test_samples_come_from_a_topic_as_from_a_file(
    spark: SparkSession,
    client: pulsar.Client,
    topic: str,
    server_arguments: list[str],
    tmp_path: Path,
) -> None:
    taken = [
        (consumer, seq, 10**9 * seq, 10**9 * seq + 10**6 * (consumer + 1) * (seq + 1))
        for consumer in range(3)
        for seq in range(50)
    ]
    del taken[70]
    rows = [Delivery(**dict(zip(latency_report.COLUMNS, row, strict=True))) for row in taken]
    publish(client, topic, rows, schema=AvroSchema(Delivery), batched=True)
    lines = [",".join(latency_report.COLUMNS), *(",".join(map(str, row)) for row in taken)]
    (tmp_path / "run.csv").write_text("\n".join(lines) + "\n")

    found = report(
        tmp_path,
        *server_arguments,
        *("--samples", f"topic={topic}", "--samples", f"file={tmp_path}/run.csv"),
    )["samples"]

    assert found["topic-0"].pop("recording") == topic
    assert found["file-1"].pop("recording") == f"{tmp_path}/run.csv"
    for each in found.values():
        for row in each["slowest"]:
            row["consumer_id"] = int(row["consumer_id"])
    assert found["topic-0"] == found["file-1"]
    assert (found["topic-0"]["deliveries"], found["topic-0"]["lost"]) == (149, 1)


def test_intervals_of_growing_ranges_are_added_up() -> None:
    """As the resizing recorders of HdrHistogram write them."""
    intervals = []
    for highest, values in ((2_000, (3, 1_500)), (3_600_000, (900_000,)), (2_000, (7,))):
        interval = HdrHistogram(1, highest, 3)
        for value in values:
            interval.record_value(value)
        intervals.append(f"0.0,1.0,2.0,{interval.encode().decode()}")

    run = from_histogram_log("a", "\n".join(intervals), "ms")

    assert run.messages == 4
    assert run.delivery["p50"] == 7
    assert run.delivery["max"] == pytest.approx(900_000, rel=0.001)


@given(st.data())
def test_a_damaged_histogram_log_is_refused_and_never_read_as_something_else(
    data: st.DataObject,
) -> None:
    encoded = HdrHistogram(1, 1000, 2).encode().decode()
    damaged = data.draw(st.text(st.characters(codec="ascii"), max_size=len(encoded)))
    cut = encoded[: data.draw(st.integers(0, len(encoded) - 1))]
    for payload in (damaged, cut, cut + damaged):
        with pytest.raises(UnknownRecording):
            from_histogram_log("a", f"0.0,1.0,2.0,{payload}", "ms")


def fanout(path: Path, p99_ms: float, received: int = 1000, lost: int = 0) -> str:
    """As `vela perf fanout --json` writes it."""
    figures = {"p50": 0.001, "p95": 0.002, "p99": p99_ms / 1000, "p99.9": 0.2, "max": 0.3}
    nothing: dict[str, list[float]] = {"edges_seconds": [], "counts": []}
    text = {
        "delivery": figures,
        "connect": {},
        "connect_histogram": nothing,
        "delivery_histogram": nothing,
        "stages": {},
        "expected": received + lost,
        "received": received,
        "lost": lost,
        **dict.fromkeys(("failed", "corrupt", "duplicated"), 0),
    }
    path.write_text(json.dumps(text))
    return str(path)


def test_runs_are_compared_by_their_medians_and_those_that_cannot_be_are_named(
    tmp_path: Path,
) -> None:
    p99s = {"old": [8.0, 2.0, 4.0, 6.0], "new": [1.0, 30.0, 2.0]}
    arguments: list[str] = []
    for system, values in p99s.items():
        for index, value in enumerate(values):
            path = fanout(tmp_path / f"{system}-{index}.json", value)
            arguments += ["--fanout", f"{system}={path}"]
    clean = report(tmp_path, *arguments)
    lossy = fanout(tmp_path / "lossy.json", 3.0, 999, lost=1)
    flagged = report(
        tmp_path, *arguments, "--fanout", f"new={lossy}", "--perf", f"perf={PULSAR_PERF}"
    )

    found = {row["system"]: row for row in clean["comparison"] if row["figure"] == "p99"}
    for system, values in p99s.items():
        median = statistics.median(values)
        assert found[system] == {
            "system": system,
            "figure": "p99",
            "min_ms": pytest.approx(min(values)),
            "median_ms": pytest.approx(median),
            "max_ms": pytest.approx(max(values)),
            "ratio": pytest.approx(median / statistics.median(p99s["old"])),
        }
    assert clean["warnings"] == []
    assert flagged["warnings"] == [
        f"new: run {lossy} has 1 errors (lost, doubled, damaged or failed)",
        "the runs differ in the number of messages: 999, 1,000, 3,000",
    ]
    page = (tmp_path / "report" / "report.md").read_text()
    assert all(f"- **Warning**: {text}" in page for text in flagged["warnings"])
    assert "| old | p99 | 2.000 | 5.000 | 8.000 | 1.00 |" in page


def test_what_is_no_recording_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text("{}")
    (tmp_path / "no.json").write_text("text")
    (tmp_path / "empty").write_text("")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG")
    output = ["--output", str(tmp_path / "report")]
    for arguments, error in (
        ([], "at least one of --samples"),
        (["--fanout", "no-path"], "--fanout must be NAME=PATH"),
        (["--fanout", f"a={tmp_path}/away.json"], r"away\.json: .*No such file"),
        (["--fanout", f"a={tmp_path}/no.json"], r"no\.json is not JSON: Expecting value"),
        (
            ["--fanout", f"a={tmp_path}/other.json"],
            "no report of vela perf fanout: it lacks 'delivery'",
        ),
        (["--perf", f"a={tmp_path}/other.json"], "Aggregated latency stats"),
        (["--hgrm", f"a={tmp_path}/other.json"], "line 1 is no interval of an HdrHistogram log"),
        (["--hgrm", f"a={tmp_path}/empty"], "no interval of an HdrHistogram log with a value"),
        (["--hgrm", f"a={tmp_path}/picture.png"], r"--hgrm .*picture\.png is no text"),
        (["--omb", f"a={tmp_path}/other.json"], "no result of the OpenMessaging Benchmark"),
    ):
        with pytest.raises((JobError, ValueError), match=error):
            latency_report.main([*arguments, *output])
