"""The rounds of a benchmark run: every scenario on every server, in turns, until there are enough.

Every round is written to the JSON file at once. A round that failed is told, is not counted, and is
tried again a few times.
"""

from __future__ import annotations

import shutil
import signal
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

import psutil

from bench.disk_room import (
    ROOM_AT_QUICK_START_BYTES,
    ROOM_AT_START_BYTES,
    NoRoom,
    disk_of,
    refusal,
)
from bench.machine_speed import machine_speed
from bench.perf_client import PerfFailed
from bench.session import RoundFailed
from compat_tests.oracle.distribution import TREE, OracleAbsent
from compat_tests.oracle.server_process import ServerFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from bench.results import Figures, Origin, Record, Results

SPARE_ATTEMPTS = 1
"""Rounds beyond those wanted, per server and scenario, that may fail."""
INTERRUPTED = 130


def tell(text: str) -> None:
    """A line for the person who waits."""
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def turns(attempt: int, names: list[str]) -> list[str]:
    """The order of the servers: every other round begins with the last one."""
    return list(names) if attempt % 2 == 0 else list(reversed(names))


@dataclass
class Rounds:
    """What all scenarios of a run have in common."""

    results: Results
    origin: Origin
    names: list[str]
    """The servers to measure: those of the origin, or fewer, whose rounds are then incomplete."""
    save: Callable[[], None]
    resume: bool = False

    def left(self, wanted: list[str]) -> list[str]:
        """With `resume`, those of the scenarios that are not measured yet; else all."""
        if not self.resume:
            return wanted
        done = [name for name in wanted if self.results.has(name, self.origin)]
        tell(f"measured already at this commit: {'; '.join(done) or 'nothing'}")
        return [name for name in wanted if name not in done]

    def scenario(self, name: str, measure: Callable[[str, int], Figures]) -> bool:
        """Measure it: `measure` gets a server and the number of the attempt. Whether all servers
        have the rounds wanted."""
        date = time.strftime("%Y-%m-%d %H:%M")
        record = self.results.begin(name, self.origin, date, self.resume)
        begun = time.monotonic()
        seconds_before = record.seconds
        wanted = self.origin.rounds_wanted
        for attempt in range(wanted + SPARE_ATTEMPTS):
            for server in turns(attempt, self.names):
                if record.count(server) < wanted:
                    record.speeds.append(machine_speed())
                    _round(name, record, server, lambda s=server, a=attempt: measure(s, a))
                    record.seconds = seconds_before + time.monotonic() - begun
                    self.save()
        complete = self.results.finish(name)
        self.save()
        return complete or len(self.names) < len(self.origin.servers)


def _round(name: str, record: Record, server: str, measure: Callable[[], Figures]) -> None:
    try:
        figures = measure()
    except (RoundFailed, ServerFailed) as failure:
        record.failed.append(f"{server}: {failure}")
        tell(f"{name}: {server}: not counted: {failure}")
        return
    record.rounds.setdefault(server, []).append(figures)
    told = ", ".join(f"{figure} {value:,.2f}" for figure, value in figures.items())
    tell(f"{name}: {server}: {told}")


def wanted_scenarios(names: list[str], only: list[str] | None) -> list[str]:
    """The names that hold one of these texts, all without any; ValueError when a text fits none."""
    for text in only or []:
        if not any(text in name for name in names):
            raise ValueError(f"no scenario has {text!r} in its name; --list tells them")
    return [name for name in names if not only or any(text in name for text in only)]


def run_and_report(
    measure: Callable[[Path], bool], report: Callable[[], None], *, is_quick: bool
) -> int:
    """`run` in this tree, then `report`, whatever was measured; the exit code of the program."""
    begun = time.monotonic()
    room_bytes = ROOM_AT_QUICK_START_BYTES if is_quick else ROOM_AT_START_BYTES
    status = run(TREE / "build", room_bytes, measure)
    report()
    tell(f"ended after {(time.monotonic() - begun) / 60:.0f} minutes")
    return status


def run(build: Path, room_bytes: int, measure: Callable[[Path], bool]) -> int:
    """Measure in a directory of its own below `build`; the exit code of the program.

    `measure` gets the directory and says whether all was measured. An interruption keeps what there
    is. Below the tree, so that data and journal lie on the disk a user would measure.
    """
    build.mkdir(exist_ok=True)
    with _own_directory(build) as directory:
        full = refusal(disk_of(build), room_bytes)
        if full is not None:
            print(full, file=sys.stderr)
            return 1
        try:
            return 0 if measure(directory) else 1
        except OracleAbsent as absent:
            print(f"the benchmark needs real Pulsar: {absent}", file=sys.stderr)
        except (NoRoom, PerfFailed, ServerFailed) as failed:
            print(f"ended early: {failed}", file=sys.stderr)
        except KeyboardInterrupt:
            print("interrupted; --resume goes on with it", file=sys.stderr)
            return INTERRUPTED
        return 1


@contextmanager
def _own_directory(build: Path) -> Iterator[Path]:
    """With the id of this process in its name. SIGTERM ends the block like an interrupt."""
    _remove_leftovers(build)
    signal.signal(signal.SIGTERM, _end_like_interrupt)
    directory = build / f"bench-{psutil.Process().pid}"
    directory.mkdir()
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _remove_leftovers(build: Path) -> None:
    """Remove the data of runs that were ended by kill -9."""
    for left in build.glob("bench-*"):
        pid = left.name.removeprefix("bench-")
        if pid.isdigit() and not psutil.pid_exists(int(pid)):
            shutil.rmtree(left, ignore_errors=True)


def _end_like_interrupt(number: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt
