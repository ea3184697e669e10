"""A job that cannot do its work says so in one line, and its exit code is not 0."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

import pytest

from pipeline.__main__ import main
from pipeline.jobs import JOBS, module_of
from pipeline.jobs.command import EXIT_REFUSED

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

Options = dict[str, str]
SOURCES = ("archive", "replay", "windows", "hazard-broadcast", "last-position", "vehicle-trips")


@pytest.fixture
def arguments(options: Options, tmp_path: Path) -> dict[str, list[str]]:
    """Of each job, right but for its topic, which is not there."""
    (tmp_path / "areas.csv").write_text("road_id,area\nr,north\n")
    out, topic = str(tmp_path / "out"), options["topic"]
    server = ["--service-url", options["service.url"], "--admin-url", options["admin.url"]]
    named = ["--name", "n", "--checkpoint", str(tmp_path / "checkpoint")]
    own = {
        "archive": ["--topic", topic, "--output", out],
        "replay": ["--topic", topic, "--to", f"{topic}-to"],
        "windows": ["--topic", topic, "--to", f"{topic}-to", "--field", "speed", *named],
        "hazard-broadcast": ["--topic", topic, "--prefix", f"{topic}-", *named]
        + ["--areas", str(tmp_path / "areas.csv")],
        "last-position": ["--topic", topic, "--output", out],
        "vehicle-trips": ["--topic", topic, "--to", f"{topic}-to", *named],
        "backlog-audit": ["--namespace", "public/nothing"],
        "seed-telemetry": ["--topic", topic, "--start-ms", "0", "--vehicles", "1"],
    }
    made = {job: [job, *server, *each] for job, each in own.items()}
    return made | {"latency-report": ["latency-report", "--output", out]}


def refusal(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> str:
    """The one line."""
    code = main(arguments)
    out, err = capsys.readouterr()
    assert (code, out) == (EXIT_REFUSED, "")
    begin = f"vela pipeline {arguments[0]}: "
    (line,) = [each for each in err.splitlines() if each.startswith(begin)]
    assert err.splitlines()[-1] == line, "the reason comes last"
    assert "Traceback" not in err
    return line.removeprefix(begin)


@pytest.mark.parametrize("job", SOURCES)
def test_a_topic_that_is_not_there_is_named(
    spark: SparkSession,
    capsys: pytest.CaptureFixture[str],
    arguments: dict[str, list[str]],
    topic: str,
    job: str,
) -> None:
    text = refusal(capsys, arguments[job])

    assert text.startswith(f"topic {topic}")
    assert "does not exist" in text
    assert "create it, or correct" in text


@pytest.mark.parametrize(
    ("job", "more", "text"),
    [
        ("archive", ["--topics", "a,b"], "give exactly one of topic, topics (comma separated)"),
        ("archive", ["--start", "nonsense"], "startingOffsets: "),
        ("archive", ["--conf", "nonsense"], "--conf must be KEY=VALUE, got 'nonsense'"),
        ("archive", ["--service-url", "localhost"], "service.url must begin with pulsar://"),
        ("replay", ["--topic", "non-persistent://public/default/t"], "use persistent://"),
        ("hazard-broadcast", ["--areas", "away.csv"], "away.csv"),
        ("backlog-audit", [], "Namespace does not exist"),
        ("seed-telemetry", ["--topic", "bad://t"], "Invalid topic domain: 'bad'"),
        ("seed-telemetry", ["--vehicles", "-5"], "--vehicles must be at least 1"),
        *(
            (job, ["--output", __file__], "is a file: name a directory")
            for job in ("archive", "last-position", "latency-report", "backlog-audit")
        ),
        (
            "latency-report",
            [],
            "give at least one of --samples, --fanout, --perf, --hgrm and --omb",
        ),
        ("latency-report", ["--samples", "a=away.csv"], "away.csv"),
    ],
)
def test_an_argument_that_cannot_be_used_is_named(
    spark: SparkSession,
    capsys: pytest.CaptureFixture[str],
    arguments: dict[str, list[str]],
    job: str,
    more: list[str],
    text: str,
) -> None:
    assert text in refusal(capsys, [*arguments[job], *more])


@pytest.mark.parametrize("job", JOBS)
def test_help_says_what_a_job_does_and_an_unknown_option_is_refused(
    capsys: pytest.CaptureFixture[str], job: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([job, "--help"])
    assert ended.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    said = (import_module(module_of(job)).__doc__ or "").partition(": ")[2]
    assert said.split("\n")[0][:40] in text
    with pytest.raises(SystemExit) as refused:
        main([job, "--topicc", "t"])
    assert refused.value.code == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith(f"vela pipeline {job}: error: ")
