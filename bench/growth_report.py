"""What `make bench-growth` measures, and its page: cost against growth, one curve per server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from bench.fanout_report import short
from bench.report import origins, spread_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from bench.results import Figures, Record

TOPICS: Final = "topics"
SIZE: Final = "message size"
BACKLOG: Final = "backlog"
CONSUMERS: Final = "broadcast consumers"
SUBSCRIPTIONS: Final = "subscriptions of a topic"
CPU: Final = "broker CPU us/message"
P99: Final = "p99 ms"
RESIDENT: Final = "resident MB"
FIGURES: Final = (CPU, P99, RESIDENT)
COLORS: Final = {"vela": "tab:blue", "pulsar": "tab:orange"}
ACTIVE_TOPICS_MAX: Final = 1_000
RATE: Final = 1_000
BYTES_PER_SECOND_MAX: Final = 10_000_000
RATE_MIN: Final = 2
DELIVERIES_PER_SECOND: Final = 5_000
FANOUT_RATE_MIN: Final = 0.2
FANOUT_RATE_MAX: Final = 100.0
FANOUT_BYTES: Final = 1_024
FANOUT_MESSAGES_MIN: Final = 10
CONSUMERS_PER_CONNECTION: Final = 1_562
CONNECTIONS_MIN: Final = 16


@dataclass(frozen=True)
class Axis:
    """What grows."""

    unit: str
    values: tuple[int, ...]
    quick: tuple[int, ...]
    pulsar_max: int
    """The largest value at which real Pulsar is measured."""
    said: str
    together: bool = True
    """Whether the servers alternate; else one follows the other, so that the disk holds one."""


AXES: Final = {
    TOPICS: Axis(
        "topics",
        (1, 10, 100, 1_000, 10_000, 100_000),
        (500,),
        10_000,
        f"Loaded topics without subscriptions, made through the admin API. {RATE:,} messages of"
        f" 1 KB a second go to at most {ACTIVE_TOPICS_MAX:,} of them, unbatched.",
    ),
    SIZE: Axis(
        "bytes",
        (100, 1_000, 10_000, 100_000, 1_000_000, 5_000_000),
        (100, 1_000_000),
        5_000_000,
        f"One topic, unbatched. {RATE:,} messages a second, and of the larger ones as many as make"
        f" {BYTES_PER_SECOND_MAX // 1_000_000} MB/s.",
    ),
    BACKLOG: Axis(
        "MB",
        (1_000, 2_000, 5_000, 10_000, 20_000),
        (100,),
        20_000,
        f"A subscription without consumers has so much to read, in messages of 100 KB. {RATE:,}"
        " messages of 1 KB a second go to another topic, unbatched. One server after the other,"
        " so that the disk holds one backlog.",
        together=False,
    ),
    CONSUMERS: Axis(
        "consumers",
        (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000),
        (1, 1_000),
        0,
        "One broadcast subscription. Real Pulsar has none; what it needs instead is in the next"
        " table.",
    ),
    SUBSCRIPTIONS: Axis(
        "subscriptions",
        (1, 10, 100, 1_000, 10_000),
        (1, 100),
        10_000,
        "Each subscription has one consumer.",
    ),
}
SAID_OF_FANOUT: Final = (
    f"`vela perf fanout`, messages of {FANOUT_BYTES:,} bytes, acknowledged one by one. The rate"
    f" falls so that there are at most {DELIVERIES_PER_SECOND:,} deliveries a second, from"
    f" {FANOUT_RATE_MAX:g} to {FANOUT_RATE_MIN:g} messages a second. p99 is that of the delivery."
)


def name_of(axis: str, value: int) -> str:
    """Of the record."""
    return f"{axis}: {value}"


def names(values_of: Mapping[str, tuple[int, ...]]) -> list[str]:
    """All, in the order of the page."""
    return [name_of(axis, value) for axis, values in values_of.items() for value in values]


def servers_of(axis: str, value: int) -> tuple[str, ...]:
    """Those that are measured at this point."""
    return ("vela", "pulsar") if value <= AXES[axis].pulsar_max else ("vela",)


def rate_of_size(size_bytes: int) -> int:
    """Messages a second."""
    return max(RATE_MIN, min(RATE, BYTES_PER_SECOND_MAX // size_bytes))


def rate_of_fanout(consumers: int) -> float:
    """Messages a second."""
    return max(FANOUT_RATE_MIN, min(FANOUT_RATE_MAX, DELIVERIES_PER_SECOND / consumers))


def messages_of_fanout(rate: float, seconds: float) -> int:
    """For so long, or longer where the rate is low."""
    return max(FANOUT_MESSAGES_MIN, round(rate * seconds))


def connections_of(consumers: int) -> int:
    """16, fewer for fewer consumers, and 640 for a million."""
    return max(min(consumers, CONNECTIONS_MIN), consumers // CONSUMERS_PER_CONNECTION)


def of_fanout(figures: Mapping[str, float | None]) -> Figures | None:
    """The three figures of a round of `bench.fanout`; None: something is missing or was lost."""
    spent, p99 = figures["broker CPU s/message"], figures["delivery p99 s"]
    resident = figures["broker memory MB"]
    if spent is None or p99 is None or resident is None or figures["lost"]:
        return None
    return {CPU: spent * 1e6, P99: p99 * 1e3, RESIDENT: resident}


def curves(
    axis: str, records: Mapping[str, Record], figure: str
) -> dict[str, list[tuple[int, float]]]:
    """Server -> its points (value, median)."""
    found: dict[str, list[tuple[int, float]]] = {}
    for name, record in records.items():
        of_axis, _, value = name.rpartition(": ")
        if of_axis != axis:
            continue
        for server, rounds in record.rounds.items():
            median = spread_of([each[figure] for each in rounds]).median
            found.setdefault(server, []).append((int(value), median))
    return {server: sorted(points) for server, points in found.items()}


def table(axis: str, records: Mapping[str, Record]) -> str:
    """One axis in Markdown; real Pulsar's figures beside where there are some."""
    shown = [
        (server, figure)
        for server in ("vela", "pulsar")
        for figure in FIGURES
        if server in curves(axis, records, figure)
    ]
    lines = [
        f"| {AXES[axis].unit} | " + " | ".join(f"{server} {figure}" for server, figure in shown)
        + " |",
        "|---:" * (len(shown) + 1) + "|",
    ]  # fmt: skip
    for name, record in records.items():
        of_axis, _, value = name.rpartition(": ")
        if of_axis == axis:
            cells = [_cell(record, server, figure) for server, figure in shown]
            lines.append("| " + " | ".join([f"{int(value):,}", *cells]) + " |")
    return "\n".join(lines)


