"""`python -m tests.simulation`: see --help. A seed that failed is run again with `--from <seed>
--trace`, and gives the same run."""

from __future__ import annotations

import argparse
import gc
import os
import subprocess
import sys
import time
from pathlib import Path

HASH_SEED = "PYTHONHASHSEED"


def _parser():
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation",
        description="Simulates three brokers and three bookies under faults.",
    )
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds (default 1)")
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first seed")
    parser.add_argument("--processes", type=int, default=1, help="how many run side by side")
    parser.add_argument("--trace", action="store_true", help="print what happens")
    parser.add_argument("--keep-going", action="store_true", help="go on after a failed seed")
    parser.add_argument(
        "--results",
        type=Path,
        help="append to this file, and leave out seeds that it has of the same sources",
    )
    parser.add_argument("--summary", type=Path, help="only say what is in a file of results")
    parser.add_argument(
        "--without",
        choices=("fence", "order", "session"),
        default="",
        help="take a safeguard out, and succeed when a seed finds that it is missing",
    )
    return parser


def _run_seeds(arguments, seeds):
    """How many failed."""
    from tests.simulation.mutations import without
    from tests.simulation.results import Results
    from tests.simulation.scenario import simulate

    results = Results(arguments.results) if arguments.results else None
    done = results.done() if results else ()
    gc.collect()
    gc.freeze()  # what is left of a run is looked for among less
    failed = 0
    for seed in seeds:
        if seed in done:
            continue
        started = time.process_time()
        with without(arguments.without):
            report = simulate(seed, trace_to=sys.stdout if arguments.trace else None)
        seconds = time.process_time() - started
        if results:
            results.add(report, seconds)
        failed += bool(report.problems)
        print(
            f"seed {seed}: {'FAILED' if report.problems else 'ok'} {report.messages} messages, "
            f"{len(report.faults)} faults, {report.virtual_seconds:.0f} s in {seconds:.2f} s, "
            f"{report.digest & 0xFFFFFFFF:08x}",
            flush=True,
        )
        for problem in report.problems[:5]:
            print("   ", problem, flush=True)
        if failed and not arguments.keep_going:
            break
    return failed


def _run_in_processes(arguments):
    """The sum of what each share of the seeds returns."""
    share = -(-arguments.seeds // arguments.processes)
    children = []
    for number in range(arguments.processes):
        first = arguments.first + number * share
        count = min(share, arguments.first + arguments.seeds - first)
        if count > 0:
            command = [sys.executable, "-m", "tests.simulation", "--from", str(first)]
            command += ["--seeds", str(count)]
            command += ["--without", arguments.without] if arguments.without else []
            command += ["--keep-going"] if arguments.keep_going else []
            command += ["--results", str(arguments.results)] if arguments.results else []
            children.append(subprocess.Popen(command))
    return sum(child.wait() != 0 for child in children)


def main():
    arguments = _parser().parse_args()
    if arguments.summary:
        from tests.simulation.results import summary

        print("\n".join(summary(arguments.summary)))
        return 0
    if arguments.processes > 1:
        return 1 if _run_in_processes(arguments) else 0
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    started = time.monotonic()
    failed = _run_seeds(arguments, seeds)
    print(f"{failed} seeds failed, {time.monotonic() - started:.0f} s", flush=True)
    return int(not failed if arguments.without else bool(failed))


if os.environ.get(HASH_SEED) != "0":
    os.environ[HASH_SEED] = "0"
    os.execv(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]])

sys.exit(main())
