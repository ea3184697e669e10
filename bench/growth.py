"""`python -m bench.growth`: what a message costs when something grows.

Each axis has servers of its own, which grow from point to point; they take turns at each point. A
server that cannot be made to grow in time ends its curve there, and the page says so. For the
fan-outs each round of Vela gets a new server; real Pulsar keeps one, because a JVM that has just
started is slow. Every round is written to the JSON file at once.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from typing import TYPE_CHECKING, Any, Final

from bench import oracle
from bench.disk_room import SERVER_BYTES_MAX
from bench.growth_loads import CONFIGURATION, Fanouts, Growing, publishing
from bench.growth_report import (
    AXES,
    CONSUMERS,
    SUBSCRIPTIONS,
    document,
    name_of,
    names,
    plot,
    servers_of,
    table,
)
from bench.results import Origin, Results
from bench.rounds import Rounds, run_and_report, tell
from bench.scenarios import Bench, warm_up
from bench.session import RoundFailed, Session, new_server
from bench.tree import QUICK_OUTPUT, commit, how_vela_runs, machine

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from bench.results import Figures
    from bench.subject import Subject

GROW_SECONDS_MAX: Final = 600.0
QUICK_GROW_SECONDS_MAX: Final = 90.0


class Run:
    """One start of the benchmark."""

    def __init__(self, options: argparse.Namespace, directory: Path, results: Results) -> None:
        self._options = options
        self._directory = directory
        self._results = results
        self._commit, self._vela = commit(), how_vela_runs()
        self._seconds_max = QUICK_GROW_SECONDS_MAX if options.quick else GROW_SECONDS_MAX

    def axis(self, axis: str) -> bool:
        """All points of it. Whether Vela was measured at each."""
        values = AXES[axis].quick if self._options.quick else AXES[axis].values
        servers = [name for name in ("vela", "pulsar") if name in self._options.servers]
        if axis in (CONSUMERS, SUBSCRIPTIONS):
            return self._fanouts(axis, values, servers)
        groups = [servers] if AXES[axis].together else [[name] for name in servers]
        complete = True
        for number, group in enumerate(groups):
            complete &= self._publishing(axis, values, group, goes_on=number > 0)
        return complete

    def _rounds(self, axis: str, value: int, group: Sequence[str], *, goes_on: bool) -> Rounds:
        servers = servers_of(axis, value)
        return Rounds(
            self._results,
            Origin(self._commit, self._vela, self._options.rounds, servers),
            [name for name in group if name in servers],
            self._save,
            self._options.resume or goes_on,
        )

    def _publishing(
        self, axis: str, values: Sequence[int], group: list[str], *, goes_on: bool
    ) -> bool:
        bench = Bench(
            windows=1 if self._options.quick else 2,
            catch_up_messages=0,
            cold_messages_per_topic=0,
            look=lambda server: session.look(server),
        )
        session = Session(
            bench,
            self._directory,
            tell,
            warm=None if self._options.quick else warm_up,
            make=lambda name, directory: new_server(name, directory, CONFIGURATION),
        )
        grown: dict[Subject, Growing] = {}

        def measure(name: str, value: int) -> Figures:
            growing = grown.setdefault(session.servers[name], Growing(self._seconds_max))
            if growing.ended is not None:
                raise RoundFailed(growing.ended)
            return session.measure(
                name, lambda bench, server: publishing(axis, value, growing, bench, server)
            )

        complete = True
        try:
            session.start(group)
            session.kept_bytes_max = SERVER_BYTES_MAX  # what has grown stays
            for value in values:
                rounds = self._rounds(axis, value, group, goes_on=goes_on)
                complete &= self._point(axis, value, rounds, measure)
        finally:
            session.close()
            for server in session.servers.values():
                shutil.rmtree(server.directory, ignore_errors=True)
        return complete

    def _fanouts(self, axis: str, values: Sequence[int], servers: list[str]) -> bool:
        fanouts = Fanouts(self._directory, quick=self._options.quick)
        complete = True
        try:
            for value in values:
                rounds = self._rounds(axis, value, servers, goes_on=False)
                complete &= self._point(
                    axis, value, rounds, lambda name, value: fanouts.measure(axis, name, value)
                )
        finally:
            fanouts.close()
        return complete

    def _point(
        self, axis: str, value: int, rounds: Rounds, measure: Callable[[str, int], Figures]
    ) -> bool:
        """Whether Vela has its rounds, if it is to be measured."""
        name = name_of(axis, value)
        if not self._options.resume or rounds.left([name]):
            rounds.scenario(name, lambda server, _: measure(server, value))
        if "vela" not in rounds.names:
            return True
        return self._results.shown()[name].count("vela") >= self._options.rounds

    def _save(self) -> None:
        self._results.save(**_about(self._seconds_max))


def _about(seconds_max: float) -> dict[str, Any]:
    return {"pulsar": oracle.chosen().version, "machine": machine(), "seconds_max": seconds_max}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.growth")
    parser.add_argument("--rounds", type=int, default=1, help="of each point and server (1)")
    parser.add_argument("--only", nargs="+", choices=AXES, default=list(AXES), help="these axes")
    parser.add_argument(
        "--servers", nargs="+", choices=("vela", "pulsar"), default=("vela", "pulsar")
    )
    parser.add_argument(
        "--resume", action="store_true", help="go on with the rounds this commit has begun"
    )
    parser.add_argument(
        "--quick", action="store_true", help=f"two points of each axis; into {QUICK_OUTPUT}"
    )
    parser.add_argument("--report", action="store_true", help="write page and plot again, and end")
    return oracle.parsed(parser)


def _measure(options: argparse.Namespace, directory: Path, results: Results) -> bool:
    """All axes; whether Vela was measured at each point."""
    measured = Run(options, directory, results)
    complete = True
    for axis in AXES:
        if axis in options.only:
            complete &= measured.axis(axis)
    return complete


def _write_report(results: Results) -> None:
    records = results.shown()
    if not records:
        print("nothing was measured, nothing is written")
        return
    page, picture = (results.path.with_suffix(f".{kind}") for kind in ("md", "png"))
    page.write_text(document(records, json.loads(results.path.read_text())))
    plot(records, picture)
    for axis in AXES:
        print(f"\n{axis}\n\n{table(axis, records)}")
    print(f"\nwritten: {page}\nwritten: {results.path}\nwritten: {picture}")


def main() -> int:
    """Run, print the tables, write the files; 1 when Vela could not be measured at a point."""
    options = _arguments()
    output = oracle.output(options)
    values_of = {axis: each.quick if options.quick else each.values for axis, each in AXES.items()}
    results = Results(output / "growth.json", names(values_of))
    if options.report:
        _write_report(results)
        return 0
    return run_and_report(
        lambda directory: _measure(options, directory, results),
        lambda: _write_report(results),
        is_quick=options.quick,
    )


if __name__ == "__main__":
    sys.exit(main())
