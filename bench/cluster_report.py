"""The table of `make bench-cluster`, and its rows for the JSON file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bench.cluster_servers import BOOKIES, CLUSTERS, MIXED, PULSAR, QUORUMS, VELA
from bench.report import Spread, Target, short, spread_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench.results import Record

UNBATCHED: Final = "1 KB unbatched, saturated"
BATCHED: Final = "1 KB batched, saturated"
STEADY: Final = "1,000 msg/s unbatched"
CPU: Final = "CPU us/message"
BROKER_CPU: Final = "of it broker"
BOOKIES_CPU: Final = "of it bookies"
ZOOKEEPER_CPU: Final = "ZooKeeper, apart"
P99: Final = "publish p99 ms"
RESIDENT: Final = "resident MB"
ZOOKEEPER_RESIDENT: Final = "ZooKeeper resident MB, apart"
TITLES: Final = {
    PULSAR: "(a) all real",
    MIXED: "(b) Vela broker, real bookies",
    VELA: "(c) Vela broker and bookies",
}
CPU_LIMITS: Final = {UNBATCHED: 0.6, BATCHED: 0.6, STEADY: 0.5}
P99_LIMIT: Final = 0.5
RESIDENT_LIMIT: Final = 0.15
TITLE: Final = "Replicated clusters against real Pulsar"
SAID: Final = (
    f"Each cluster has a real ZooKeeper of its own (counted apart), {BOOKIES} bookies and a "
    f"broker; E/Qw/Qa {QUORUMS}; journals are synced on all sides. Memory of the JVMs: ZooKeeper "
    "256 MB of heap; each bookie 512 MB of heap and 512 MB direct; the broker 512 MB of heap and "
    "512 MB direct. Real bookies and the real broker have the files and the collector of the "
    "distribution. So that a run fits on a disk, all bookies have journals and entry logs of "
    "512 MB, keep no old journal files and look for garbage every 5 s. One cluster was under load "
    "at a time, the others were stopped as a whole (SIGSTOP), with sessions of an hour; each had "
    "uncounted load before. `pulsar-perf` shares the machine's processors with the cluster it "
    "loads. CPU is read from the processes; resident memory counts every page once (PSS) and is "
    "that of the broker and the bookies together."
)


@dataclass(frozen=True)
class Row:
    """One figure under one load. `met` is met, missed, or empty without a target."""

    load: str
    figure: str
    spreads: dict[str, Spread]
    """By cluster."""
    ratio: float | None
    """(c) / (a), of the medians."""
    target: str
    met: str


def target_of(load: str, figure: str) -> Target | None:
    """The limit of (c) / (a), None where there is none."""
    if figure == CPU:
        return Target(CPU_LIMITS[load], of_ratio=True)
    if figure == P99 and load == STEADY:
        return Target(P99_LIMIT, of_ratio=True)
    if figure == RESIDENT:
        return Target(RESIDENT_LIMIT, of_ratio=True)
    return None


def rows(records: Mapping[str, Record]) -> list[Row]:
    """A row per load and figure, of the loads that were measured on all clusters."""
    made: list[Row] = []
    for load, record in records.items():
        if not record.is_comparable:
            continue
        for figure in record.rounds[VELA][0]:
            spreads = {
                cluster: spread_of([each[figure] for each in record.rounds[cluster]])
                for cluster in CLUSTERS
            }
            ours, theirs = spreads[VELA].median, spreads[PULSAR].median
            ratio = ours / theirs if theirs else None
            target = target_of(load, figure)
            met = target.judge(ratio, ours) if target is not None and ratio is not None else ""
            text = "" if target is None else f"<= {target.limit:g}"
            made.append(Row(load, figure, spreads, ratio, text, met))
    return made


def table(records: Mapping[str, Record]) -> str:
    """In Markdown."""
    heads = ["load", "figure", *(TITLES[cluster] for cluster in CLUSTERS), "(c) / (a)", "target"]
    lines = [
        "| " + " | ".join([*heads, ""]) + " |",
        "|---|---|" + "---:|" * (len(CLUSTERS) + 1) + "---|---|",
    ]
    for row in rows(records):
        met = "**missed**" if row.met == "missed" else row.met
        spreads = [str(row.spreads[cluster]) for cluster in CLUSTERS]
        cells = [row.load, row.figure, *spreads, short(row.ratio), row.target, met]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)
