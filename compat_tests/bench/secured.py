"""`python -m compat_tests.bench.secured`: what TLS, tokens and authorization cost on both servers.

Four servers stay up, two of each kind; one is under load at a time, the others are stopped. Every
round is written to the JSON file at once, and `--resume` goes on with it.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

from compat_tests.bench import secured_report as report
from compat_tests.bench.__main__ import OUTPUT, QUICK_OUTPUT, commit, how_vela_runs, machine
from compat_tests.bench.disk_room import ROOM_AT_QUICK_START_BYTES, ROOM_AT_START_BYTES
from compat_tests.bench.results import Origin, Results
from compat_tests.bench.rounds import Rounds, run, tell, wanted_scenarios
from compat_tests.bench.scenarios import SCENARIOS, Bench, warm_up
from compat_tests.bench.secured_servers import SERVERS, make
from compat_tests.bench.session import Session
from compat_tests.oracle.distribution import PULSAR_VERSION, TREE, pulsar_home

if TYPE_CHECKING:
    from compat_tests.bench.results import Figures

LOADS: Final = (
    "1 KB unbatched, one topic",
    "1 KB batched, one topic",
    "1,000 msg/s unbatched",
    "5,000 msg/s end to end",
)


def all_of(
    wanted: list[str], directory: Path, results: Results, options: argparse.Namespace
) -> bool:
    """Measure these loads; whether each has all its rounds."""
    origin = Origin(commit(), how_vela_runs(), options.rounds, SERVERS)
    rounds = Rounds(results, origin, list(SERVERS), lambda: save(results), options.resume)
    wanted = rounds.left(wanted)
    if not wanted:
        return True
    session = Session(
        Bench(
            home=pulsar_home(),
            windows=1,
            catch_up_messages=0,
            cold_messages_per_topic=0,
            look=lambda server: session.look(server),
        ),
        directory,
        tell,
        warm=None if options.quick else warm_up,
        make=make,
    )
    complete = True
    try:
        session.start(list(SERVERS))
        for load in wanted:

            def measure(name: str, _attempt: int, load: str = load) -> Figures:
                return session.measure(name, SCENARIOS[load])

            complete &= rounds.scenario(load, measure)
    finally:
        session.close()
    return complete


def save(results: Results) -> None:
    """Write the JSON file with the rows of the table in front."""
    results.save(
        pulsar=PULSAR_VERSION,
        machine=machine(),
        note=report.SAID,
        rows=[asdict(row) for row in report.rows(results.shown())],
    )


def write_report(results: Results) -> None:
    """Print the table, and write the page beside the JSON file."""
    records = results.shown()
    if not records:
        print("nothing was measured, nothing is written")
        return
    path = results.path.with_suffix(".md")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(report.document(records, machine()))
    print(f"\n{report.table(records)}\n\nwritten: {path}\nwritten: {results.path}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m compat_tests.bench.secured")
    parser.add_argument("--rounds", type=int, default=3, help="of each load and server (3)")
    parser.add_argument("--only", nargs="+", metavar="TEXT", help="loads with this in the name")
    parser.add_argument(
        "--resume", action="store_true", help="go on with what this commit has begun to measure"
    )
    parser.add_argument(
        "--quick", action="store_true", help=f"one round, no warm-up; into {QUICK_OUTPUT}"
    )
    parser.add_argument("--output", type=Path, help=f"directory of the files (default {OUTPUT})")
    parser.add_argument("--report", action="store_true", help="write the page again, and end")
    options = parser.parse_args()
    if options.quick:
        options.rounds = 1
    return options


def main() -> int:
    """Run, print the table, write the files; 1 when something could not be measured."""
    options = _arguments()
    output = options.output or (QUICK_OUTPUT if options.quick else OUTPUT)
    results = Results(output / "secured.json", list(LOADS))
    if options.report:
        write_report(results)
        return 0
    try:
        wanted = wanted_scenarios(list(LOADS), options.only)
    except ValueError as unknown:
        print(unknown, file=sys.stderr)
        return 2
    begun = time.monotonic()
    status = run(
        TREE / "build",
        ROOM_AT_QUICK_START_BYTES if options.quick else ROOM_AT_START_BYTES,
        lambda directory: all_of(wanted, directory, results, options),
    )
    write_report(results)
    tell(f"ended after {(time.monotonic() - begun) / 60:.0f} minutes")
    return status


if __name__ == "__main__":
    sys.exit(main())
