"""What `make bench-spark` found: rows per second, cost of a million rows, a tail beside a backfill.

Decisions and texts alone, but for the picture.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from math import ceil
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

CPU = ("JVM", "Python", "server")
SPREAD = frozenset({"rows/s", "CPU s/M rows"})
FIGURES = ("rows/s", "MB/s", *(f"{name} CPU s/M rows" for name in CPU), "CPU s/M rows", "served")
SAID = (
    "Every read asks for all columns and throws them away (`noop`). Before anything is timed, all"
    " variants must agree on the number of rows, of different message ids, and on the sum of the"
    " hashes of all values; two reads warm each variant up and do not count; rounds alternate, as"
    " many as the time allows (spark.json has each), and the figures are medians"
    " (smallest-largest). `ratio` compares rows per second with the stock connector on real Pulsar."
    " CPU is of the"
    " processes: Spark's JVM, Python (driver and workers),"
    " and the server with its embedded bookie; a server that is not being read is stopped by"
    " SIGSTOP. `served` is what the broker sent, divided by the bytes of all payloads. What is read"
    " is in the page cache. Vela runs with `journalSyncData=true`."
)

Figures = dict[str, float]


@dataclass(frozen=True)
class Variant:
    """A way to read, from a server."""

    reader: str
    """`connector`, or the data source's engine and, if it is the connector's, its Spark"""
    server: str

    @property
    def name(self) -> str:
        """As a table has it."""
        return f"{self.reader}, {self.server}"


BASE = Variant("connector", "pulsar")
"""Ratios refer to this reader."""


@dataclass
class Measured:
    """The rounds of one variant on one data set."""

    data: str
    variant: Variant
    rounds: list[Figures] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def middle(self, figure: str) -> float | None:
        """The median over the rounds, None without one."""
        return median(one[figure] for one in self.rounds) if self.rounds else None

    def told(self, figure: str) -> str:
        """The median, with the smallest and the largest of several rounds where they tell more."""
        return _with_spread(
            self.middle(figure), [one[figure] for one in self.rounds if figure in SPREAD]
        )


def figures_of(
    rows: int, payload_bytes: int, seconds: float, cpu: dict[str, float], served_bytes: int
) -> Figures:
    """Of one read of `rows` rows. `cpu`: seconds by name of `CPU`."""
    per_million = {f"{name} CPU s/M rows": cpu[name] * 1e6 / rows for name in CPU}
    return {
        "seconds": seconds,
        "rows/s": rows / seconds,
        "MB/s": payload_bytes / seconds / 1e6,
        **per_million,
        "CPU s/M rows": sum(per_million.values()),
        "served": served_bytes / payload_bytes,
    }


def disagreement(found: dict[str, dict[str, Any]], rows: int) -> str | None:
    """Why these reads of one data set do not count, None when they are right.

    `found`: by variant `rows`, `ids` and `sum`; ids are compared with the rows, because two servers
    give different ones.
    """
    sums = {name: one["sum"] for name, one in found.items()}
    for name, one in found.items():
        if one["rows"] != rows or one["ids"] != rows:
            return f"{name} gave {one['rows']} rows with {one['ids']} ids of {rows} messages"
    if len(set(sums.values())) > 1:
        return f"the values differ: sums of hashes {sums}"
    return None


@dataclass(frozen=True)
class Latencies:
    """Of one stretch of time, in milliseconds."""

    count: int
    p50: float
    p99: float
    max: float

    @staticmethod
    def of(times_ms: Sequence[float]) -> Latencies:
        """Nearest-rank percentiles. Raises: ValueError: there are none."""
        if not times_ms:
            raise ValueError("no message came while it was measured")
        ordered = sorted(times_ms)

        def at(share: float) -> float:
            return ordered[max(0, ceil(share * len(ordered)) - 1)]

        return Latencies(len(ordered), at(0.5), at(0.99), ordered[-1])


@dataclass
class Backfill:
    """Latency of a tailing consumer while a topic was read from its beginning, once per round."""

    reader: str
    """`connector`, the data source's engine, or `nothing`"""
    tails: list[Latencies] = field(default_factory=list)
    reads: list[Figures] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def middle(self, percentile: str) -> float | None:
        """The median over the rounds."""
        return median(getattr(one, percentile) for one in self.tails) if self.tails else None

    def told(self, percentile: str) -> str:
        """The median, the smallest and the largest."""
        return _with_spread(
            self.middle(percentile), [getattr(one, percentile) for one in self.tails]
        )

    def read(self, figure: str) -> float | None:
        """The median of what the read itself did."""
        return median(one[figure] for one in self.reads) if self.reads else None


@dataclass
class Results:
    """Everything of a run."""

    about: dict[str, Any]
    measured: list[Measured] = field(default_factory=list)
    backfills: list[Backfill] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    """The reasons why a whole data set, or the backfill, was not measured."""

    def problems(self) -> list[str]:
        """Everything that went wrong, a line each."""
        lines = list(self.failed)
        lines += [f"{m.data}, {m.variant.name}: {why}" for m in self.measured for why in m.failed]
        return lines + [f"backfill, {b.reader}: {why}" for b in self.backfills for why in b.failed]


