"""What `make run` prints: a line before each long step of the set-up, then the ready line."""

import os
import shutil
import subprocess
from pathlib import Path

TREE = Path(__file__).parents[1]
FAKE_PYTHON = """#!/bin/sh
if [ "$1 $2" = "-m venv" ]; then
  mkdir -p "$3/bin" && cp "$0" "$3/bin/python" && cp "$0" "$3/bin/vela"
fi
if [ "$1" = standalone ]; then echo "vela standalone ready"; fi
"""
"""A Python that installs nothing, and the command that it would install."""


def made(directory):
    done = subprocess.run(
        ["make", "run", "PYTHON=./python"],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={"PATH": os.environ["PATH"]},
    )
    return done.stdout.splitlines()


def test_the_first_run_says_what_takes_long_and_the_next_ones_nothing(tmp_path):
    for name in ("Makefile", "pyproject.toml", "requirements.lock"):
        shutil.copy(TREE / name, tmp_path)
    python = tmp_path / "python"
    python.write_text(FAKE_PYTHON)
    python.chmod(0o755)
    assert made(tmp_path) == [
        "setting up .venv, once. This takes about a minute",
        "installing what requirements.lock names into .venv",
        "vela standalone ready",
    ]
    assert made(tmp_path) == ["vela standalone ready"]
