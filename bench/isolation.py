"""`python -m bench.isolation`: a small producer beside heavy neighbours.

Three parts, each on servers of its own: neighbours of a stock client; scrapes of a server with
10,000 topics; and publishing on 150 topics while 50 of them are read from the disk. One server is
under load at a time, and the other one is stopped (SIGSTOP); the makes alternate from round to
round. The readers of a backlog never acknowledge, so that it is written once and read in every
round, by when the caches of the brokers have given it up; the page cache is dropped.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from bench.device import DeviceWatch
from bench.disk_room import disk_of, refusal
from bench.isolation_loads import BACKLOGS, FILLS
from bench.isolation_report import (
    ALONE,
    CASES,
    COLD_RATES_MB,
    COLD_TOPICS,
    NEIGHBOURS,
    SCRAPES,
    STILL,
    Report,
)
from bench.measurement import drop_from_page_cache, write_out
from bench.session import new_server, wait_freed
from bench.stalls import between, look
from bench.tree import commit
from bench.victim import MeasureFailed, Program, Victim
from bench.victim_runs import measure_and_write, options, tell
from compat_tests.oracle.distribution import TREE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


CONFIGURATION: Final = {
    "brokerDeleteInactiveTopicsEnabled": "false",
    "gcWaitTime": "5000",
    "journalMaxBackups": "0",
}
"""Topics stay, space of deleted ones comes back soon, and old journal files do not pile up."""
PREFIX: Final = "persistent://public/default/isolation"
MESSAGE_BYTES: Final = 100_000
ROOM_BYTES: Final = 12 << 30
BEGIN_SECONDS_MAX: Final = 60.0
FILL_SECONDS_MAX: Final = 300.0
SETTLE_SECONDS: Final = 1.0
_numbers = count()
_LOADS: Final = "bench.isolation_loads"
_FILLED: Final = {NEIGHBOURS: "cold", SCRAPES: "metrics", COLD_TOPICS: COLD_TOPICS}
"""The load of each part for which something has to be stored first."""


class Subject:
    """One server, and the victim that is connected to it."""

    def __init__(self, name: str, directory: Path, part: str) -> None:
        self.name = name
        self._part = part
        self._server = new_server(name, directory, CONFIGURATION)
        self._victim: Victim | None = None

    def start(self) -> None:
        """Raises: ServerFailed, MeasureFailed."""
        self._server.start()
        filling = Program(_LOADS, *self._load_arguments(_FILLED[self._part]), "--fill")
        try:
            filling.line(FILL_SECONDS_MAX)
        finally:
            filling.close()
        self._connect_victim()

    def _connect_victim(self) -> None:
        more = ["--topics", "150", "--size-bytes", str(MESSAGE_BYTES)]
        arguments = more if self._part == COLD_TOPICS else []
        self._victim = Victim(self._server.service_url, f"{PREFIX}-victim", *arguments)

    def _load_arguments(self, kind: str) -> list[str]:
        topic = f"{PREFIX}-{kind.replace(' ', '-')}"
        if kind not in FILLS:
            topic += f"-{next(_numbers)}"
        server = self._server
        return [kind, server.service_url, server.web_url, str(server.directory), topic]

    def measure(self, case: str, seconds: float) -> dict[str, Any]:
        """The victim's figures in one case of the part. Raises: MeasureFailed."""
        if case == ALONE:
            return self._watched(partial(self._figures, seconds))
        if self._part == COLD_TOPICS:
            rate = int(case) * 1_000_000 // MESSAGE_BYTES
            return self._beside(COLD_TOPICS, partial(self._figures, seconds, rate))
        return self._beside(case, partial(self._figures, seconds))

    def _beside(self, kind: str, figures: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        if kind in BACKLOGS:
            drop_from_page_cache(self._server.directory)
        arguments = self._load_arguments(kind)
        load = Program(_LOADS, *arguments)
        try:
            load.line(BEGIN_SECONDS_MAX)
            time.sleep(SETTLE_SECONDS)
            measured = self._watched(figures)
            done = json.loads(load.finish())
        finally:
            load.close()
            if kind not in FILLS:
                path = arguments[-1].replace("://", "/")
                self._server.http("DELETE", f"/admin/v2/{path}?force=true", timeout_seconds=60.0)
        measured["done per s"] = done["done"] / done["seconds"]
        return measured

    def _watched(self, figures: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """With how long the disk stood still meanwhile, and what held up the loop of Vela."""
        if self.name != "vela":
            return self._beside_device(figures)
        before = look(self._server)
        measured = self._beside_device(figures)
        return {**measured, "stalls": between(before, look(self._server))}

    def _beside_device(self, figures: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        with DeviceWatch(self._server.directory) as watch:
            measured = figures()
        if watch.still_ms_max is None:
            return measured
        return {**measured, STILL: watch.still_ms_max}

    def _figures(self, seconds: float, rate: int | None = None) -> dict[str, Any]:
        assert self._victim is not None
        return self._victim.figures(seconds, rate)

    def pause(self) -> None:
        """The victim leaves, and the server is stopped when it has freed what it removed."""
        self._close_victim()
        wait_freed(self._server, tell)
        self._server.pause()
        write_out()

    def resume(self) -> None:
        """The server goes on, and the victim comes. Raises: MeasureFailed."""
        self._server.resume()
        self._connect_victim()

    def close(self) -> None:
        """End everything, and remove what it stored."""
        self._close_victim()
        self._server.kill()
        shutil.rmtree(self._server.directory, ignore_errors=True)

    def _close_victim(self) -> None:
        victim, self._victim = self._victim, None
        if victim is not None:
            victim.close()


class Run:
    """One part, on servers of its own."""

    def __init__(
        self, report: Report, part: str, names: list[str], directory: Path, seconds: float
    ) -> None:
        self._report = report
        self._part = part
        self._seconds = seconds
        place = directory / part.replace(" ", "-")  # real Pulsar starts in no path with a space
        self._subjects = [Subject(name, place, part) for name in names]

    def start(self) -> None:
        """All servers, one at a time; each is warmed up."""
        for subject in self._subjects:
            subject.start()
            for case in self._cases():
                self._measure(subject, case, counts=False)
            subject.pause()

    def round(self, number: int) -> None:
        """Each case on each server. Odd rounds go the other way."""
        for subject in self._subjects if number % 2 else reversed(self._subjects):
            subject.resume()
            for case in self._cases():
                self._measure(subject, case)
            subject.pause()

    def close(self) -> None:
        """End the servers, and free the disk."""
        for subject in self._subjects:
            subject.close()

    def _cases(self) -> tuple[str, ...]:
        if self._part == COLD_TOPICS:
            return tuple(map(str, COLD_RATES_MB))
        return (ALONE, *CASES[self._part])

    def _measure(self, subject: Subject, case: str, *, counts: bool = True) -> None:
        name = f"{subject.name}, {self._part}, {case or 'alone'}"
        try:
            figures = subject.measure(case, self._seconds if counts else self._seconds / 2)
        except MeasureFailed as failure:
            self._report.failures.append(f"{name}: {failure}")
            tell(f"{name}: not counted: {failure}")
            return
        tell(f"{name}{'' if counts else ' (warm-up)'}: {json.dumps(figures)}")
        if counts:
            self._report.add(subject.name, self._part, case, figures)


def main() -> int:
    """Run, print the tables, write the files; 1 when a bound is missed."""
    chosen = options("isolation", (*CASES, COLD_TOPICS), "parts")
    report = Report(commit())

    def run(directory: Path) -> None:
        for part in chosen.only:
            rounds = Run(report, part, chosen.names, directory, chosen.seconds)
            try:
                rounds.start()
                for number in range(chosen.rounds):
                    rounds.round(number)
            finally:
                rounds.close()

    (TREE / "build").mkdir(exist_ok=True)
    refused = refusal(disk_of(TREE / "build"), ROOM_BYTES)
    if refused is not None:
        print(refused, file=sys.stderr)
        return 1
    return measure_and_write("isolation", report, chosen, run)


if __name__ == "__main__":
    sys.exit(main())
