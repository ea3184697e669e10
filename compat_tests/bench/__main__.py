"""`python -m compat_tests.bench`: measure both servers in turns and print the ratio table.

Both servers stay up for the rounds, because a JVM that has just started is slow; while one is
measured, the other is stopped by SIGSTOP, so that it takes neither CPU nor disk. Start-up and idle
figures come from servers of their own, before the rounds.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING

from compat_tests.bench import report
from compat_tests.bench.measurement import idle_figures
from compat_tests.bench.perf_client import PerfFailed
from compat_tests.bench.scenarios import SCENARIOS, Bench, warm_up
from compat_tests.oracle.distribution import TREE, OracleAbsent, pulsar_home
from compat_tests.oracle.pulsar_server import PulsarServer
from compat_tests.oracle.vela_server import VelaServer

if TYPE_CHECKING:
    from compat_tests.oracle.server_process import ServerProcess

WARM_UP_ROUNDS = 2
BENCH_CONFIGURATION = {"journalSyncData": "true"}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m compat_tests.bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each (default 3)")
    parser.add_argument(
        "--scenarios", nargs="+", metavar="TEXT", help="only those with one of these in the name"
    )
    parser.add_argument("--quick", action="store_true", help="one short round, to see that it runs")
    parser.add_argument("--only-server", choices=("vela", "pulsar"), help="for profiling; no table")
    parser.add_argument("--list", action="store_true", help="list the scenarios and end")
    return parser.parse_args()


def _new_server(name: str, directory: Path) -> ServerProcess:
    if name == "vela":
        return VelaServer(directory / "vela", BENCH_CONFIGURATION)
    return PulsarServer(directory / "pulsar", small=False)


def _measure_starts(
    names: list[str], directory: Path, rounds: int, results: report.Results
) -> None:
    for turn in range(rounds):
        for name in names:
            server = _new_server(name, directory / f"start-{turn}")
            try:
                server.start()
                figures = {"ready s": server.ready_after_seconds}
                figures |= idle_figures(server, settle_seconds=5.0, watch_seconds=8.0)
            finally:
                server.kill()
            shutil.rmtree(server.directory, ignore_errors=True)
            _keep(results, report.START, name, figures)


def _keep(results: report.Results, scenario: str, server: str, figures: dict[str, float]) -> None:
    results.setdefault(scenario, {}).setdefault(server, []).append(figures)
    told = ", ".join(f"{figure} {value:,.2f}" for figure, value in figures.items())
    print(f"{time.strftime('%H:%M:%S')} {scenario}: {server}: {told}", flush=True)


def _run(options: argparse.Namespace, directory: Path, results: report.Results) -> bool:
    """Measure; whether everything asked for could be measured."""
    complete = True
    names = [options.only_server] if options.only_server else ["vela", "pulsar"]
    bench = Bench(
        home=pulsar_home(),
        windows=1,
        catch_up_messages=50_000 if options.quick else 300_000,
        cold_messages_per_topic=10 if options.quick else 40,
    )
    wanted = [
        name
        for name in SCENARIOS
        if not options.scenarios or any(text in name for text in options.scenarios)
    ]
    rounds = 1 if options.quick else options.rounds
    if not options.scenarios or any(text in report.START for text in options.scenarios):
        _measure_starts(names, directory, rounds, results)
    if not wanted:
        return complete
    servers = {name: _new_server(name, directory) for name in names}
    with ExitStack() as ends:
        for server in servers.values():
            ends.callback(server.kill)
            server.start()
        for server in servers.values():
            server.pause()
        for _ in range(0 if options.quick else WARM_UP_ROUNDS):
            for server in servers.values():
                _under_load(server, lambda server=server: warm_up(bench, server))
        for turn in range(rounds):
            for name in wanted:
                # Every other round begins with the other server.
                for server in sorted(servers.values(), key=lambda s: s.name, reverse=turn % 2 == 0):
                    try:
                        figures = _under_load(
                            server, lambda server=server, name=name: SCENARIOS[name](bench, server)
                        )
                    except PerfFailed as failure:
                        complete = False  # the other scenarios are still worth having
                        print(f"{name}: {server.name}: not measured: {failure}", flush=True)
                    else:
                        _keep(results, name, server.name, figures)
    return complete


def _under_load(server: ServerProcess, action):
    server.resume()
    time.sleep(1.0)
    try:
        return action()
    finally:
        time.sleep(1.0)  # let it finish what the clients left
        server.pause()


def main() -> int:
    """Run, print the table, write the files; 1 when something could not be measured."""
    options = _arguments()
    if options.list:
        print("\n".join([report.START, *SCENARIOS]))
        return 0
    begun = time.monotonic()
    # Below the tree, so that data and journal lie on the disk a user would measure.
    (TREE / "build").mkdir(exist_ok=True)
    directory = Path(mkdtemp(prefix="bench-", dir=TREE / "build"))
    results: report.Results = {}
    try:
        complete = _run(options, directory, results)
    except OracleAbsent as absent:
        print(f"the benchmark needs real Pulsar: {absent}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    print(f"\n{report.SAID}\n\n{report.table(results)}\n")
    whole = not (options.quick or options.scenarios or options.only_server)
    if whole:
        for path in report.write(results, options.rounds, time.monotonic() - begun):
            print(f"written: {path.relative_to(TREE)}")
    return 0 if complete else 1


if __name__ == "__main__":
    sys.exit(main())
