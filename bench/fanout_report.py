"""What `make bench-fanout` found: targets, ratio to real Pulsar, scaling; Markdown, JSON, plot."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any

from bench.report import spread_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

MEBIBYTE = 1024 * 1024
DOUBLING_MAX = 2.0
"""Twice the consumers may at most double a figure."""
DISTURBED_MAX = 1.2
"""A few misbehaving consumers may change the p99 of the others by a fifth."""
NEIGHBOURS = {"topic": "another topic", "second subscription": "a second subscription"}
RATIO_FIGURES = ("subscribe all s", "delivery p50 s", "delivery p99 s", "delivery max s")
SCALING_FIGURES = (*RATIO_FIGURES, "broker CPU s/message", "broker memory MB")
READ_BYTES_MAX = 600_000_000
"""What one process of the generator can read in a second with time to spare, even on a machine at
half its usual speed."""
SAID = (
    "Vela runs with `journalSyncData=true`; real Pulsar with its standalone default, which does not"
    " sync its journal. `vela perf fanout` speaks to both and shares the machine's processors with"
    " the server it measures; one server runs at a time. It has two processes where more than"
    f" {READ_BYTES_MAX / 1e6:.0f} MB a second are read and no neighbours are measured."
)

Figures = dict[str, float | None]


@dataclass(frozen=True)
class Load:
    """What is published on the topic."""

    messages: int = 15
    size_bytes: int = 10_000
    rate: float = 1.0
    """Messages a second."""

    @property
    def is_usual(self) -> bool:
        """Whether figures compare with those of most rows; the number of messages may differ."""
        return (self.size_bytes, self.rate) == (USUAL_LOAD.size_bytes, USUAL_LOAD.rate)


USUAL_LOAD = Load()


@dataclass(frozen=True)
class Row:
    """One thing that is measured, some rounds of it."""

    server: str
    mode: str
    consumers: int
    connections: int
    rounds: int
    limits: dict[str, float] = field(default_factory=dict)
    """Figure -> the most its median may be."""
    variant: str = ""
    """The difference from the row of the same numbers; empty for that row itself."""
    arguments: tuple[str, ...] = ()
    """Of `vela perf fanout`, for the variant."""
    needs_other: bool = False
    """Whether another broker runs beside, for the neighbour alone."""
    load: Load = USUAL_LOAD
    is_over_tls: bool = False

    @property
    def name(self) -> str:
        """As a table has it."""
        parts = [f"{self.server} {self.mode}: {self.consumers:,} on {self.connections:,}"]
        load = self.load
        if not load.is_usual:
            parts.append(
                f"{load.messages} messages of {load.size_bytes:,} bytes at {load.rate:g} a second"
            )
        if self.is_over_tls:
            parts.append("over TLS")
        return ", ".join([*parts, self.variant] if self.variant else parts)

    @property
    def processes(self) -> int:
        """Of the generator. One that never waits reports its own speed as latency. Neighbours need
        some time of both processors."""
        load = self.load
        is_too_much = self.consumers * load.rate * load.size_bytes > READ_BYTES_MAX
        return 2 if is_too_much and not self.measures_neighbours else 1

    @property
    def measures_neighbours(self) -> bool:
        """Whether latency of others on the broker is measured."""
        return any(each.startswith("--neighbour-rate") for each in self.arguments)


@dataclass
class Measured:
    """A row and the figures of each of its rounds that ended."""

    row: Row
    rounds: list[Figures] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def readings(self, figure: str) -> list[float]:
        """One of each round, empty when a round does not have it."""
        values = [one.get(figure) for one in self.rounds]
        known = [value for value in values if value is not None]
        return known if len(known) == len(values) else []

    def middle(self, figure: str) -> float | None:
        """The median over the rounds, None when a round does not have it."""
        known = self.readings(figure)
        return median(known) if known else None

    def shown(self, figure: str) -> str:
        """The median, with smallest and largest when there are several rounds."""
        known = self.readings(figure)
        return short(self.middle(figure)) if len(known) < 2 else str(spread_of(known))

    def missed(self) -> list[str]:
        """Figures over their limit, or not there."""
        over = []
        for figure, limit in self.row.limits.items():
            value = self.middle(figure)
            if value is None or value > limit:
                over.append(figure)
        return over


def figures_of(report: dict[str, Any]) -> Figures:
    """The figures of a report of `vela perf fanout`."""
    broker = report["broker"] or {}
    memory = broker.get("memory_bytes")
    return {
        "subscribe all s": report["subscribe_all_seconds"],
        "connect p50 s": report["connect"]["p50"],
        "connect p99 s": report["connect"]["p99"],
        **{f"delivery {name} s": value for name, value in report["delivery"].items()},
        "lost": report["lost"],
        "duplicated": report["duplicated"],
        "out of order": report["out_of_order"],
        "broker CPU s to subscribe": broker.get("cpu_seconds_subscribing"),
        "broker CPU s/message": broker.get("cpu_seconds_per_message"),
        "broker memory MB": None if memory is None else memory / MEBIBYTE,
        "generator CPU s": report["generator_cpu_seconds"],
        **neighbour_figures(report.get("neighbour") or {}),
    }


def neighbour_figures(found: dict[str, Any]) -> Figures:
    """Of the part of a report about neighbours; empty when there is none."""
    figures: Figures = {}
    for name in NEIGHBOURS:
        if name in found:
            for part in ("p50", "p99"):
                for when in ("before", "beside"):
                    figures[f"{name} {part} {when} s"] = found[name][when][part]
                figures[f"{name} {part} ratio"] = found[name]["ratio"][part]
    return figures


def find(
    all_measured: Sequence[Measured], server: str, mode: str, consumers: int
) -> Measured | None:
    """The row of these, if it has a round; many connections are no match."""
    for each in all_measured:
        row = each.row
        few = row.connections < row.consumers
        same = (row.server, row.mode, row.consumers) == (server, mode, consumers)
        if same and few and not row.variant and row.load.is_usual and not row.is_over_tls:
            return each if each.rounds else None
    return None


def ratios(all_measured: Sequence[Measured]) -> list[dict[str, Any]]:
    """Vela's figures over real Pulsar's, for the consumers that Pulsar was measured with."""
    made = []
    for theirs in all_measured:
        if theirs.row.server != "pulsar" or not theirs.rounds:
            continue
        for mode in ("broadcast", "own"):
            ours = find(all_measured, "vela", mode, theirs.row.consumers)
            if ours is None:
                continue
            ratio = {
                figure: _quotient(ours.middle(figure), theirs.middle(figure))
                for figure in RATIO_FIGURES
            }
            made.append({"consumers": theirs.row.consumers, "mode": mode, "ratio": ratio})
    return made


def scaling(all_measured: Sequence[Measured], consumers: Sequence[int]) -> list[dict[str, Any]]:
    """How Vela's figures grow when the consumers are doubled."""
    made = []
    for fewer, more in pairwise(consumers):
        first = find(all_measured, "vela", "broadcast", fewer)
        second = find(all_measured, "vela", "broadcast", more)
        if first is None or second is None:
            continue
        growth = {
            figure: _quotient(second.middle(figure), first.middle(figure))
            for figure in SCALING_FIGURES
        }
        made.append({"from": fewer, "to": more, "growth": growth})
    return made


