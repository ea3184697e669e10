"""What the benchmarks of a victim beside others share: options, the way to an end, the files."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any, Protocol

from bench import oracle
from bench.tree import QUICK_OUTPUT, commit, how_vela_runs, machine_now
from bench.victim import MeasureFailed
from compat_tests.oracle.distribution import TREE, OracleAbsent
from compat_tests.oracle.server_process import ServerFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Report(Protocol):
    """What has been measured."""

    failures: list[str]
    """Measurements that do not count."""

    @property
    def rounds_begun(self) -> int:
        """On the server with most of them."""

    def restore(self, written: dict[str, Any]) -> None:
        """What an earlier run wrote counts, too."""

    def missed(self) -> list[str]:
        """What is over its bound."""

    def tables(self) -> str:
        """For the terminal."""

    def document(self, about: dict[str, Any]) -> str:
        """The page."""

    def as_json(self, about: dict[str, Any]) -> dict[str, Any]:
        """For `restore`."""


def options(program: str, parts: Sequence[str], what: str) -> argparse.Namespace:
    """Those of the command line; `rounds` and `names` (of the servers) are given their values.
    `parts`, which are called `what`, may be chosen."""
    parser = argparse.ArgumentParser(prog=f"python -m bench.{program}")
    parser.add_argument("--rounds", type=int, help="(3)")
    parser.add_argument("--seconds", type=float, default=6.0, help="of each measurement (6)")
    parser.add_argument("--only", nargs="+", choices=parts, default=parts, help=f"these {what}")
    parser.add_argument("--only-server", choices=("vela", "pulsar"))
    parser.add_argument("--more", action="store_true", help="add to the rounds in the files")
    parser.add_argument("--quick", action="store_true", help=f"one round; into {QUICK_OUTPUT}")
    found = oracle.parsed(parser)
    found.rounds = found.rounds or (1 if found.quick else 3)
    found.names = [found.only_server] if found.only_server else ["vela", "pulsar"]
    found.output = oracle.output(found)
    return found


def measure_and_write(
    program: str, report: Report, chosen: argparse.Namespace, run: Callable[[Path], None]
) -> int:
    """Run in a new directory below `build`, print the tables, write the files. 1: a bound is
    missed, or something could not be measured.

    `run` raises OracleAbsent, ServerFailed, MeasureFailed.
    """
    output: Path = chosen.output
    output.mkdir(parents=True, exist_ok=True)
    (TREE / "build").mkdir(exist_ok=True)
    if chosen.more:
        report.restore(json.loads((output / f"{program}.json").read_text()))
    directory = Path(mkdtemp(prefix=f"{program}-", dir=TREE / "build"))
    about = {
        "date": time.strftime("%Y-%m-%d %H:%M"),
        "commit": commit(),
        "vela": how_vela_runs(),
        "pulsar": oracle.chosen().version,
        "machine": machine_now(),
        "seconds": chosen.seconds,
    }
    try:
        run(directory)
    except OracleAbsent as absent:
        print(f"the table needs real Pulsar: {absent}; or --only-server vela", file=sys.stderr)
        return 1
    except (ServerFailed, MeasureFailed) as failure:
        print(f"cannot measure: {failure}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    about["rounds"] = report.rounds_begun
    (output / f"{program}.json").write_text(json.dumps(report.as_json(about), indent=1) + "\n")
    (output / f"{program}.md").write_text(report.document(about))
    print(f"\n{report.tables()}\n\nwritten: {output}")
    return 1 if report.missed() or report.failures else 0


def tell(text: str) -> None:
    """Print a line with the time."""
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)
