"""Tests that need real Pulsar are skipped where it cannot be had, and fail if it is required."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from compat_tests.oracle.distribution import TREE

if TYPE_CHECKING:
    from pathlib import Path

IN_A_FIXTURE_OF_ALL = "compat_tests/test_vela_broker_start.py"
IN_THE_TEST = "compat_tests/test_apache_bookie.py"


@pytest.mark.parametrize("is_required", [False, True])
def test_without_java_tests_are_skipped_or_fail_if_the_oracle_is_required(
    tmp_path: Path, is_required: bool
) -> None:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rs", "--tb=no"]
    command += [IN_A_FIXTURE_OF_ALL, IN_THE_TEST, *["--oracle-required"] * is_required]
    ended = subprocess.run(
        command,
        cwd=TREE,
        env=os.environ | {"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    why = "no `java` on the path: real Pulsar 4.0 needs Java 17"
    assert (ended.returncode, why in ended.stdout) == (int(is_required), not is_required)
