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

from pipeline.jobs import latency_report
from pipeline.jobs.command import JobError

if TYPE_CHECKING:
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
    output = ["--output", str(tmp_path / "report")]
    for arguments, error in (
        ([], "at least one of --samples"),
        (["--fanout", "no-path"], "--fanout must be NAME=PATH"),
        (["--fanout", f"a={tmp_path}/away.json"], r"away\.json: .*No such file"),
        (["--fanout", f"a={tmp_path}/no.json"], r"no\.json: Expecting value"),
        (["--fanout", f"a={tmp_path}/other.json"], "no report of vela perf fanout"),
        (["--perf", f"a={tmp_path}/other.json"], "Aggregated latency stats"),
    ):
        with pytest.raises((JobError, ValueError), match=error):
            latency_report.main([*arguments, *output])