def disturbed(all_measured: Sequence[Measured]) -> list[dict[str, Any]]:
    """The p99 of the other consumers, of variants in which a few behave badly, over that of the
    same row without."""
    made = []
    for each in all_measured:
        row = each.row
        if not row.variant or row.measures_neighbours:
            continue
        plain = find(all_measured, row.server, row.mode, row.consumers)
        if plain is not None and each.rounds:
            figure = "delivery p99 s"
            ratio = _quotient(each.middle(figure), plain.middle(figure))
            met = ratio is not None and 1 / DISTURBED_MAX <= ratio <= DISTURBED_MAX
            made.append({"name": row.name, "p99 ratio": ratio, "met": met})
    return made


def _quotient(one: float | None, other: float | None) -> float | None:
    return None if one is None or not other else one / other


def short(value: float | None) -> str:
    """A figure in a cell."""
    if value is None:
        return "?"
    return f"{value:,.0f}" if value == int(value) or abs(value) >= 100 else f"{value:.3g}"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def table(all_measured: Sequence[Measured]) -> str:
    """Everything measured, with the limits where there are some."""
    shown = (
        "subscribe all s", "connect p99 s", "delivery p50 s", "delivery p99 s", "delivery p99.9 s",
        "delivery max s", "lost", "duplicated", "out of order", "broker CPU s/message",
        "broker memory MB",
    )  # fmt: skip
    lines = [_line(["", "rounds", *shown, "met"]), "|---" + "|---:" * (len(shown) + 1) + "|---|"]
    for each in all_measured:
        if each.row.variant:
            continue
        cells = []
        for figure in shown:
            limit = each.row.limits.get(figure)
            of_limit = "" if limit is None else f" (<= {short(limit)})"
            cells.append(short(each.middle(figure)) + of_limit)
        missed = each.missed()
        met = "" if not each.row.limits else "**no**: " + ", ".join(missed) if missed else "yes"
        lines.append(_line([each.row.name, str(len(each.rounds)), *cells, met]))
    return "\n".join(lines)


