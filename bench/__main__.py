"""`python -m bench`: measure both servers in turns and print the ratio table.

Both servers stay up for all scenarios, because a JVM that has just started is slow; while one is
measured, the other is stopped by SIGSTOP, so that it takes neither CPU nor disk. Start-up and idle
figures come from servers of their own, before the rest. Every round is written to the JSON file at
once; a scenario takes the place of its earlier record when it is complete, so single ones can be
measured in separate quiet hours, each with its commit and date.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from bench import oracle, report, rest, telemetry
from bench.results import SERVERS, Origin, Results
from bench.rounds import Rounds, run_and_report, tell, wanted_scenarios
from bench.scenarios import SCENARIOS as PUBLISHING
from bench.scenarios import Bench, warm_up
from bench.session import Session
from bench.tree import OUTPUT, QUICK_OUTPUT, commit, how_vela_runs, machine

if TYPE_CHECKING:
    from bench.results import Figures

SCENARIOS = {**PUBLISHING, telemetry.NAME: telemetry.max_rate}
NAMES = [*rest.SCENARIOS, *SCENARIOS]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
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
    return oracle.parsed(parser)


class Run:
    """One start of the benchmark."""

    def __init__(self, options: argparse.Namespace, directory: Path, results: Results) -> None:
        self._options = options
        self._directory = directory
        names = [options.only_server] if options.only_server else list(SERVERS)
        # What the tree is now; it may change while we measure.
        origin = Origin(commit(), how_vela_runs(), 1 if options.quick else options.rounds)
        save_or_not = (lambda: None) if options.only_server else (lambda: save(results))
        self._rounds = Rounds(results, origin, names, save_or_not, options.resume)
        self._session = Session(
            Bench(
                windows=1,
                catch_up_messages=20_000 if options.quick else 300_000,
                cold_messages_per_topic=10 if options.quick else 40,
                look=lambda server: self._session.look(server),
            ),
            directory,
            tell,
            warm=None if options.quick else warm_up,
        )

    def all_of(self, wanted: list[str]) -> bool:
        """Measure these scenarios; whether each of them is complete."""
        complete = True
        rounds = self._rounds
        wanted = rounds.left(wanted)
        try:
            for name in (name for name in wanted if name in rest.SCENARIOS):
                complete &= rounds.scenario(
                    name, lambda server, attempt, name=name: self._at_rest(name, server, attempt)
                )
            others = [name for name in wanted if name not in rest.SCENARIOS]
            if others:
                self._session.start(rounds.names)
            for name in others:
                complete &= rounds.scenario(
                    name,
                    lambda server, _, name=name: self._session.measure(server, SCENARIOS[name]),
                )
        finally:
            self._session.close()
        return complete

    def _at_rest(self, scenario: str, name: str, attempt: int) -> Figures:
        server = rest.own_server(name, self._directory / f"rest-{attempt}")
        quick = self._options.quick
        counts = rest.QUICK_COUNTS if quick else rest.COUNTS[name]
        try:
            return rest.SCENARIOS[scenario](server, counts, 2.0 if quick else rest.WATCH_SECONDS)
        finally:
            server.kill()
            shutil.rmtree(server.directory, ignore_errors=True)


def save(results: Results) -> None:
    """Write the JSON file with the rows of the table in front."""
    results.save(
        pulsar=oracle.chosen().version,
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


def main() -> int:
    """Run, print the table, write the files; 1 when something could not be measured."""
    options = _arguments()
    if options.list:
        print("\n".join(NAMES))
        return 0
    output = oracle.output(options)
    results = Results(output / "benchmark.json", NAMES)
    if options.report:
        write_report(results)
        return 0
    try:
        wanted = wanted_scenarios(NAMES, options.only)
    except ValueError as unknown:
        print(unknown, file=sys.stderr)
        return 2
    is_written = options.only_server is None
    return run_and_report(
        lambda directory: Run(options, directory, results).all_of(wanted),
        lambda: write_report(results) if is_written else None,
        is_quick=options.quick,
    )


if __name__ == "__main__":
    sys.exit(main())
