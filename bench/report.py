"""The ratio table, its rows for the JSON file, and the plot of what was measured."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from bench import oracle, telemetry

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from bench.machine_speed import MachineSpeed
    from bench.results import Record

START = "start and idle"
COLD = "100 KB on 150 topics, 50 read cold"
CPU = "broker CPU s/million"
END_TO_END = "5,000 msg/s end to end"
RATIOS_MAX = {
    ("1 KB unbatched, one topic", CPU): 0.25,
    ("1 KB unbatched, ten topics", CPU): 0.25,
    ("1 KB batched, one topic", CPU): 0.3,
    ("1 KB batched, ten topics", CPU): 0.3,
    ("1,000 msg/s unbatched", CPU): 0.6,
    ("1,000 msg/s unbatched", "publish p50 ms"): 0.3,
    ("1,000 msg/s unbatched", "publish p99 ms"): 0.5,
    (END_TO_END, CPU): 0.6,
    (END_TO_END, "end-to-end p99 ms of a client"): 0.4,
    ("catch-up, unbatched", CPU): 0.12,
    ("catch-up, batched", CPU): 0.25,
}
"""Of Vela to real Pulsar. Throughput is nowhere to be less."""
EARLIER_OF_VELA = {
    ("catch-up, Shared, single acks", CPU): 12.0,
    ("catch-up, Key_Shared, 100 consumers", CPU): 17.5,
}
"""To be halved. What Vela took before, on a busy machine (docs/performance/notebook/profile.md,
"Shared and Key_Shared"): 6.3 for an acknowledgement and 4 to 7 for its message; 17 to 18."""
LIMITS_OF_VELA = {
    "ready s": 0.5,
    "idle CPU %": 1.0,
    "idle resident MB": 40.0,
    "idle CPU %, 100 topics, 100 connections": 0.3,
    "resident KB per idle topic": 4.0,
    "/metrics s per 1,000 topics": 0.2,
    "turns over 5 ms of CPU in three /metrics": 0.0,
    "resident KB per topic not in use": 4.0,
}
RESTART_SECONDS_MAX = 3.0
DELIVERED_PERCENT_MIN = 95.0
"""Of consumers who keep up; the two rates are not of the same ten seconds to the millisecond."""
COLD_P99_MS_MAX = 5.0
SAID = (
    "Vela runs with `journalSyncData=true`: a publish is acknowledged after its fdatasync. Real "
    "Pulsar runs with its standalone default, which does not sync its journal. So that a run fits "
    "on a disk, both keep no old journal files (`journalMaxBackups=0`) and look for garbage every "
    "5 s (`gcWaitTime=5000`). Both ran on the same machine in turns, one under load at a time "
    "and the other stopped (SIGSTOP), after uncounted load until neither got faster; "
    "`pulsar-perf` shares the machine's processors with the server it loads. It knows latencies "
    "from end to end in whole milliseconds only. Those `of a client` are of a stock Python client, "
    "which publishes and reads 500 messages a second on a topic of its own beside the load, after "
    "the other figures were taken; `late by` says how much of it can be the client's own. Vela "
    "beside heavy neighbours, and beside cold readers at several rates: `make bench-isolation`."
)
SPEED_SAID = (
    "The last two columns tell machines and hours apart: the CPU time of 500,000 steps of a Python "
    "loop, and how fast 64 MB were copied into new memory, both before each round (medians)."
)
PANELS = ("throughput msg/s", "broker CPU s/million", "publish p99 ms", "resident MB")
COLORS = {"met": "tab:green", "missed": "tab:red", "": "tab:gray"}


@dataclass(frozen=True)
class Target:
    """A limit for the ratio Vela / Pulsar, or for Vela's own figure."""

    limit: float
    of_ratio: bool
    at_least: bool = False
    why: str = ""
    """Where the limit comes from."""

    @property
    def text(self) -> str:
        """For the table."""
        who = "ratio" if self.of_ratio else "Vela"
        said = f"{who} {'>=' if self.at_least else '<='} {self.limit:g}"
        return f"{said} ({self.why})" if self.why else said

    def judge(self, ratio: float, vela: float) -> str:
        """met or missed."""
        value = ratio if self.of_ratio else vela
        met = value >= self.limit if self.at_least else value <= self.limit
        return "met" if met else "missed"


