"""`python -m compat_tests.bench`: measure both servers in turns and print the ratio table.

Both servers stay up for all scenarios, because a JVM that has just started is slow; while one is
measured, the other is stopped by SIGSTOP, so that it takes neither CPU nor disk. Start-up and idle
figures come from servers of their own, before the rest. Every round is written to the JSON file at
once; a scenario takes the place of its earlier record when it is complete, so single ones can be
measured in separate quiet hours, each with its commit and date.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import psutil

from compat_tests.bench import report
from compat_tests.bench.disk_room import (
    ROOM_AT_QUICK_START_BYTES,
    ROOM_AT_START_BYTES,
    NoRoom,
    disk_of,
    refusal,
)
from compat_tests.bench.measurement import idle_figures
from compat_tests.bench.perf_client import PerfFailed
from compat_tests.bench.results import SERVERS, Origin, Record, Results
from compat_tests.bench.scenarios import SCENARIOS, Bench
from compat_tests.bench.session import RoundFailed, Session, new_server
from compat_tests.oracle.distribution import PULSAR_VERSION, TREE, OracleAbsent, pulsar_home
from compat_tests.oracle.server_process import ServerFailed

if TYPE_CHECKING:
    from collections.abc import Callable

    from compat_tests.bench.results import Figures

NAMES = [report.START, *SCENARIOS]
OUTPUT = TREE / "docs" / "performance"
QUICK_OUTPUT = TREE / "build" / "performance-quick"
SPARE_ATTEMPTS = 1
"""Rounds beyond those wanted, per server and scenario, that may fail."""


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m compat_tests.bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each (default 3)")
    parser.add_argument(
        "--only", nargs="+", metavar="TEXT", help="only scenarios with one of these in the name"
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="leave out what this commit has measured already, and complete what it has begun",
    )
    parser.add_argument(
        "--quick", action="store_true", help=f"one short round, to see that it runs: {QUICK_OUTPUT}"
    )
    parser.add_argument("--output", type=Path, help=f"directory of the files (default {OUTPUT})")
    parser.add_argument("--only-server", choices=SERVERS, help="for profiling; nothing is written")
    parser.add_argument("--report", action="store_true", help="write table and plot again, and end")
    parser.add_argument("--list", action="store_true", help="list the scenarios and end")
    return parser.parse_args()


def _tell(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def commit() -> str:
    """The commit of this tree, marked when files other than the results differ from it."""

    def git(*arguments: str) -> str:
        ran = subprocess.run(
            ["git", *arguments], cwd=TREE, capture_output=True, text=True, check=False
        )
        return ran.stdout.strip() if ran.returncode == 0 else ""

    changed = git("status", "--porcelain", "-uno", "--", ".", ":!docs/performance")
    return (git("rev-parse", "--short=10", "HEAD") or "unknown") + (
        " with changes" if changed else ""
    )


def machine() -> str:
    """Processors, memory and Python."""
    memory = psutil.virtual_memory().total / 2**30
    return f"{os.cpu_count()} processors, {memory:.0f} GiB, Python {platform.python_version()}"


def how_vela_runs() -> str:
    """With compiled hot modules or from the sources, as a process of this tree finds it."""
    asked = "from broker.hot_modules import use_compiled; print(use_compiled())"
    ran = subprocess.run(
        [sys.executable, "-c", asked], cwd=TREE, capture_output=True, text=True, check=True
    )
    return ran.stdout.replace(";", ",").partition(",")[0].strip()


def turns(attempt: int, names: list[str]) -> list[str]:
    """The order of the servers: every other round begins with the other one."""
    return list(names) if attempt % 2 == 0 else list(reversed(names))


class Run:
    """One start of the benchmark."""

    def __init__(self, options: argparse.Namespace, directory: Path, results: Results) -> None:
        self._options = options
        self._directory = directory
        self._results = results
        self._names = [options.only_server] if options.only_server else list(SERVERS)
        self._rounds = 1 if options.quick else options.rounds
        # What the tree is now; it may change while we measure.
        self._origin = Origin(commit(), how_vela_runs(), self._rounds)
        self._session = Session(
            Bench(
                home=pulsar_home(),
                windows=1,
                catch_up_messages=20_000 if options.quick else 300_000,
                cold_messages_per_topic=10 if options.quick else 40,
                look=lambda server: self._session.look(server),
            ),
            directory,
            _tell,
            warm=not options.quick,
        )

    def all_of(self, wanted: list[str]) -> bool:
        """Measure these scenarios; whether each of them is complete."""
        complete = True
        if self._options.resume:
            done = [name for name in wanted if self._results.has(name, self._origin)]
            wanted = [name for name in wanted if name not in done]
            _tell(f"measured already at this commit: {'; '.join(done) or 'nothing'}")
        try:
            if report.START in wanted:
                complete &= self._scenario(report.START, self._measure_start)
            others = [name for name in wanted if name != report.START]
            if others:
                self._session.start(self._names)
            for name in others:
                complete &= self._scenario(
                    name,
                    lambda server, _, name=name: self._session.measure(server, SCENARIOS[name]),
                )
        finally:
            self._session.close()
        return complete

    def _scenario(self, name: str, measure: Callable[[str, int], Figures]) -> bool:
        date = time.strftime("%Y-%m-%d %H:%M")
        record = self._results.begin(name, self._origin, date, self._options.resume)
        begun = time.monotonic()
        seconds_before = record.seconds
        for attempt in range(self._rounds + SPARE_ATTEMPTS):
            for server in turns(attempt, self._names):
                if record.count(server) < self._rounds:
                    self._round(name, record, server, lambda s=server, a=attempt: measure(s, a))
                    record.seconds = seconds_before + time.monotonic() - begun
                    self._save()
        complete = self._results.finish(name)
        self._save()
        return complete or bool(self._options.only_server)

    def _round(
        self, name: str, record: Record, server: str, measure: Callable[[], Figures]
    ) -> None:
        try:
            figures = measure()
        except (RoundFailed, ServerFailed) as failure:
            record.failed.append(f"{server}: {failure}")
            _tell(f"{name}: {server}: not counted: {failure}")
            return
        record.rounds.setdefault(server, []).append(figures)
        told = ", ".join(f"{figure} {value:,.2f}" for figure, value in figures.items())
        _tell(f"{name}: {server}: {told}")

    def _measure_start(self, name: str, attempt: int) -> Figures:
        server = new_server(name, self._directory / f"start-{attempt}")
        try:
            server.start()
            figures = {"ready s": server.ready_after_seconds}
            return figures | idle_figures(server, settle_seconds=4.0, watch_seconds=6.0)
        finally:
            server.kill()
            shutil.rmtree(server.directory, ignore_errors=True)

    def _save(self) -> None:
        if not self._options.only_server:
            save(self._results)


def save(results: Results) -> None:
    """Write the JSON file with the rows of the table in front."""
    results.save(
        pulsar=PULSAR_VERSION,
        machine=machine(),
        note=report.SAID,
        rows=[asdict(row) for row in report.rows(results.shown())],
    )


def write_report(results: Results) -> None:
    """Print the table; write it and the plot beside the JSON file."""
    records = results.shown()
    if not records:
        print("nothing was measured, nothing is written")
        return
    print(f"\n{report.SAID}\n\n{report.table(records)}\n\n{report.origins(records)}\n")
    document, picture = (results.path.with_suffix(f".{kind}") for kind in ("md", "png"))
    document.parent.mkdir(parents=True, exist_ok=True)
    document.write_text(report.document(records, machine()))
    report.plot(records, picture)
    for path in (document, results.path, picture):
        print(f"written: {path}")


def wanted_scenarios(only: list[str] | None) -> list[str]:
    """The names that hold one of these texts, all without any; ValueError when a text fits none."""
    for text in only or []:
        if not any(text in name for name in NAMES):
            raise ValueError(f"no scenario has {text!r} in its name; --list tells them")
    return [name for name in NAMES if not only or any(text in name for text in only)]


def _remove_leftovers(build: Path) -> None:
    """Remove the data of runs that were ended by kill -9."""
    for left in build.glob("bench-*"):
        pid = left.name.removeprefix("bench-")
        if pid.isdigit() and not psutil.pid_exists(int(pid)):
            shutil.rmtree(left, ignore_errors=True)


def _end_like_interrupt(number: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt


def main() -> int:
    """Run, print the table, write the files; 1 when something could not be measured."""
    options = _arguments()
    if options.list:
        print("\n".join(NAMES))
        return 0
    output = options.output or (QUICK_OUTPUT if options.quick else OUTPUT)
    results = Results(output / "benchmark.json", NAMES)
    if options.report:
        write_report(results)
        return 0
    # Below the tree, so that data and journal lie on the disk a user would measure.
    build = TREE / "build"
    build.mkdir(exist_ok=True)
    _remove_leftovers(build)
    needed = ROOM_AT_QUICK_START_BYTES if options.quick else ROOM_AT_START_BYTES
    try:
        wanted = wanted_scenarios(options.only)
    except ValueError as unknown:
        print(unknown, file=sys.stderr)
        return 2
    full = refusal(disk_of(build), needed)
    if full is not None:
        print(full, file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, _end_like_interrupt)
    directory = build / f"bench-{os.getpid()}"
    directory.mkdir()
    begun = time.monotonic()
    status = 1
    try:
        status = 0 if Run(options, directory, results).all_of(wanted) else 1
    except OracleAbsent as absent:
        print(f"the benchmark needs real Pulsar: {absent}", file=sys.stderr)
        return 1
    except (NoRoom, PerfFailed, ServerFailed) as failed:
        print(f"ended early: {failed}", file=sys.stderr)
    except KeyboardInterrupt:
        print("interrupted; --resume goes on with it", file=sys.stderr)
        status = 130
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    if options.only_server is None:
        write_report(results)
    _tell(f"ended after {(time.monotonic() - begun) / 60:.0f} minutes")
    return status


if __name__ == "__main__":
    sys.exit(main())