def last_line(failure: Exception) -> str:
    """Its last line: Spark puts the traces of its workers before that."""
    return (str(failure).strip().splitlines() or [type(failure).__name__])[-1]


def short(value: float | None) -> str:
    """A figure in a cell."""
    if value is None:
        return "?"
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"


def _with_spread(middle: float | None, values: Sequence[float]) -> str:
    if len(values) < 2:
        return short(middle)
    return f"{short(middle)} ({short(min(values))}-{short(max(values))})"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def table(measured: Sequence[Measured]) -> str:
    """A row per data set and variant. The ratio is that of rows/s to `BASE`."""
    heads = ["data", "reader, server", "ratio", *FIGURES]
    lines = [_line(heads), "|---|---" + "|---:" * (len(heads) - 2) + "|"]
    bases = {one.data: one.middle("rows/s") for one in measured if one.variant == BASE}
    for one in measured:
        base, rate = bases.get(one.data), one.middle("rows/s")
        ratio = rate / base if base and rate else None
        figures = [one.told(figure) for figure in FIGURES]
        lines.append(_line([one.data, one.variant.name, short(ratio), *figures]))
    return "\n".join(lines)


def backfill_table(backfills: Sequence[Backfill]) -> str:
    """A row per reader."""
    heads = ["backfill by", "tail p50 ms", "tail p99 ms", "tail max ms", "backfill MB/s", "served"]
    lines = [_line(heads), "|---" + "|---:" * (len(heads) - 1) + "|"]
    for one in backfills:
        figures = [one.told(name) for name in ("p50", "p99", "max")]
        figures += [short(one.read(name)) for name in ("MB/s", "served")]
        lines.append(_line([one.reader, *figures]))
    return "\n".join(lines)


def document(results: Results) -> str:
    """spark.md."""
    about = results.about
    size = about["backfill_bytes"] / 1e9
    parts = [
        "# Spark",
        f"Generated by `make bench-spark`; do not edit. {about['date']}, commit {about['commit']},"
        f" Vela {about['vela']}, Pulsar {about['pulsar']}, {about['machine']},"
        f" `local[{about['cores']}]`."
        f" `connector`: StreamNative's {about['connector']} on Spark {about['spark']['connector']};"
        f" `broker` and `bookie`: the engines of the data source `vela` on Spark"
        f" {about['spark']['source']}, and through `pipeline.spark3` in the connector's session, on"
        f" Spark {about['spark']['connector']}, where the row says so. Spark 4"
        f" takes rows from its Python workers over Unix sockets. {SAID}",
        table(results.measured),
        "## A consumer that follows, beside a backfill\n\n"
        f"Vela; {size:.1f} GB of the same topic are read from the beginning while a producer sends"
        f" {about['tail_rate']} messages a second and a consumer follows it; milliseconds from"
        " sending to receiving. Spark, server, producer and consumer share the processors.",
        backfill_table(results.backfills),
    ]
    problems = results.problems()
    if problems:
        parts += ["## Not counted", "\n".join(f"- {line}" for line in problems)]
    return "\n\n".join([*parts, "![spark.png](spark.png)"]) + "\n"


def as_json(results: Results) -> dict[str, Any]:
    """spark.json."""
    return {
        **results.about,
        "note": SAID,
        "reads": [
            {**asdict(one), "median": {name: one.middle(name) for name in FIGURES}}
            for one in results.measured
        ],
        "backfills": [
            {**asdict(one), "p99_ms_median": one.middle("p99")} for one in results.backfills
        ],
        "failed": results.failed,
    }


def plot(results: Results, path: Path) -> None:
    """Rows per second, CPU by process, the tail's p99."""
    from matplotlib.figure import Figure

    rows = [one for one in results.measured if one.rounds][::-1]
    picture = Figure(figsize=(15, 0.4 * max(len(rows), 6) + 1.5), layout="constrained")
    speed, cost, tail = picture.subplots(1, 3, width_ratios=(2, 2, 1))
    names = [f"{one.data}: {one.variant.name}" for one in rows]
    for height, one in enumerate(rows):
        speed.barh(height, one.middle("rows/s"), color="tab:blue")
        speed.annotate(
            f" {short(one.middle('rows/s'))}", (one.middle("rows/s"), height), va="center"
        )
        left = 0.0
        for color, name in zip(("tab:orange", "tab:green", "tab:red"), CPU, strict=True):
            width = one.middle(f"{name} CPU s/M rows") or 0.0
            cost.barh(height, width, left=left, color=color, label=name if not height else None)
            left += width
    speed.set_yticks(range(len(rows)), names)
    cost.set_yticks(range(len(rows)), [""] * len(rows))
    speed.set_title("rows/s")
    cost.set_title("CPU s per million rows")
    if rows:
        cost.legend()
    shown = [one for one in results.backfills if one.tails]
    tail.bar([one.reader for one in shown], [one.middle("p99") or 0.0 for one in shown])
    tail.set_title("tail p99 ms beside")
    tail.tick_params("x", labelrotation=45)
    speed.margins(x=0.2)
    picture.savefig(path, dpi=110)