@dataclass(frozen=True)
class Spread:
    """Smallest, middle and largest of a figure's rounds."""

    least: float
    median: float
    most: float

    def __str__(self) -> str:
        return f"{short(self.median)} ({short(self.least)} to {short(self.most)})"


@dataclass(frozen=True)
class Row:
    """One figure of one scenario. `met` is met, missed, or empty without a target."""

    scenario: str
    figure: str
    vela: Spread
    pulsar: Spread | None
    """None: a figure that only Vela has."""
    ratio: float | None
    target: str
    met: str


def target_of(scenario: str, figure: str) -> Target | None:
    """The target for a figure, None when there is none."""
    if figure == telemetry.DELIVERED:
        return Target(DELIVERED_PERCENT_MIN, of_ratio=False, at_least=True)
    if figure == "throughput msg/s":
        return Target(1.0, of_ratio=True, at_least=True)
    ratio_max = RATIOS_MAX.get((scenario, figure))
    if ratio_max is not None:
        return Target(ratio_max, of_ratio=True)
    earlier = EARLIER_OF_VELA.get((scenario, figure))
    if earlier is not None:
        return Target(earlier / 2, of_ratio=False, why=f"half of the earlier {earlier:g}")
    if (scenario, figure) == (COLD, "publish p99 ms"):
        return Target(COLD_P99_MS_MAX, of_ratio=False)
    if figure == "ready s" and scenario != START:
        return Target(RESTART_SECONDS_MAX, of_ratio=False)
    if figure == "idle resident MB" and scenario != START:
        return None
    limit = LIMITS_OF_VELA.get(figure)
    return None if limit is None else Target(limit, of_ratio=False)


def spread_of(values: list[float]) -> Spread:
    """Of at least one value."""
    return Spread(min(values), median(values), max(values))


def rows(records: Mapping[str, Record]) -> list[Row]:
    """A row per scenario and figure, of those measured on both servers."""
    made: list[Row] = []
    for scenario, record in records.items():
        if not record.is_comparable:
            continue
        for figure in record.rounds["vela"][0]:
            ours = spread_of([one[figure] for one in record.rounds["vela"]])
            measured = [one[figure] for one in record.rounds["pulsar"] if figure in one]
            theirs = spread_of(measured) if measured else None
            ratio = ours.median / theirs.median if theirs and theirs.median else None
            target = target_of(scenario, figure)
            met = ""
            if target is not None and (ratio is not None or not target.of_ratio):
                met = target.judge(ratio or 0.0, ours.median)
            text = target.text if target else ""
            made.append(Row(scenario, figure, ours, theirs, ratio, text, met))
    return made


def short(value: float | None) -> str:
    """Three digits, or all before the point."""
    if value is None:
        return "?"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def ratio_text(row: Row) -> str:
    """Three digits, or five where a ratio that misses its bound would look equal to it."""
    said = short(row.ratio)
    is_equal = row.met == "missed" and said in row.target.split()
    return f"{row.ratio:.5g}" if is_equal else said


def table(records: Mapping[str, Record]) -> str:
    """The ratio table in Markdown, and below it what each scenario's rounds were."""
    lines = [
        "| scenario | figure | Vela | Pulsar | ratio | target | |",
        "|---|---|---:|---:|---:|---|---|",
    ]
    for row in rows(records):
        met = "**missed**" if row.met == "missed" else row.met
        pulsar = row.pulsar or "none"
        cells = [row.scenario, row.figure, row.vela, pulsar, ratio_text(row), row.target, met]
        lines.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    return "\n".join(lines)