def disturbed_table(all_measured: Sequence[Measured]) -> str:
    """Consumers that stop reading, or never acknowledge."""
    shown = ("delivery p50 s", "delivery p99 s", "delivery max s", "lost", "duplicated")
    titles = ["", "rounds", *shown, "p99 to plain"]
    lines = [_line(titles), "|---" + "|---:" * (len(titles) - 1) + "|"]
    ratios_of = {made["name"]: made for made in disturbed(all_measured)}
    for each in all_measured:
        made = ratios_of.get(each.row.name)
        if made is None:
            continue
        cells = [short(each.middle(figure)) for figure in shown]
        ratio = short(made["p99 ratio"])
        cells.append(ratio if made["met"] else f"**{ratio}**")
        lines.append(_line([each.row.name, str(len(each.rounds)), *cells]))
    return "\n".join(lines)


def neighbour_table(all_measured: Sequence[Measured]) -> str:
    """Latency of others, without and with the fan-out."""
    columns = ("p50 before", "p50 beside", "p50 ratio", "p99 before", "p99 beside", "p99 ratio")
    titles = ["neighbour", "rounds", *columns]
    lines = [_line([*titles, "met"]), "|---" + "|---:" * (len(titles) - 1) + "|---|"]
    for each in all_measured:
        if not each.row.measures_neighbours or not each.rounds:
            continue
        for name, shown in NEIGHBOURS.items():
            keys = [f"{name} {key if key.endswith('ratio') else f'{key} s'}" for key in columns]
            if each.row.needs_other and name != "topic":
                continue
            limit = each.row.limits.get(f"{name} p99 ratio")
            ratio = each.middle(keys[-1])
            met = "" if limit is None else "yes" if ratio is not None and ratio <= limit else "no"
            where = f"{each.row.name}: {shown}"
            cells = [str(len(each.rounds)), *map(each.shown, keys), met.replace("no", "**no**")]
            lines.append(_line([where, *cells]))
    return "\n".join(lines)


def ratio_table(all_measured: Sequence[Measured]) -> str:
    """Vela / Pulsar."""
    lines = [
        _line(["consumers", "Vela's mode", *RATIO_FIGURES]),
        "|---:|---" + "|---:" * len(RATIO_FIGURES) + "|",
    ]
    for made in ratios(all_measured):
        cells = [short(made["ratio"][figure]) for figure in RATIO_FIGURES]
        lines.append(_line([f"{made['consumers']:,}", made["mode"], *cells]))
    return "\n".join(lines)


def scaling_table(all_measured: Sequence[Measured], consumers: Sequence[int]) -> str:
    """The effect of doubling the consumers."""
    lines = [
        _line(["consumers", *SCALING_FIGURES]),
        "|---" + "|---:" * len(SCALING_FIGURES) + "|",
    ]
    for made in scaling(all_measured, consumers):
        cells = [_growth(made["growth"][figure]) for figure in SCALING_FIGURES]
        lines.append(_line([f"{made['from']:,} to {made['to']:,}", *cells]))
    return "\n".join(lines)


def _growth(factor: float | None) -> str:
    if factor is None:
        return "?"
    return f"**x {factor:.2f}**" if factor > DOUBLING_MAX else f"x {factor:.2f}"


