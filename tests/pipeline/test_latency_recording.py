"""`latency-report` on what `vela perf fanout` has just recorded, beside a run of pulsar-perf."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pipeline.jobs import latency_report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.server_process import ServerProcess

TREE = Path(__file__).resolve().parents[2]
PULSAR_PERF = Path(__file__).parent / "recordings" / "pulsar-perf-consume.txt"
CONSUMERS, MESSAGES = 200, 20
SECTIONS = ("Runs", "Time until a consumer was subscribed", "Where the time goes")


def record(server: ServerProcess, directory: Path, number: int) -> dict[str, Any]:
    report = directory / f"run-{number}.json"
    command = [sys.executable, "-m", "cli", "perf", "fanout", "--service-url"]
    command += [server.service_url, "--http-url", f"http://127.0.0.1:{server.web_port}"]
    command += ["--consumers", str(CONSUMERS), "--messages", str(MESSAGES), "--rate", "40"]
    command += ["--json", str(report), "--samples", str(directory / f"run-{number}")]
    ended = subprocess.run(
        command, cwd=TREE, env=os.environ, capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(report.read_text())


def test_recorded_runs_become_the_tables_and_figures_of_a_report(
    spark: SparkSession, server: ServerProcess, tmp_path: Path
) -> None:
    recorded = [record(server, tmp_path, number) for number in range(2)]
    arguments = ["--output", str(tmp_path / "report"), "--summary", str(tmp_path / "summary")]
    for number in range(2):
        arguments += ["--fanout", f"vela={tmp_path}/run-{number}.json"]
        arguments += ["--samples", f"vela={tmp_path}/run-{number}"]
    arguments += ["--perf", f"perf={PULSAR_PERF}"]

    assert latency_report.main(arguments) == 0

    summary = json.loads((tmp_path / "summary").read_text())
    for number, run in enumerate(recorded):
        found = summary["samples"][f"vela-{number}"]
        assert (found["consumers"], found["deliveries"]) == (CONSUMERS, CONSUMERS * MESSAGES)
        assert [found[name] for name in ("lost", "duplicated", "out_of_order")] == [0, 0, 0]
        for name, seconds in run["delivery"].items():
            assert found["delivery_ms"][name] == pytest.approx(seconds * 1000)
        assert found["per_consumer_ms"]["max"]["most"] == found["delivery_ms"]["max"]
        rows = spark.read.parquet(f"{tmp_path}/report/consumers-vela-{number}").collect()
        assert sorted(int(row["consumer_id"]) for row in rows) == list(range(CONSUMERS))
        assert {row["received"] for row in rows} == {MESSAGES}
    medians = {
        row["figure"]: (row["min_ms"], row["max_ms"])
        for row in summary["comparison"]
        if row["system"] == "vela"
    }
    p99s = sorted(run["delivery"]["p99"] * 1000 for run in recorded)
    assert medians["p99"] == pytest.approx(tuple(p99s))
    assert summary["warnings"] == ["the runs differ in the number of messages: 3,000, 4,000"]
    page = (tmp_path / "report" / "report.md").read_text()
    assert all(f"## {section}" in page for section in SECTIONS)
    assert "| vela | run-0.json | broadcasting |" in page
    assert page.count("The slowest consumers:") == 2
    pictures = {"percentiles", "latency-histogram", "consumers", "connection-times", "stages"}
    assert {Path(path).stem for path in summary["figures"]} == pictures
    for path in summary["figures"]:
        assert Path(path).read_bytes().startswith(b"\x89PNG")
        assert f"({Path(path).name})" in page
