"""One instant of each quick kind of fault, on a cluster of Vela with real ZooKeeper.

`make cluster-faults` has many instants of every kind (docs/testing.md).
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

from compat_tests.oracle.distribution import TREE, pulsar_home

if TYPE_CHECKING:
    from pathlib import Path

KINDS = ("bookie-killed", "both-cut", "broker-killed", "two-recoveries")
SECONDS_MAX = 600


def test_nothing_acknowledged_is_lost_doubled_or_reordered(tmp_path: Path) -> None:
    pulsar_home()
    output = tmp_path / "results.json"
    command = [sys.executable, "-m", "tests.cluster_faults", "--kinds", *KINDS]
    command += ["--output", str(output), "--directory", str(tmp_path / "run")]
    done = subprocess.run(
        command, cwd=TREE, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rounds = json.loads(output.read_text())["rounds"]
    assert [each["kind"] for each in rounds] == list(KINDS)
    assert all(each["acknowledged"] > 0 and not each["violations"] for each in rounds)
