"""The pages and pictures of `latency-report`."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure

from pipeline.latency import PERCENTILES, SPREAD

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pipeline.latency import Comparison, RunFigures

INCHES = (9, 4.5)


def draw_all(
    directory: Path, runs: Mapping[str, Sequence[RunFigures]], samples: Mapping[str, Any]
) -> list[Path]:
    """A picture of each kind there is data for."""
    paths = [_percentile_bars(directory / "percentiles.png", runs)]
    histograms = {
        f"{system}: {_short(run)}": run.delivery_histogram
        for system, each in runs.items()
        for run in each
        if run.delivery_histogram[1]
    }
    drawn = {
        system for system, each in runs.items() if any(run.delivery_histogram[1] for run in each)
    }
    histograms |= {
        name: (each["histogram"]["edges_ms"], each["histogram"]["counts"])
        for name, each in samples.items()
        if name.rpartition("-")[0] not in drawn
    }
    if histograms:
        paths.append(_histograms(directory / "latency-histogram.png", histograms))
    if samples:
        paths.append(_consumers(directory / "consumers.png", samples))
    if any(run.connect_histogram[1] for each in runs.values() for run in each):
        paths.append(_connection_times(directory / "connection-times.png", runs))
    if any(run.stages for each in runs.values() for run in each):
        paths.append(_stages(directory / "stages.png", runs))
    return paths


def _new(title: str) -> tuple[Figure, Any]:
    figure = Figure(figsize=INCHES, layout="constrained")
    axes = figure.subplots()
    axes.set_title(title)
    return figure, axes


def _percentile_bars(path: Path, runs: Mapping[str, Sequence[RunFigures]]) -> Path:
    figure, axes = _new("Delivery latency, median of the runs")
    width = 0.8 / max(len(runs), 1)
    for index, (system, figures) in enumerate(runs.items()):
        heights = []
        for name in PERCENTILES:
            values = [run.delivery[name] for run in figures if name in run.delivery]
            heights.append(statistics.median(values) if values else 0.0)
        places = [place + index * width for place in range(len(PERCENTILES))]
        axes.bar(places, heights, width, label=system)
    centre = (len(runs) - 1) * width / 2
    axes.set_xticks([place + centre for place in range(len(PERCENTILES))], PERCENTILES)
    axes.set_ylabel("ms")
    axes.set_yscale("log")
    axes.legend()
    figure.savefig(path, dpi=120)
    return path


def _short(run: RunFigures) -> str:
    return run.run.rstrip("/").rpartition("/")[2]


def _consumers(path: Path, samples: Mapping[str, Any]) -> Path:
    figure, axes = _new("Latency of the single consumers")
    labels: list[str] = []
    places: list[int] = []
    for name, each in samples.items():
        for which, spread in each["per_consumer_ms"].items():
            place = len(labels)
            labels.append(f"{name}\n{which}")
            places.append(place)
            axes.vlines(place, spread["least"], spread["most"], color="#9ecae9")
            axes.vlines(place, spread["p25"], spread["p75"], color="#4c78a8", linewidth=8)
            # With an edge: consumers that are all alike have neither line nor bar after it.
            axes.plot(place, spread["median"], "o", color="white", markersize=5, mec="#4c78a8")
    axes.set_xticks(places, labels, fontsize=8)
    axes.set_xlim(-0.5, len(labels) - 0.5)
    axes.set_ylabel("ms; line: all, bar: middle half, point: median consumer")
    figure.savefig(path, dpi=120)
    return path


def _histograms(
    path: Path, histograms: Mapping[str, tuple[Sequence[float], Sequence[int]]]
) -> Path:
    figure, axes = _new("Latency of all deliveries")
    for name, (edges, counts) in histograms.items():
        axes.stairs(counts, edges, label=name)
    axes.set_xlabel("ms")
    axes.set_ylabel("deliveries")
    axes.set_yscale("log")
    axes.legend()
    figure.savefig(path, dpi=120)
    return path


def _connection_times(path: Path, runs: Mapping[str, Sequence[RunFigures]]) -> Path:
    figure, axes = _new("Time until a consumer was subscribed")
    for system, figures in runs.items():
        for run in figures:
            edges, counts = run.connect_histogram
            if counts:
                axes.stairs(counts, edges, label=f"{system}: {_short(run)}")
    axes.set_xlabel("ms")
    axes.set_ylabel("consumers")
    axes.legend()
    figure.savefig(path, dpi=120)
    return path


def _stages(path: Path, runs: Mapping[str, Sequence[RunFigures]]) -> Path:
    figure, axes = _new("Where the time goes: mean per stage")
    labels, bottoms = [], []
    names = (name for each in runs.values() for run in each for name in run.stages)
    every = list(dict.fromkeys(names))
    shown = [(system, run) for system, each in runs.items() for run in each if run.stages]
    for system, run in shown:
        labels.append(f"{system}\n{_short(run)}")
        bottoms.append(0.0)
    for name in every:
        heights = [run.stages.get(name, {}).get("mean", 0.0) for _, run in shown]
        axes.bar(range(len(shown)), heights, 0.6, bottom=bottoms, label=name)
        bottoms = [bottom + height for bottom, height in zip(bottoms, heights, strict=True)]
    axes.set_xticks(range(len(shown)), labels, fontsize=8)
    axes.set_ylabel("ms")
    axes.legend()
    figure.savefig(path, dpi=120)
    return path


def report(
    runs: Mapping[str, Sequence[RunFigures]],
    samples: Mapping[str, Any],
    comparisons: Sequence[Comparison],
    warnings: Sequence[str],
    charts: Sequence[Path],
) -> str:
    """The page, in Markdown."""
    lines = ["# Latency report", ""]
    lines += [f"- **Warning**: {text}" for text in warnings] + ([""] if warnings else [])
    lines += [
        "| system | figure | min ms | median ms | max ms | ratio |",
        "|---|---|---|---|---|---|",
    ]
    for each in comparisons:
        ratio = "" if each.ratio is None else f"{each.ratio:.2f}"
        lines.append(
            f"| {each.system} | {each.figure} | {each.least:.3f} | {each.median:.3f} | "
            f"{each.most:.3f} | {ratio} |"
        )
    first = next(iter(runs))
    lines += ["", f"The ratio is to the median of {first}; below 1 is faster.", ""]
    lines += _run_lines(runs) + _connection_lines(runs) + _stage_lines(runs)
    for name, each in samples.items():
        lines += _sample_lines(name, each)
    lines += [f"![{path.stem}]({path.name})" for path in charts]
    return "\n".join(lines) + "\n"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    return [*lines, *(f"| {' | '.join(row)} |" for row in rows), ""]


def _ms(figures: Mapping[str, float], names: Sequence[str]) -> list[str]:
    return [f"{figures[name]:.3f}" if name in figures else "" for name in names]


def _counted(count: int | None) -> str:
    return "" if count is None else f"{count:,}"


def _run_lines(runs: Mapping[str, Sequence[RunFigures]]) -> list[str]:
    rows = [
        [
            system,
            _short(run),
            _counted(run.messages),
            _counted(run.expected),
            _counted(run.errors),
            *_ms(run.delivery, PERCENTILES),
        ]
        for system, each in runs.items()
        for run in each
    ]
    head = ["system", "run", "messages", "expected", "errors"]
    return ["## Runs", "", *_table([*head, *(f"{name} ms" for name in PERCENTILES)], rows)]


def _connection_lines(runs: Mapping[str, Sequence[RunFigures]]) -> list[str]:
    rows = [
        [system, _short(run), *_ms(run.connect, PERCENTILES)]
        for system, each in runs.items()
        for run in each
        if run.connect
    ]
    head = ["system", "run", *(f"{name} ms" for name in PERCENTILES)]
    return ["## Time until a consumer was subscribed", "", *_table(head, rows)] if rows else []


def _stage_lines(runs: Mapping[str, Sequence[RunFigures]]) -> list[str]:
    names = ("mean", "p50", "p99")
    rows = [
        [system, _short(run), stage, *_ms(figures, names)]
        for system, each in runs.items()
        for run in each
        for stage, figures in run.stages.items()
    ]
    head = ["system", "run", "stage", *(f"{name} ms" for name in names)]
    title = "## Where the time goes (percentiles are upper ends of buckets)"
    return [title, "", *_table(head, rows)] if rows else []


def _consumer_lines(each: Mapping[str, Any]) -> list[str]:
    parts = list(SPREAD)
    rows = [[name, *_ms(spread, parts)] for name, spread in each["per_consumer_ms"].items()]
    head = ["of each consumer", *(f"{part} ms" for part in parts)]
    columns = ["consumer_id", *PERCENTILES, "received", "lost", "duplicated", "out_of_order"]
    slowest = [
        [
            str(row["consumer_id"]),
            *_ms(row, PERCENTILES),
            *(f"{row[name]:,}" for name in columns[len(PERCENTILES) + 1 :]),
        ]
        for row in each["slowest"]
    ]
    return [*_table(head, rows), "The slowest consumers:", "", *_table(columns, slowest)]


def _sample_lines(name: str, each: Mapping[str, Any]) -> list[str]:
    fairness = each["fairness"]
    spread = fairness["p99_max_to_median"]
    return [
        f"## {name}: {each['recording']}",
        "",
        f"{each['deliveries']:,} deliveries to {each['consumers']:,} consumers: {each['lost']:,} "
        f"lost, {each['duplicated']:,} doubled, {each['out_of_order']:,} out of order.",
        "",
        "The slowest consumer's p99 is "
        + ("?" if spread is None else f"{spread:.2f}")
        + f" times the median one's; Gini coefficient of the p99s: {fairness['p99_gini']:.3f}.",
        "",
        *_consumer_lines(each),
    ]