def document(
    all_measured: Sequence[Measured],
    consumers: Sequence[int],
    about: dict[str, Any],
    images: list[str],
) -> str:
    """fanout.md."""
    failed = [f"- {each.row.name}: {reason}" for each in all_measured for reason in each.failed]
    parts = [
        "# Very many consumers on one topic",
        f"Generated by `make bench-fanout`; do not edit. {about['date']}, commit {about['commit']},"
        f" Vela {about['vela']}, Pulsar {about['pulsar']}, {about['machine']}."
        f" {about['messages']} messages of {USUAL_LOAD.size_bytes:,} bytes at {USUAL_LOAD.rate:g}"
        " a second where a row says nothing else, acknowledged one by one. A figure is the"
        f" median of as many rounds as its row says. {SAID}",
        table(all_measured),
        "## Ratio to real Pulsar\n\nVela's figure divided by that of real Pulsar, where each"
        " consumer has a subscription; below 1 Vela is faster.",
        ratio_table(all_measured),
        "## Twice the consumers\n\nThe figure divided by that with half the consumers; bold: more"
        " than doubled.",
        scaling_table(all_measured, consumers),
        "## A few that stop reading, or never acknowledge\n\nFigures of the other consumers. The"
        f" p99 may differ from that of the plain row above by a factor of {DISTURBED_MAX:g}; bold:"
        " it does by more.",
        disturbed_table(all_measured),
        "## Neighbours\n\nEnd-to-end latency in seconds of an ordinary topic (1 KB, 100 a second,"
        " one consumer) and of an ordinary second subscription on the topic of the fan-out. Before:"
        " of the topic while all 100,000 consumers are connected and nothing is published to them,"
        " of the subscription when there is no other. Beside: during the fan-out. The p99 may at"
        f" most double ({DOUBLING_MAX:g}). A ratio is the median of the rounds' own ratios, so it"
        " need not be that of the two medians beside it. A neighbour on another broker of the same"
        " machine shows how much of it is made by sharing two processors with the fan-out and its"
        " load generator.",
        neighbour_table(all_measured),
        *([] if not failed else ["## Not counted", "\n".join(failed)]),
        *(f"![{image}]({image})" for image in images),
    ]
    return "\n\n".join(parts) + "\n"


def as_json(
    all_measured: Sequence[Measured], consumers: Sequence[int], about: dict[str, Any]
) -> dict[str, Any]:
    """fanout.json."""
    return {
        **about,
        "note": SAID,
        "rows": [
            {
                "name": each.row.name,
                **asdict(each.row),
                "processes": each.row.processes,
                "median": {figure: each.middle(figure) for figure in (each.rounds or [{}])[0]},
                "missed": each.missed(),
                "rounds": each.rounds,
                "failed": each.failed,
            }
            for each in all_measured
        ],
        "ratios": ratios(all_measured),
        "scaling": scaling(all_measured, consumers),
        "disturbed": disturbed(all_measured),
    }


def plot(all_measured: Sequence[Measured], path: Path) -> None:
    """Subscribe time and p99 of every row, on a logarithmic axis."""
    from matplotlib.figure import Figure

    picture = Figure(figsize=(13, 0.5 * len(all_measured) + 1.5), layout="constrained")
    panels = picture.subplots(1, 2, sharey=True)
    rows = [each for each in all_measured if each.rounds][::-1]
    for panel, figure in zip(panels, ("subscribe all s", "delivery p99 s"), strict=True):
        for height, each in enumerate(rows):
            value = each.middle(figure)
            if value is None:
                continue
            color = "tab:gray" if each.row.server == "pulsar" else "tab:blue"
            panel.barh(height, value, color=color)
            panel.annotate(f" {short(value)}", (value, height), va="center", fontsize=8)
            limit = each.row.limits.get(figure)
            if limit is not None:
                panel.plot([limit, limit], [height - 0.4, height + 0.4], color="tab:red")
        panel.set_xscale("log")
        panel.set_title(f"{figure} (red: target)")
        panel.set_yticks(range(len(rows)), [each.row.name for each in rows])
        panel.margins(x=0.2)
    picture.savefig(path, dpi=110)
