"""Jobs run by tests: within the test's Spark session, or as processes that can be killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.pipeline.conftest import SHORT_LIVED

if TYPE_CHECKING:
    from collections.abc import Callable

TREE = Path(__file__).resolve().parents[2]
SECONDS_MAX = 240
POLL_SECONDS = 0.01


def archive_process(options: dict[str, str], directory: Path, *more: str) -> subprocess.Popen[str]:
    """`vela pipeline archive` of the topic to `directory`/out, in small micro-batches."""
    command = [sys.executable, "-m", "cli", "pipeline", "archive"]
    command += ["--service-url", options["service.url"], "--admin-url", options["admin.url"]]
    command += ["--topic", options["topic"], "--output", str(directory / "out"), *more]
    for name, value in SHORT_LIVED.items():
        command += ["--conf", f"{name}={value}"]
    return subprocess.Popen(
        [*command, "--max-rows-per-trigger", "100", "--verify"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=TREE,
        env={**os.environ, "VELA_PIPELINE_PYTHON": sys.executable},
        start_new_session=True,
    )


def wait_for(process: subprocess.Popen[str], micro_batches: int) -> None:
    """Until so many micro-batches were reported."""
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        if sum("archive: micro-batch" in each for each in lines) == micro_batches:
            return
    raise AssertionError("it ended too early:\n" + "".join(lines))


def kill_after(process: subprocess.Popen[str], micro_batches: int) -> None:
    """kill -9 of driver, JVM and workers when so many micro-batches were reported."""
    wait_for(process, micro_batches)
    _kill(process)


def kill_when(process: subprocess.Popen[str], happened: Callable[[], bool]) -> None:
    """kill -9 of driver, JVM and workers as soon as something has happened."""
    deadline = time.monotonic() + SECONDS_MAX
    while not happened():
        assert time.monotonic() < deadline, "it did not happen"
        try:
            process.wait(POLL_SECONDS)
        except subprocess.TimeoutExpired:
            continue
        raise AssertionError("it ended too early:\n" + "".join(process.communicate()))
    _kill(process)


def _kill(process: subprocess.Popen[str]) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=SECONDS_MAX)


def run(job: Any, tmp_path: Path, *arguments: str) -> dict[str, Any]:
    """In the active session; the summary."""
    path = tmp_path / "summary.json"
    assert job.main([*arguments, "--summary", str(path)]) == 0
    return json.loads(path.read_text())
