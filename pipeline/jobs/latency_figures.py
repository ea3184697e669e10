"""The pages and pictures of `latency-report`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure

from pipeline.latency import PERCENTILES

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
    if samples:
        paths.append(_histograms(directory / "latency-histogram.png", samples))
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
            values = sorted(run.delivery[name] for run in figures if name in run.delivery)
            heights.append(values[(len(values) - 1) // 2] if values else 0.0)
        places = [place + index * width for place in range(len(PERCENTILES))]
        axes.bar(places, heights, width, label=system)
    centre = (len(runs) - 1) * width / 2
    axes.set_xticks([place + centre for place in range(len(PERCENTILES))], PERCENTILES)
    axes.set_ylabel("ms")
    axes.set_yscale("log")
    axes.legend()
    figure.savefig(path, dpi=120)
    return path


def _histograms(path: Path, samples: Mapping[str, Any]) -> Path:
    figure, axes = _new("Latency of all deliveries")
    for name, each in samples.items():
        histogram = each["histogram"]
        axes.stairs(histogram["counts"], histogram["edges_ms"], label=name)
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
                axes.stairs(counts, edges, label=f"{system}: {run.run.rpartition('/')[2]}")
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
        labels.append(f"{system}\n{run.run.rpartition('/')[2]}")
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
    for name, each in samples.items():
        lines += _sample_lines(name, each)
    lines += [f"![{path.stem}]({path.name})" for path in charts]
    return "\n".join(lines) + "\n"


def _sample_lines(name: str, each: Mapping[str, Any]) -> list[str]:
    fairness = each["fairness"]
    spread = fairness["p99_max_to_median"]
    return [
        f"## {name}",
        "",
        f"{each['deliveries']:,} deliveries to {each['consumers']:,} consumers: {each['lost']:,} "
        f"lost, {each['duplicated']:,} doubled, {each['out_of_order']:,} out of order.",
        "",
        "The slowest consumer's p99 is "
        + ("?" if spread is None else f"{spread:.2f}")
        + f" times the median one's; Gini coefficient of the p99s: {fairness['p99_gini']:.3f}.",
        "",
    ]
