"""`python -m compat_tests.bench.cluster`: replicated clusters side by side, with targets.

(a) real ZooKeeper, three real bookies and a real broker; (b) a broker of Vela on real bookies;
(c) broker and bookies of Vela. One cluster is under load at a time, the others are stopped. Every
round is written to the JSON file at once, and `--resume` goes on with it.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from compat_tests.bench import cluster_report as report
from compat_tests.bench.__main__ import OUTPUT, QUICK_OUTPUT, commit, how_vela_runs, machine
from compat_tests.bench.cluster_servers import CLUSTERS, BenchCluster
from compat_tests.bench.disk_room import ROOM_AT_QUICK_START_BYTES, ROOM_AT_START_BYTES
from compat_tests.bench.measurement import MEBIBYTE, per_million
from compat_tests.bench.results import Origin, Results
from compat_tests.bench.rounds import Rounds, run, tell, wanted_scenarios
from compat_tests.bench.scenarios import (
    BATCHED,
    FULL_SPEED,
    UNBATCHED,
    Bench,
    publish,
    warm_up,
)
from compat_tests.bench.session import Session
from compat_tests.oracle.distribution import PULSAR_VERSION, TREE, pulsar_home

if TYPE_CHECKING:
    from compat_tests.bench.results import Figures

LOADS: Final = {
    report.UNBATCHED: (UNBATCHED, FULL_SPEED),
    report.BATCHED: (BATCHED, FULL_SPEED),
    report.STEADY: (UNBATCHED, "1000"),
}
"""Arguments of pulsar-perf, and its rate; 1 KB to one topic."""
WARM_UP_WINDOWS_MIN_OF_JVMS: Final = 6


def measure(
    bench: Bench, cluster: BenchCluster, name: str, options: list[str], rate: str
) -> Figures:
    """One round under one load."""
    topic = "".join(letter if letter.isalnum() else "-" for letter in name)
    published = publish(bench, cluster, topic, options, 1, rate)
    spent = {
        kind: per_million(seconds, published.messages)
        for kind, seconds in published.cpu_seconds.items()
    }
    return {
        report.CPU: spent["broker"] + spent["bookies"],
        report.BROKER_CPU: spent["broker"],
        report.BOOKIES_CPU: spent["bookies"],
        report.ZOOKEEPER_CPU: spent["ZooKeeper"],
        **published.figures,
        report.RESIDENT: published.resident_mebibytes_max,
        report.ZOOKEEPER_RESIDENT: cluster.zookeeper.resident_bytes() / MEBIBYTE,
    }


def make(name: str, directory: Path) -> BenchCluster:
    """A cluster, not started yet."""
    return BenchCluster(name, directory / name.replace(" ", "-"))


def warm(bench: Bench, cluster: BenchCluster) -> None:
    """The uncounted load at the start of a cluster."""
    if cluster.has_jvms:
        warm_up(bench, cluster, WARM_UP_WINDOWS_MIN_OF_JVMS)
    else:
        warm_up(bench, cluster)


def all_of(
    wanted: list[str], directory: Path, results: Results, options: argparse.Namespace
) -> bool:
    """Measure these loads; whether each has all its rounds."""
    origin = Origin(commit(), how_vela_runs(), options.rounds, CLUSTERS)
    names = [options.only_cluster] if options.only_cluster else list(CLUSTERS)
    save_or_not = (lambda: None) if options.only_cluster else (lambda: save(results))
    rounds = Rounds(results, origin, names, save_or_not, options.resume)
    wanted = rounds.left(wanted)
    if not wanted:
        return True
    session = Session(
        Bench(
            home=pulsar_home(),
            windows=options.windows,
            catch_up_messages=0,
            cold_messages_per_topic=0,
            look=lambda cluster: session.look(cluster),
        ),
        directory,
        tell,
        warm=None if options.quick else warm,
        make=make,
    )
    complete = True
    try:
        session.start(names)
        for load in wanted:
            arguments, rate = LOADS[load]
            action = partial(measure, name=load, options=arguments, rate=rate)
            complete &= rounds.scenario(
                load, lambda name, _attempt, action=action: session.measure(name, action)
            )
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
    page = report.document(records, machine())
    path = results.path.with_suffix(".md")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page)
    print(f"\n{report.table(records)}\n\nwritten: {path}\nwritten: {results.path}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m compat_tests.bench.cluster")
    parser.add_argument("--rounds", type=int, default=3, help="of each load and cluster (3)")
    parser.add_argument("--windows", type=int, default=1, help="of ten seconds, per round (1)")
    parser.add_argument("--only", nargs="+", metavar="TEXT", help="loads with this in the name")
    parser.add_argument(
        "--resume", action="store_true", help="go on with what this commit has begun to measure"
    )
    parser.add_argument(
        "--quick", action="store_true", help=f"one round, no warm-up; into {QUICK_OUTPUT}"
    )
    parser.add_argument("--output", type=Path, help=f"directory of the files (default {OUTPUT})")
    parser.add_argument("--only-cluster", choices=CLUSTERS, help="nothing is written")
    parser.add_argument("--report", action="store_true", help="write the page again, and end")
    options = parser.parse_args()
    if options.quick:
        options.rounds = 1
    return options


def main() -> int:
    """Run, print the table, write the files; 1 when something could not be measured."""
    options = _arguments()
    output = options.output or (QUICK_OUTPUT if options.quick else OUTPUT)
    results = Results(output / "cluster.json", list(LOADS))
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
    if not options.only_cluster:
        write_report(results)
    tell(f"ended after {(time.monotonic() - begun) / 60:.0f} minutes")
    return status


if __name__ == "__main__":
    sys.exit(main())
