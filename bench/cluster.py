"""`python -m bench.cluster`: replicated clusters side by side, with targets.

(a) real ZooKeeper, three real bookies and a real broker; (b) a broker of Vela on real bookies;
(c) broker and bookies of Vela. One cluster is under load at a time, the others are stopped.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Final

from bench import cluster_report as report
from bench.cluster_servers import CLUSTERS, BenchCluster
from bench.measurement import MEBIBYTE, per_million
from bench.scenarios import BATCHED, FULL_SPEED, UNBATCHED, Bench, publish, warm_up
from bench.side_by_side import Benchmark

if TYPE_CHECKING:
    from pathlib import Path

    from bench.results import Figures

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


BENCHMARK: Final = Benchmark(
    name="cluster",
    report=report,
    servers=CLUSTERS,
    loads={
        load: partial(measure, name=load, options=arguments, rate=rate)
        for load, (arguments, rate) in LOADS.items()
    },
    make=make,
    warm=warm,
)


if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
