"""A failure of a job is one line that says what to do."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

from pipeline.jobs.command import EXIT_REFUSED, run

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest


def _needs_a_package(arguments: Sequence[str]) -> int:
    import_module("package_of_nobody")
    return 0


def test_an_environment_without_spark_is_told_how_to_get_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run("archive", _needs_a_package, []) == EXIT_REFUSED

    line = capsys.readouterr().err
    assert line == (
        f"vela pipeline archive: {sys.executable} has no package package_of_nobody: run `make "
        "setup-pipeline`, or install there what requirements-pipeline.lock names\n"
    )
