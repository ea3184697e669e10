"""Faults of a cluster at seeded instants under load, with every acknowledged message checked.

`python -m tests.cluster_faults --rounds 100` has 100 instants of each kind. It can be interrupted,
and goes on where it was: outcomes are in the file of `--output` as soon as their round is over.
Several runs may add to one file at once, of different kinds or seeds. Exit status 1: something did
not hold; the logs of that round are kept.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

import structlog

from compat_tests.oracle.zookeeper_server import ZooKeeperServer
from tests.cluster_faults.cluster import FaultCluster
from tests.cluster_faults.file_systems import enter_own_mounts
from tests.cluster_faults.plan import (
    CUTS,
    KINDS,
    Times,
    brokers_of,
    plan_of,
    quorums_of,
    rounds_left,
)
from tests.cluster_faults.proxy import Proxies
from tests.cluster_faults.results import add_round, read_rounds, summary_of, text_of
from tests.cluster_faults.rounds import run_round
from tests.crash.command_line import commit_of_tree

if TYPE_CHECKING:
    from tests.cluster_faults.rounds import Outcome

MODULE: Final = "tests.cluster_faults"
OUTPUT: Final = Path("build/cluster-faults.json")
ROUNDS_PER_CLUSTER: Final = 30


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"python -m {MODULE}", description=__doc__)
    parser.add_argument("--rounds", type=int, default=1, help="seeds of each kind (default 1)")
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first seed")
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--output", type=Path, default=OUTPUT, help=f"default: {OUTPUT}")
    parser.add_argument("--seconds", type=float, help="begin no round after so long")
    parser.add_argument("--again", action="store_true", help="also what has violations already")
    parser.add_argument("--directory", type=Path, help="for data and logs, kept")
    parser.add_argument(
        "--bookies",
        choices=("vela", "apache"),
        default="vela",
        help="Apache's have no proxies and no file systems of their own: no cuts, no full disks",
    )
    return parser


@final
class Run:
    """Clusters one after the other, each for many rounds."""

    def __init__(self, arguments: argparse.Namespace, directory: Path, *, can_mount: bool) -> None:
        self._arguments = arguments
        self._directory = directory
        self._can_mount = can_mount
        self._times = Times()
        self._proxies = Proxies()
        self._zookeeper = ZooKeeperServer(directory / "zookeeper")
        self._commit = commit_of_tree()
        self._cluster: FaultCluster | None = None
        self._shape: tuple[str, int, int] | None = None
        self._rounds = 0
        self._clusters = 0
        self.broken = 0
        """Rounds with violations."""

    def run(self, rounds: list[tuple[str, int]]) -> None:
        """All of them, or as many as fit into the time."""
        until = time.monotonic() + (self._arguments.seconds or float("inf"))
        self._proxies.start()
        try:
            self._zookeeper.start()
            for kind, seed in rounds:
                if time.monotonic() > until:
                    break
                self._round(kind, seed)
        except Exception:
            self._end_cluster(are_logs_kept=True)
            self.broken += 1
            raise
        finally:
            self._end_cluster()
            self._zookeeper.kill()
            self._proxies.stop()

    def _round(self, kind: str, seed: int) -> None:
        plan = plan_of(kind, seed, random.Random(f"{kind} {seed}"), self._times)
        cluster = self._cluster_for(kind, seed)
        name = f"{kind}-{seed}"
        directory = self._directory / name
        outcome = run_round(
            cluster, self._proxies, plan, self._times, directory, self._directory / "client.log"
        )
        self._rounds += 1
        found = {"commit": self._commit, "bookies": self._arguments.bookies}
        if not outcome.is_void:
            add_round(self._arguments.output, asdict(self._times), outcome.as_json() | found)
        _tell(outcome)
        if outcome.violations:
            self.broken += not outcome.is_void
            self._end_cluster(are_logs_kept=True)
        else:
            shutil.rmtree(directory)

    def _cluster_for(self, kind: str, seed: int) -> FaultCluster:
        quorums, bookies = quorums_of(seed)
        brokers = brokers_of(kind)
        shape = quorums, bookies, brokers
        worn = self._cluster is not None and self._cluster.is_worn
        if shape != self._shape or self._rounds >= ROUNDS_PER_CLUSTER or worn:
            self._end_cluster()
        if self._cluster is None:
            self._shape, self._rounds = shape, 0
            self._clusters += 1
            self._cluster = FaultCluster(
                self._directory / f"cluster-{self._clusters}",
                self._zookeeper,
                self._proxies,
                self._times,
                quorums=quorums,
                bookies=bookies,
                brokers=brokers,
                has_small_disks=self._can_mount,
                has_apache_bookies=self._arguments.bookies == "apache",
            )
            self._cluster.start()
        return self._cluster

    def _end_cluster(self, *, are_logs_kept: bool = False) -> None:
        if self._cluster is not None:
            cluster, self._cluster = self._cluster, None
            cluster.end()
            if not are_logs_kept:
                shutil.rmtree(cluster.directory)


def _word(outcome: Outcome) -> str:
    if outcome.is_void:
        return "VOID (the machine was too busy, to be done again)"
    return "FAILED" if outcome.violations else "ok"


def _tell(outcome: Outcome) -> None:
    allowed = outcome.pause_allowed_s
    print(
        f"{outcome.kind} {outcome.seed}: {_word(outcome)}, "
        f"{outcome.quorums}, after {outcome.instant_ms} ms, {outcome.acknowledged} acknowledged, "
        f"{outcome.read} read, {outcome.doubled} doubled, pause {outcome.pause_s:.2f} s"
        f"{'' if allowed is None else f' of {allowed:.2f}'}, {outcome.seconds:.1f} s",
        flush=True,
    )
    for violation in outcome.violations[:10]:
        print("   ", violation, flush=True)


def _kinds(arguments: argparse.Namespace, *, can_mount: bool) -> list[str]:
    """Those that can be made here."""
    impossible: set[str] = set()
    if arguments.bookies == "apache":
        impossible = {*CUTS, "disk-full"}
    elif not can_mount:
        impossible = {"disk-full"}
    left_out = impossible & set(arguments.kinds)
    if left_out:
        print(f"not possible here: {', '.join(sorted(left_out))}", flush=True)
    return [kind for kind in arguments.kinds if kind not in impossible]


def main(given: list[str]) -> int:
    """The command line."""
    arguments = _parser().parse_args(given)
    can_mount = enter_own_mounts(["-m", MODULE, *given])
    known = read_rounds(arguments.output)
    done = [
        (each["kind"], each["seed"])
        for each in known
        if not (arguments.again and each["violations"])
    ]
    seeds = range(arguments.first, arguments.first + arguments.rounds)
    left = rounds_left(_kinds(arguments, can_mount=can_mount), seeds, done)
    print(f"{len(left)} rounds to do, {Times()}", flush=True)
    directory = arguments.directory or Path(tempfile.mkdtemp(prefix="vela-cluster-faults-"))
    directory.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that no server is left behind
    with open(directory / "runner.log", "a") as log:
        structlog.configure(logger_factory=structlog.WriteLoggerFactory(file=log))
        return _run(arguments, left, directory, can_mount=can_mount)


def _run(
    arguments: argparse.Namespace,
    left: list[tuple[str, int]],
    directory: Path,
    *,
    can_mount: bool,
) -> int:
    """All rounds, and what is told about them."""
    run = Run(arguments, directory, can_mount=can_mount)
    try:
        if left:
            run.run(left)
    finally:
        print(text_of(summary_of(read_rounds(arguments.output))), flush=True)
        if run.broken:
            print(f"logs are kept in {directory}", flush=True)
        elif arguments.directory is None:
            shutil.rmtree(directory, ignore_errors=True)
    return 1 if run.broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
