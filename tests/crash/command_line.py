"""Shared by the crash runs: arguments, and the report at the end."""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.server_process import TREE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def common_parser(
    module: str, flush_seconds: float, description: str | None = None
) -> argparse.ArgumentParser:
    """The arguments of every crash run."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=description)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--flush-seconds", type=float, default=flush_seconds)
    parser.add_argument("--directory", type=Path, help="kept; default: a temporary one")
    parser.add_argument("--output", type=Path, help="file for the JSON, with commit and date")
    return parser


def tell(
    given: argparse.Namespace,
    directory: Path,
    summary: str,
    found: Mapping[str, object],
    violations: Sequence[object],
) -> int:
    """Print the report, write it where it is wanted, and keep or remove the run's directory.

    Returns the exit status: 1 if something did not hold.
    """
    print(summary)
    print(json.dumps(found))
    if given.output is not None:
        given.output.parent.mkdir(parents=True, exist_ok=True)
        when = {"commit": commit_of_tree(), "date": time.strftime("%Y-%m-%d %H:%M")}
        given.output.write_text(json.dumps(when | dict(found), indent=1) + "\n")
    if violations:
        print(f"data and logs are kept in {directory}")
    elif given.directory is None:
        shutil.rmtree(directory)
    return 1 if violations else 0


def commit_of_tree() -> str:
    """The commit of this tree, `-dirty` when files differ from it."""
    ran = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=10", "--exclude=*"],
        cwd=TREE,
        capture_output=True,
        text=True,
        check=False,
    )
    return ran.stdout.strip() or "unknown"
