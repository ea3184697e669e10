"""What a benchmark says of the tree and the machine it ran on, and where its files go."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import psutil

from bench.machine_speed import machine_speed
from compat_tests.commit import commit as commit_without
from compat_tests.oracle.distribution import TREE

OUTPUT = TREE / "docs" / "performance"
QUICK_OUTPUT = TREE / "build" / "performance-quick"


def commit() -> str:
    """The commit of this tree, marked when files other than the results differ from it."""
    return commit_without("docs/performance")


def machine() -> str:
    """Processors, memory and Python."""
    memory = psutil.virtual_memory().total / 2**30
    return f"{os.cpu_count()} processors, {memory:.0f} GiB, Python {platform.python_version()}"


def machine_now() -> str:
    """The same, and its speed at the moment."""
    speed = machine_speed()
    return (
        f"{machine()} (at the beginning it took {speed.loop_ms:.1f} ms for 500,000 steps of a loop"
        f" and copied {speed.copy_gb_s:.2f} GB/s into new memory)"
    )


def how_vela_runs() -> str:
    """With compiled hot modules or from the sources, as a process of this tree finds it."""
    asked = "from native.hot_modules import use_compiled; print(use_compiled())"
    ran = subprocess.run(
        [sys.executable, "-c", asked], cwd=TREE, capture_output=True, text=True, check=True
    )
    return ran.stdout.replace(";", ",").partition(",")[0].strip()
