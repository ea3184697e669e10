"""`python -m bench.flood`: one tenant's latency beside a flood of another tenant.

Two brokers of each make run. The victim is connected to the first one all the time. A flood goes to
the first or to the second, so that the difference of the two is what sharing a broker costs, and
not what the flood's client costs the machine. Both are warmed up first; floods and places alternate
within a round, and the brokers of the other make are stopped (SIGSTOP) meanwhile.
"""

from __future__ import annotations

import json
import sys
import time
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import psutil

from bench.flood_report import ALONE, FLOODS, OTHER, SAME, Report
from bench.measurement import write_out
from bench.session import new_server
from bench.victim import MeasureFailed, Program, Victim
from bench.victim_runs import measure_and_write, options, tell

if TYPE_CHECKING:
    from pathlib import Path

    from compat_tests.oracle.server_process import ServerProcess

CONFIGURATION: Final = {"gcWaitTime": "5000", "journalMaxBackups": "0"}
"""Space of deleted topics comes back soon, and old journal files do not pile up."""
VICTIM_TOPIC: Final = "persistent://victim/quiet/topic"
FLOODED: Final = {"": "flood/free", "limited": "flood/limited"}
"""Namespaces by the last word of a flood's name."""
LIMIT: Final = {"publishThrottlingRateInMsg": 1000, "publishThrottlingRateInByte": 10_000_000}
BEGIN_SECONDS_MAX: Final = 120.0
SETTLE_SECONDS: Final = 1.0
_numbers = count()


class Pair:
    """Two brokers of one make, and the victim, which uses the first."""

    def __init__(self, name: str, directory: Path) -> None:
        self.name = name
        configuration = CONFIGURATION
        self.brokers = [
            new_server(name, directory / place, configuration) for place in (SAME, OTHER)
        ]
        self._victim: Victim | None = None

    def start(self) -> None:
        """Raises: ServerFailed, MeasureFailed."""
        for broker in self.brokers:
            broker.start()
            self._create(broker)
        self._connect_victim()

    def _connect_victim(self) -> None:
        self._victim = Victim(self.brokers[0].service_url, VICTIM_TOPIC)

    def _create(self, broker: ServerProcess) -> None:
        _, clusters = broker.http("GET", "/admin/v2/clusters")
        for tenant in ("victim", "flood"):
            _ask(broker, "PUT", f"/tenants/{tenant}", {"allowedClusters": clusters})
        for namespace in ("victim/quiet", *FLOODED.values()):
            _ask(broker, "PUT", f"/namespaces/{namespace}", {})
        _ask(broker, "POST", f"/namespaces/{FLOODED['limited']}/publishRate", LIMIT)

    def measure(self, flood: str, place: str, seconds: float) -> dict[str, Any]:
        """The victim's figures beside this flood. Raises: MeasureFailed."""
        if place == ALONE:
            return self._victim_figures(seconds)
        kind, _, limited = flood.partition(" ")
        broker = self.brokers[place == OTHER]
        path = f"{FLOODED[limited]}/{kind}-{next(_numbers)}"
        load = Program("bench.flood_loads", kind, str(broker.broker_port), f"persistent://{path}")
        try:
            load.line(BEGIN_SECONDS_MAX)
            time.sleep(SETTLE_SECONDS)
            processes = [broker.cpu_seconds, lambda: _cpu_seconds(load.pid)]
            begun = time.monotonic()
            before = [each() for each in processes]
            measured = self._victim_figures(seconds)
            after = [each() for each in processes]
            took = time.monotonic() - begun
            done = json.loads(load.finish())
        finally:
            load.close()
            broker.http("DELETE", f"/admin/v2/persistent/{path}?force=true")
        measured["flood per s"] = done["done"] / done["seconds"]
        measured["flooded broker CPU"], measured["flood CPU"] = (
            (last - first) / took for first, last in zip(before, after, strict=True)
        )
        return measured

    def _victim_figures(self, seconds: float) -> dict[str, Any]:
        assert self._victim is not None
        return self._victim.figures(seconds)

    def pause(self) -> None:
        """The victim leaves, and the brokers are stopped."""
        self._close_victim()
        for broker in self.brokers:
            broker.pause()

    def resume(self) -> None:
        """The brokers go on, and the victim comes. Raises: MeasureFailed."""
        for broker in self.brokers:
            broker.resume()
        self._connect_victim()

    def close(self) -> None:
        """End everything."""
        self._close_victim()
        for broker in self.brokers:
            broker.kill()

    def _close_victim(self) -> None:
        victim, self._victim = self._victim, None
        if victim is not None:
            victim.close()


def _ask(broker: ServerProcess, method: str, path: str, body: object) -> None:
    status, answer = broker.http(method, f"/admin/v2{path}", body)
    if status >= 300:
        raise MeasureFailed(f"{broker.name}: {method} {path}: {status} {answer}")


def _cpu_seconds(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


class Run:
    """All measurements of one start."""

    def __init__(
        self, report: Report, pairs: list[Pair], floods: list[str], seconds: float
    ) -> None:
        self._report = report
        self._pairs = pairs
        self._floods = floods
        self._seconds = seconds

    def start(self) -> None:
        """All brokers, with those of one make under way at a time; each is warmed up."""
        for pair in self._pairs:
            pair.start()
            for place in (SAME, OTHER):
                self._measure(pair, "1KB", place, counts=False)
            pair.pause()
            write_out()

    def round(self, number: int) -> None:
        """Each flood in both places on each make. Odd rounds go the other way."""
        places = (SAME, OTHER) if number % 2 else (OTHER, SAME)
        for pair in self._pairs if number % 2 else reversed(self._pairs):
            pair.resume()
            self._measure(pair, "", ALONE)
            for flood in self._floods:
                for place in places:
                    self._measure(pair, flood, place)
            pair.pause()
            write_out()

    def _measure(self, pair: Pair, flood: str, place: str, *, counts: bool = True) -> None:
        name = f"{pair.name}, {flood or 'none'}, {place}"
        try:
            figures = pair.measure(flood, place, self._seconds)
        except MeasureFailed as failure:
            self._report.failures.append(f"{name}: {failure}")
            tell(f"{name}: not counted: {failure}")
            return
        tell(f"{name}: {json.dumps(figures)}")
        if counts:
            self._report.add(pair.name, flood, place, figures)


def main() -> int:
    """Run, print the table, write the files; 1 when the bound is missed."""
    chosen = options("flood", list(FLOODS), "floods")
    report = Report()

    def run(directory: Path) -> None:
        pairs: list[Pair] = []
        try:
            pairs += [Pair(name, directory) for name in chosen.names]
            rounds = Run(report, pairs, chosen.only, chosen.seconds)
            before = report.rounds_begun
            rounds.start()
            for number in range(before, before + chosen.rounds):
                rounds.round(number)
        finally:
            for pair in pairs:
                pair.close()

    return measure_and_write("flood", report, chosen, run)


if __name__ == "__main__":
    sys.exit(main())
