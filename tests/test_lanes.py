"""What runs the parts of CI."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

LANES = Path(__file__).resolve().parent.parent / ".ci" / "lanes.py"
QUICK = "import sys; print('....'); print('4 passed in 0.10s')"
FAILS = "import sys; print('1 failed, 3 passed in 0.10s'); sys.exit(1)"
SLEEPS = "import time; time.sleep(600)"
LEAVES_A_PROCESS = """
import pathlib, subprocess, sys
program = [sys.executable, "-c", "import time; time.sleep(600)"]
left = subprocess.Popen(program, start_new_session=True)
pathlib.Path({pid_path!r}).write_text(str(left.pid))
"""


@pytest.fixture
def run(tmp_path):
    """Starts a run of stages, each of which has programs by name."""
    started = []

    def start(*stages, lanes=2, seconds_max=60, goes_on=False):
        program = textwrap.dedent(f"""
            import importlib.util, pathlib, sys
            spec = importlib.util.spec_from_file_location("lanes", {str(LANES)!r})
            lanes = sys.modules["lanes"] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(lanes)
            stages = [
                lanes.Stage(
                    tuple(
                        lanes.Part(name, (sys.executable, "-c", text))
                        for name, text in stage.items()
                    ),
                    {lanes},
                )
                for stage in {stages!r}
            ]
            output = pathlib.Path({str(tmp_path / "output")!r})
            sys.exit(lanes.run_stages(stages, output, {seconds_max}, goes_on={goes_on}))
        """)
        process = subprocess.Popen(
            [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def ended(process):
    """(exit status, lines of the output)."""
    output = process.communicate(timeout=120)[0]
    return process.returncode, output.splitlines()


def test_the_last_lines_are_those_with_which_pytest_ended(run):
    status, lines = ended(run({"one": QUICK, "two": QUICK}, {"three": QUICK}))

    assert status == 0
    assert [line for line in lines[-6:] if "passed" in line] == ["4 passed in 0.10s"] * 3


def test_a_failure_ends_the_parts_beside_it_and_those_after_it_do_not_begin(run):
    status, lines = ended(run({"one": FAILS, "two": SLEEPS}, {"three": QUICK}))

    assert status == 1
    assert "three: not begun" in lines
    assert lines[-1] == "FAILED: one failed with exit status 1"
    assert "1 failed, 3 passed in 0.10s" in lines


def test_a_failure_at_night_leaves_the_others_to_run(run):
    status, lines = ended(run({"one": FAILS}, {"two": QUICK}, goes_on=True))

    assert status == 1
    assert "4 passed in 0.10s" in lines
    assert lines[-1] == "FAILED: one failed with exit status 1"


def test_the_end_of_the_time_says_what_had_not_ended(run):
    for seconds_max in (1, 8, 64):  # the machine may be too busy for a part of no work in a second
        status, lines = ended(run({"one": QUICK, "two": SLEEPS}, seconds_max=seconds_max))
        assert status == 1
        assert lines[-1].startswith("FAILED: not done after")
        if "4 passed in 0.10s" in lines:
            break
    assert "4 passed in 0.10s" in lines


def test_a_signal_ends_the_parts(run):
    process = run({"one": SLEEPS})
    assert process.stdout.readline() == "one begins\n"

    process.send_signal(signal.SIGTERM)

    status, lines = ended(process)
    assert (status, lines[-1]) == (1, "FAILED: ended by SIGTERM")


def test_no_process_of_a_part_is_left(run, tmp_path):
    pid_path = tmp_path / "pid"

    status, _ = ended(run({"one": LEAVES_A_PROCESS.format(pid_path=str(pid_path))}))

    assert status == 0
    with suppress(psutil.NoSuchProcess):
        psutil.Process(int(pid_path.read_text())).wait(60)


def test_no_more_parts_run_than_there_are_lanes(run, tmp_path):
    text = (
        "import os, pathlib, time; mine = pathlib.Path({path!r}); mine.touch()\n"
        "assert len(list(mine.parent.iterdir())) == 1; time.sleep(0.2); mine.unlink()"
    )
    marks = tmp_path / "marks"
    marks.mkdir()
    parts = {name: text.format(path=str(marks / name)) for name in ("one", "two", "three")}

    status, _ = ended(run(parts, lanes=1))

    assert status == 0