def _cell(record: Record, server: str, figure: str) -> str:
    rounds = record.rounds.get(server, [])
    if not rounds:
        return "not reached" if server in record.origin.servers else ""
    spread = spread_of([each[figure] for each in rounds])
    return short(spread.median) if len(rounds) == 1 else str(spread)


def document(records: Mapping[str, Record], about: Mapping[str, Any]) -> str:
    """The page `growth.md`."""
    parts = "\n\n".join(
        f"## {axis}\n\n{each.said}"
        + (f" {SAID_OF_FANOUT}" if axis in (CONSUMERS, SUBSCRIPTIONS) else "")
        + f"\n\n{table(axis, records)}"
        for axis, each in AXES.items()
    )
    return (
        "# Cost against growth\n\n"
        "Generated by `make bench-growth`; do not edit. Each point is the reading of one round or,"
        " with smallest and largest in parentheses, the median of several. The p99 of a"
        " single round may be due to a disk that stood still; it shows no trend by itself. Beside"
        f" Apache Pulsar {about['pulsar']}, at the points that it reaches in"
        f" {about['seconds_max']:g} s; {about['machine']}. Vela runs with `journalSyncData=true`,"
        " real Pulsar with its default, which does not sync. One server is under load at a time,"
        " the other is stopped (SIGSTOP), and the load shares the processors with it. Messages are"
        " published by `pulsar-perf`, and p99 is that of the receipt, where nothing else is said."
        " Each axis has servers of its own. Their memory includes what the uncounted load"
        " beforehand left.\n\n"
        f"![cost against growth](growth.png)\n\n{parts}\n\n"
        f"## What was measured when\n\n{origins(records)}\n"
    )


def plot(records: Mapping[str, Record], path: Path) -> None:
    """A row per axis, a column per figure; both scales are logarithmic."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    picture, panels = pyplot.subplots(
        len(AXES), len(FIGURES), figsize=(13, 3.0 * len(AXES)), layout="constrained", squeeze=False
    )
    for row, (axis, each) in zip(panels, AXES.items(), strict=True):
        for panel, figure in zip(row, FIGURES, strict=True):
            drawn = curves(axis, records, figure)
            for server, points in drawn.items():
                panel.plot(*zip(*points, strict=True), "o-", color=COLORS[server], label=server)
            panel.set_xscale("log")
            panel.set_yscale("log")
            heights = [height for points in drawn.values() for _, height in points if height > 0]
            if heights:
                # A decade at least, so that a flat curve looks flat.
                panel.set_ylim(min(heights) / 4, max(heights) * 4)
            panel.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
            panel.yaxis.set_minor_formatter(mpl.ticker.NullFormatter())
            panel.grid(color="0.9")
            panel.set_axisbelow(True)
            panel.set_title(f"{axis}: {figure}", fontsize=9)
            panel.set_xlabel(each.unit, fontsize=8)
            if panel.lines:
                panel.legend(frameon=False, fontsize=8)
    picture.savefig(path, dpi=100)
    pyplot.close(picture)