def origins(records: Mapping[str, Record]) -> str:
    """Where each scenario's figures come from, and the rounds that do not count."""
    lines = [
        "| scenario | rounds | not counted | commit | date | Vela ran | minutes | loop ms |"
        " copy GB/s |",
        "|---|---|---:|---|---|---|---:|---:|---:|",
    ]
    for scenario, record in records.items():
        counts = ", ".join(f"{record.count(name)} {name}" for name in record.origin.servers)
        if not record.is_complete:
            counts += f" of {record.origin.rounds_wanted}: unfinished"
        cells = [scenario, counts, len(record.failed), record.origin.commit, record.date]
        cells += [record.origin.vela, f"{record.seconds / 60:.1f}", *_speed_cells(record.speeds)]
        lines.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    lines += ["", SPEED_SAID]
    failed = [
        f"* {scenario}, {' '.join(why.split())[:300]}"
        for scenario, record in records.items()
        for why in record.failed
    ]
    if failed:
        lines += ["", "Rounds that showed an error and are not counted:", "", *failed]
    return "\n".join(lines)


def _speed_cells(speeds: list[MachineSpeed]) -> list[str]:
    if not speeds:
        return ["not recorded"] * 2
    return [
        f"{median(speed.loop_ms for speed in speeds):.1f}",
        f"{median(speed.copy_gb_s for speed in speeds):.2f}",
    ]


def document(records: Mapping[str, Record], machine: str) -> str:
    """The page `benchmark.md`."""
    minutes = sum(record.seconds for record in records.values()) / 60
    return (
        "# Benchmark against real Pulsar\n\n"
        "Generated by `make bench`; do not edit. Medians of the rounds, smallest and largest in "
        f"parentheses. Against Apache Pulsar {oracle.chosen().version}, driven by its own "
        "`pulsar-perf`, "
        f"on {machine}; {minutes:.0f} minutes of measuring. {SAID}\n\n"
        f"{table(records)}\n\n![ratios](benchmark.png)\n\n"
        f"## What was measured when\n\n{origins(records)}\n"
    )


def plot(records: Mapping[str, Record], path: Path) -> None:
    """Ratios as bars from 1, on a scale where twice and half are equally far from it."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot
    from matplotlib.patches import Patch

    made = {(row.scenario, row.figure): row for row in rows(records)}
    scenarios = [name for name in records if any((name, panel) in made for panel in PANELS)][::-1]
    height = 1.9 + 0.42 * len(scenarios)
    picture, panels = pyplot.subplots(
        1, len(PANELS), figsize=(16, height), sharey=True, layout="constrained"
    )
    for panel, figure in zip(panels, PANELS, strict=True):
        ratios = [1.0]
        for place, scenario in enumerate(scenarios):
            row = made.get((scenario, figure))
            if row is None or not row.ratio:
                panel.annotate(
                    "not measured",
                    (1.0, place),
                    xytext=(4, 0),
                    textcoords="offset points",
                    va="center",
                    fontsize=8,
                    color="tab:gray",
                )
                continue
            ratios.append(row.ratio)
            panel.barh(place, row.ratio - 1, left=1, height=0.62, color=COLORS[row.met])
            panel.annotate(
                f"{row.ratio:.2f}",
                (row.ratio, place),
                xytext=(4 if row.ratio >= 1 else -4, 0),
                textcoords="offset points",
                va="center",
                ha="left" if row.ratio >= 1 else "right",
                fontsize=9,
            )
        panel.set_xscale("log", base=2)
        panel.set_xlim(min(ratios) / 1.9, max(ratios) * 1.9)
        panel.xaxis.set_major_locator(mpl.ticker.LogLocator(base=2, numticks=6))
        panel.xaxis.set_major_formatter(lambda value, _: f"{value:.2g}")
        panel.xaxis.set_minor_locator(mpl.ticker.NullLocator())
        panel.axvline(1.0, color="black", linewidth=0.8)
        panel.grid(axis="x", color="0.9")
        panel.set_axisbelow(True)
        better = "right" if figure.startswith("throughput") else "left"
        panel.set_title(f"{figure}\n(better to the {better})", fontsize=10)
        panel.set_xlabel("Vela / Pulsar")
    panels[0].set_yticks(range(len(scenarios)), scenarios)
    version = oracle.chosen().version
    picture.suptitle(f"Vela (syncs its journal) against Pulsar {version} (does not)")
    names = {"met": "target met", "missed": "target missed", "": "no target"}
    picture.legend(
        handles=[Patch(color=color, label=names[met]) for met, color in COLORS.items()],
        loc="outside lower center",
        ncols=3,
        frameon=False,
    )
    picture.savefig(path, dpi=110)
    pyplot.close(picture)
